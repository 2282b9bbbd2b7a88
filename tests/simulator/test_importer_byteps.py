import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, source_of

from makespan.errors import TraceError
from makespan.simulator.importers import byteps, chrome, horovod, kineto, mxnet
from makespan.trace import LaneKind

EPOCH_US = 1_574_685_989_000_000


def event(tensor: str, stage: str, start: int, length: int, partition: str = "") -> dict[str, Any]:
    """As BytePS writes it: process, name and thread are text, times are microseconds since 1970."""
    name = f"Comm.{tensor}"
    return {
        "ph": "X", "args": {"name": name}, "pid": name, "name": f"{name}.{stage}" if stage else name,
        "ts": EPOCH_US + start, "dur": length, "tid": partition or "total", "cat": "Comm",
    }  # fmt: skip


EVENTS = [
    event("byteps.w", "", 100, 60),
    event("byteps.w", "COORDINATE_REDUCE", 101, 1, "655360"),
    event("byteps.w", "REDUCE", 102, 8, "655360"),
    event("byteps.w", "COPYD2H", 110, 5, "655360"),
    event("byteps.w", "PUSH", 115, 20, "655360"),
    event("byteps.w", "PULL", 135, 15, "655360"),
    event("byteps.w", "BROADCAST", 150, 9, "655360"),
    event("byteps.w", "PUSH", 116, 25, "655361"),
    event("byteps.b", "", 200, 40),
]
WORKER = json.dumps({"traceEvents": EVENTS, "displayTimeUnit": "ms"}, indent=4).encode()


def test_stages_of_a_worker_become_the_exact_table() -> None:
    source = source_of(WORKER)
    assert byteps.recognise(source) == 2
    assert [other.recognise(source) for other in (horovod, kineto, mxnet, chrome)] == [0, 0, 0, 1]
    part = read_one(byteps, source, strict=True)
    assert rows_of(part.events) == [
        ("ANNOTATION", "Comm.byteps.w", "byteps.w", 100, 60),
        ("WAIT", "Comm.byteps.w.COORDINATE_REDUCE", "byteps.w 655360", 101, 1),
        ("COLLECTIVE", "Comm.byteps.w.REDUCE", "byteps.w 655360", 102, 8),
        ("MEMCPY", "Comm.byteps.w.COPYD2H", "byteps.w 655360", 110, 5),
        ("SEND", "Comm.byteps.w.PUSH", "byteps.w 655360", 115, 20),
        ("RECV", "Comm.byteps.w.PULL", "byteps.w 655360", 135, 15),
        ("COLLECTIVE", "Comm.byteps.w.BROADCAST", "byteps.w 655360", 150, 9),
        ("SEND", "Comm.byteps.w.PUSH", "byteps.w 655361", 116, 25),
        ("COLLECTIVE", "Comm.byteps.b", "byteps.b", 200, 40),
    ]
    assert [attrs_of(part.events, row) for row in (0, 1, 2, 4, 8)] == [
        {"state": "total", "collective": "pushpull", "tensor": "byteps.w"},
        {"state": "coordinate reduce", "tensor": "byteps.w"},
        {"state": "reduce", "collective": "reduce", "tensor": "byteps.w"},
        {"state": "push", "collective": "send", "tensor": "byteps.w"},
        {"state": "total", "collective": "pushpull", "tensor": "byteps.b"},
    ]
    assert {lane.kind for lane in part.events.lanes} == {LaneKind.OTHER}
    assert (part.clock, part.clock_base_ns, part.rank) == ("unix", EPOCH_US * 1000, -1)
    assert not part.diagnostics


SERVER = (
    b'{"name": "push-9", "ph": "B", "pid": 27000832, "tid": 27000832, "ts": 1569331999234742},\n'
    b'{"name": "push-9", "ph": "E", "pid": 27000832, "tid": 27000832, "ts": 1569331999234778},\n'
    b'{"name": "pull-9", "ph": "B", "pid": 27000832, "tid": 27000832, "ts": 1569331999234878},\n'
    b'{"name": "push-11", "ph": "B", "pid": 27000832, "tid": 27000832, "ts": 1569331999234898},\n'
    b'{"name": "push-11", "ph": "E", "pid": 27000832, "tid": 27000832, "ts": 1569331999234931},\n'
    b'{"name": "pull-9", "ph": "E", "pid": 27000832, "tid": 27000832, "ts": 1569331999234920},\n'
)
"""Requests at a server, as the documentation shows them: no brackets, two workers at once."""


def test_requests_at_a_server() -> None:
    source = source_of(SERVER)
    assert byteps.recognise(source) == 2
    part = read_one(byteps, source)
    lane = "27000832 27000832"
    assert rows_of(part.events) == [
        ("RECV", "push-9", lane, 234742, 36),
        ("SEND", "pull-9", lane, 234878, 42),
        ("RECV", "push-11", f"{lane} +1", 234898, 33),
    ]
    assert [attrs_of(part.events, row)["peer"] for row in range(3)] == [9, 9, 11]
    assert set(part.diagnostics.counts) == {"no opening bracket", "no closing bracket"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dur": -5}, "negative duration, taken as zero"),
        ({"ts": 9 * 10**15}, "timestamp far in the future"),
        ({"ts": 0}, "timestamp far in the past"),
        ({"dur": None}, "complete event without a duration"),
        ({"ts": None}, "event without a time"),
    ],
)
def test_damage_is_counted(change: dict[str, Any], reason: str) -> None:
    source = source_of(json.dumps({"traceEvents": [*EVENTS, EVENTS[-1] | change]}).encode())
    part = read_one(byteps, source)
    assert part.diagnostics.counts == {reason: 1}
    assert len(part.events) >= len(EVENTS)
    with pytest.raises(TraceError, match=reason):
        read_one(byteps, source, strict=True)


@settings(max_examples=150)
@given(st.sampled_from([WORKER, SERVER]), st.data())
def test_whatever_the_bytes_are(content: bytes, data: st.DataObject) -> None:
    content = content[: data.draw(st.integers(0, len(content)))]
    for place, new in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4)):
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + 1 :]
    assert_survives(byteps, content, data.draw(st.booleans()))
