import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, shared_trace, source_at, source_of

from makespan.errors import TraceError
from makespan.simulator.importers import byteps, bytescheduler, chrome, horovod, kineto, mxnet, tensorflow
from makespan.trace import LaneKind

MAIN, WORKER, GPU_WORKER = 9453642098517412345, 1234567890123456789, 7777777777777777777
"""Threads are hashes, in part beyond 63 bits."""
API = 5555555555555555555


def devices() -> list[dict[str, Any]]:
    names = ("cpu/0", "gpu/0", "gpu/1", "cpu pinned/")
    return [{"ph": "M", "args": {"name": name}, "pid": pid, "name": "process_name"} for pid, name in enumerate(names)]


def span(name: str, start: int, stop: int, pid: int, tid: int, cat: str = "operator") -> list[dict[str, Any]]:
    pairs = (("B", start), ("E", stop))
    return [{"name": name, "cat": cat, "ph": phase, "ts": at, "pid": pid, "tid": tid} for phase, at in pairs]


FIRST = [
    *devices(),
    *span("CopyCPU2GPU", 100, 120, 1, GPU_WORKER),
    *span("Convolution", 120, 180, 1, GPU_WORKER),
    *span("KVStoreDistDefaultPush", 185, 195, 0, WORKER),
    *span("SetupExec", 90, 95, 0, WORKER),
    {"ph": "M", "args": {"name": "MXNET_C_API"}, "pid": API, "name": "process_name"},
    *span("MXImperativeInvokeEx", 80, 88, API, MAIN, "MXNET_C_API"),
    {"name": "Memory: cpu/0", "cat": "Device Storage", "ph": "C", "ts": 99, "args": {"Memory: cpu/0": 4096}, "pid": 7,
     "tid": MAIN},
]  # fmt: skip
SECOND = span("FullyConnected", 300, 330, 1, GPU_WORKER)
ROWS = [
    ("MEMCPY", "CopyCPU2GPU", str(GPU_WORKER), 100, 20),
    ("KERNEL", "Convolution", str(GPU_WORKER), 120, 60),
    ("SEND", "KVStoreDistDefaultPush", str(WORKER), 185, 10),
    ("CPU_OP", "SetupExec", str(WORKER), 90, 5),
    ("ANNOTATION", "MXImperativeInvokeEx", str(MAIN), 80, 8),
    ("COUNTER", "Memory: cpu/0", str(MAIN), 99, 0),
]
LAST = ("KERNEL", "FullyConnected", str(GPU_WORKER), 300, 30)


def dump(events: list[dict[str, Any]], header: bool = True, footer: bool = True) -> bytes:
    body = ",\n".join(json.dumps(event, indent=4) for event in events)
    opening = '{\n    "traceEvents": [\n' if header else ",\n"
    closing = '\n    ],\n    "displayTimeUnit": "ms"\n}\n' if footer else "\n"
    return (opening + body + closing).encode()


def test_dump_becomes_the_exact_table() -> None:
    source = source_of(dump(FIRST + SECOND))
    assert mxnet.recognise(source) == 2
    others = (byteps, bytescheduler, horovod, kineto, tensorflow, chrome)
    assert [other.recognise(source) for other in others] == [0, 0, 0, 0, 0, 1]
    part = read_one(mxnet, source, strict=True)
    assert rows_of(part.events) == [*ROWS, LAST]
    assert attrs_of(part.events, 2) == {"collective": "send"}
    assert attrs_of(part.events, 5) == {"value": 4096.0}
    lanes = {(lane.kind, lane.process, lane.thread): lane.device for lane in part.events.lanes}
    assert lanes == {
        (LaneKind.DEVICE, "gpu/0", str(GPU_WORKER)): 0,
        (LaneKind.HOST, "host", str(WORKER)): -1,
        (LaneKind.HOST, "host", str(MAIN)): -1,
    }
    assert not part.diagnostics


def test_several_dumps_in_one_file_without_header_or_footer() -> None:
    # Each dump but the first lacks its header, each but the last its footer: the file is one array after all.
    part = read_one(mxnet, source_of(dump(FIRST, footer=False) + dump(SECOND, header=False)), strict=True)
    assert rows_of(part.events) == [*ROWS, LAST]


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        (dump(FIRST) + dump(SECOND), {"several dumps in one file"}),
        (dump(FIRST, footer=False) + dump(SECOND), {"several dumps in one file"}),
        (dump(FIRST) + dump(SECOND, header=False), {"no opening bracket", "several dumps in one file"}),
        (dump(FIRST, footer=False) + dump(SECOND, header=False, footer=False), {"no closing bracket"}),
    ],
)
def test_several_dumps_however_they_join(content: bytes, reasons: set[str]) -> None:
    part = read_one(mxnet, source_of(content))
    assert rows_of(part.events) == [*ROWS, LAST]
    assert set(part.diagnostics.counts) >= reasons


def test_a_dump_without_its_header_is_known_by_its_categories() -> None:
    source = source_of(dump(SECOND, header=False))
    assert mxnet.recognise(source) == 2
    part = read_one(mxnet, source)
    assert rows_of(part.events) == [("CPU_OP", *LAST[1:])]  # which device the row is, only the header tells


def test_public_defect_of_split_dumps() -> None:
    source = source_at(shared_trace("tiny/T05_mxnet_split_dump/rank0.json"))
    assert mxnet.recognise(source) == 2
    part = read_one(mxnet, source)
    assert rows_of(part.events) == [("CPU_OP", "SetupExec", "1", 10, 10)]
    assert set(part.diagnostics.counts) == {"no opening bracket", "no closing bracket"}
    with pytest.raises(TraceError):
        read_one(mxnet, source, strict=True)


def test_begins_and_ends_without_each_other() -> None:
    events = [*FIRST, *span("lost", 400, 410, 1, GPU_WORKER)[:1], *span("gone", 420, 430, 0, WORKER)[1:]]
    part = read_one(mxnet, source_of(dump(events)))
    assert rows_of(part.events) == [*ROWS, ("KERNEL", "lost", str(GPU_WORKER), 400, 0)]
    assert part.diagnostics.counts == {"begin without an end": 1, "end without a begin": 1}


@pytest.mark.parametrize("damage", [b"-1e999", b'"\xff"', b"[1]"])
def test_damaged_arguments_of_one_counter_leave_the_others_alone(damage: bytes) -> None:
    # A member that nobody needs is not looked at, so that nothing was repaired.
    content = dump(FIRST).replace(
        b'"args": {\n        "name": "gpu/1"', b'"args": {"more": ' + damage + b', "name": "gpu/1"'
    )
    assert damage in content
    assert attrs_of(read_one(mxnet, source_of(content)).events, 5) == {"value": 4096.0}


CONTENT = dump(FIRST, footer=False) + dump(SECOND, header=False)


@settings(max_examples=150)
@given(st.data())
def test_whatever_the_bytes_are(data: st.DataObject) -> None:
    content = CONTENT[: data.draw(st.integers(0, len(CONTENT)))]
    for place, new in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4)):
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + 1 :]
    assert_survives(mxnet, content, data.draw(st.booleans()))
