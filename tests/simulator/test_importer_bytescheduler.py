import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, shared_trace, source_at, source_of

from makespan.errors import TraceError
from makespan.simulator.importers import bytescheduler, chrome, horovod, kineto, mxnet


def metadata(pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "args": {"name": name}, "pid": pid, "name": "process_name"}


def span(pid: int, name: str, start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ph": phase, "pid": pid, "ts": at, "name": name} for phase, at in (("B", start), ("E", stop))]


EVENTS = [
    metadata(0, "conv1_weight"),
    *span(0, "INITCOMMUNICATION", 100, 200),
    metadata(1, "conv2_weight_0"),
    # Written after the end of the span that it crosses: the file is ordered by ends.
    *span(0, "PULLCOMMUNICATION", 190, 250),
    *span(1, "PUSH_PULLQUEUE", 300, 340),
    *span(1, "PUSH_PULLCOMMUNICATION", 341, 400),
    *span(0, "PUSHCOMMUNICATION", 500, 510),
    *span(0, "ALLREDUCECOMMUNICATION", 520, 560),
]
CONTENT = (json.dumps(EVENTS)[:-1] + ", ").encode()
"""As the real files end: with a comma, and no bracket."""


def test_timeline_becomes_the_exact_table() -> None:
    source = source_of(CONTENT)
    assert bytescheduler.recognise(source) == 2
    assert [other.recognise(source) for other in (horovod, kineto, mxnet, chrome)] == [0, 0, 0, 1]
    part = read_one(bytescheduler, source)
    assert rows_of(part.events) == [
        ("SEND", "INITCOMMUNICATION", "conv1_weight", 100, 100),
        ("RECV", "PULLCOMMUNICATION", "conv1_weight +1", 190, 60),
        ("WAIT", "PUSH_PULLQUEUE", "conv2_weight_0", 300, 40),
        ("COLLECTIVE", "PUSH_PULLCOMMUNICATION", "conv2_weight_0", 341, 59),
        ("SEND", "PUSHCOMMUNICATION", "conv1_weight", 500, 10),
        ("COLLECTIVE", "ALLREDUCECOMMUNICATION", "conv1_weight", 520, 40),
    ]
    assert attrs_of(part.events, 2) == {"state": "queue", "collective": "pushpull", "tensor": "conv2_weight_0"}
    assert attrs_of(part.events, 4) == {"state": "transfer", "tensor": "conv1_weight"}
    assert (part.clock, part.rank) == ("unknown", -1)
    assert part.diagnostics.counts == {"no closing bracket": 1}


def test_a_closed_file_is_not_damaged() -> None:
    assert len(read_one(bytescheduler, source_of(json.dumps(EVENTS).encode()), strict=True).events) == 6


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (span(1, "PUSHQUEUE", 600, 610)[:1], "begin without an end"),
        (span(1, "PUSHQUEUE", 600, 610)[1:], "end without a begin"),
        (span(1, "PUSHQUEUE", 610, 600), "negative duration, taken as zero"),
    ],
)
def test_damage_is_counted(events: list[dict[str, Any]], reason: str) -> None:
    source = source_of(json.dumps(EVENTS + events).encode())
    assert read_one(bytescheduler, source).diagnostics.counts == {reason: 1}
    with pytest.raises(TraceError, match=reason):
        read_one(bytescheduler, source, strict=True)


@pytest.mark.parametrize("name", ["timeline_worker", "timeline_no-priority"])
def test_real_timelines_against_a_plain_parse(name: str) -> None:
    path = shared_trace(f"real/bytescheduler_mxnet/{name}.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()).decode().rstrip(", \n") + "]")
    opened: dict[tuple[int, str], list[int]] = {}
    spans: list[tuple[int, str, int, int]] = []
    for event in events:
        key = (event["pid"], event["name"])
        if event["ph"] == "B":
            opened.setdefault(key, []).append(event["ts"])
        elif event["ph"] == "E":
            start = opened[key].pop()
            spans.append((*key, start, event["ts"] - start))
    tensors = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    unfinished = sum(map(len, opened.values()))
    part = read_one(bytescheduler, source_at(path))
    told = [(row[2].split(" +")[0], *row[1:2], *row[3:]) for row in rows_of(part.events)]
    assert len(told) == len(spans) + unfinished
    missing = sorted((tensors[pid], name, start, length) for pid, name, start, length in spans)
    assert sorted(row for row in told if row[3] > 0) == [row for row in missing if row[3] > 0]
    assert set(part.diagnostics.counts) <= {"no closing bracket", "begin without an end"}


@settings(max_examples=150)
@given(st.data())
def test_whatever_the_bytes_are(data: st.DataObject) -> None:
    content = CONTENT[: data.draw(st.integers(0, len(CONTENT)))]
    for place, new in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4)):
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + 1 :]
    assert_survives(bytescheduler, content, data.draw(st.booleans()))
