import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, source_of

from makespan.errors import TraceError
from makespan.simulator.importers import bytescheduler, chrome, horovod, kineto, mxnet, tensorflow

EPOCH_US = 1_624_937_181_806_323


def metadata(pid: int, **args: Any) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "ph": "M", "pid": pid, "args": args},
        {"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}},
    ]


def begin(name: str, ts: int, pid: int = 1) -> dict[str, Any]:
    return {"ph": "B", "name": name, "ts": ts, "pid": pid}


def end(ts: int, pid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "E", "ts": ts, "pid": pid, **({"args": args} if args else {})}


def ready(rank: int, ts: int, pid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": str(rank), "ts": ts, "pid": pid, "dur": 0}


ALLREDUCE = [
    *metadata(1, name="grad/w"),
    begin("NEGOTIATE_ALLREDUCE", 10), ready(2, 12), ready(0, 13), ready(1, 40), end(41),
    begin("ALLREDUCE", 42), begin("QUEUE", 42), end(45), begin("WAIT_FOR_DATA", 45), end(46),
    begin("MEMCPY_IN_FUSION_BUFFER", 46), end(47), begin("NCCL_ALLREDUCE", 47), end(60),
    begin("MEMCPY_OUT_FUSION_BUFFER", 61), end(62), end(63, dtype="float32", shape="[16, 4]"),
]  # fmt: skip
BROADCAST = [
    *metadata(2, name="step"),
    begin("NEGOTIATE_BROADCAST", 70, 2), end(71, 2), begin("BROADCAST", 72, 2), end(80, 2),
    {"ph": "i", "name": "CYCLE_START", "ts": 81, "s": "g"},
]  # fmt: skip


def timeline(events: list[dict[str, Any]], close: bool = True) -> bytes:
    """As Horovod writes it: one event a line, older versions with a comma behind the last and no bracket."""
    lines = ",\n".join(json.dumps(event) for event in events)
    return f"[\n{lines}{']' if close else ',' + chr(10)}".encode()


ANCHOR = metadata(0, start_time_since_epoch_in_micros=EPOCH_US)
NEW = timeline([*ANCHOR, *ALLREDUCE, *BROADCAST])
OLD = timeline([*ALLREDUCE, *BROADCAST], close=False)
ROWS = [
    ("WAIT", "NEGOTIATE_ALLREDUCE", "grad/w", 10, 31),
    ("INSTANT", "2", "grad/w", 12, 0),
    ("INSTANT", "0", "grad/w", 13, 0),
    ("INSTANT", "1", "grad/w", 40, 0),
    ("OTHER", "ALLREDUCE", "grad/w", 42, 21),
    ("WAIT", "QUEUE", "grad/w", 42, 3),
    ("WAIT", "WAIT_FOR_DATA", "grad/w", 45, 1),
    ("MEMCPY", "MEMCPY_IN_FUSION_BUFFER", "grad/w", 46, 1),
    ("COLLECTIVE", "NCCL_ALLREDUCE", "grad/w", 47, 13),
    ("MEMCPY", "MEMCPY_OUT_FUSION_BUFFER", "grad/w", 61, 1),
    ("WAIT", "NEGOTIATE_BROADCAST", "step", 70, 1),
    ("COLLECTIVE", "BROADCAST", "step", 72, 8),
    ("INSTANT", "CYCLE_START", "cycles", 81, 0),
]


def test_timeline_becomes_the_exact_table() -> None:
    source = source_of(NEW)
    assert horovod.recognise(source) == 2
    assert [other.recognise(source) for other in (bytescheduler, kineto, mxnet, tensorflow)] == [0, 0, 0, 0]
    assert chrome.recognise(source) == 1
    part = read_one(horovod, source, strict=True)
    assert rows_of(part.events) == ROWS
    assert attrs_of(part.events, 0) == {"state": "negotiate", "tensor": "grad/w", "collective": "allreduce"}
    assert [attrs_of(part.events, row)["ready_rank"] for row in (1, 2, 3)] == [2, 0, 1]
    assert attrs_of(part.events, 4) == {
        "state": "process", "tensor": "grad/w", "collective": "allreduce", "dtype": "float32",
        "shapes": "[[16,4]]", "bytes": 256,
    }  # fmt: skip
    assert attrs_of(part.events, 8) == {
        "state": "transfer", "tensor": "grad/w", "collective": "allreduce", "parent": 4,
    }  # fmt: skip
    assert [attrs_of(part.events, row)["state"] for row in (5, 6, 7, 9)] == [
        "queue", "wait for data", "copy in", "copy out",
    ]  # fmt: skip
    assert (part.rank, part.world_size, part.clock, part.clock_base_ns) == (0, 3, "unix", EPOCH_US * 1000)
    assert not part.diagnostics


def test_older_timelines_have_neither_clock_nor_closing_bracket() -> None:
    part = read_one(horovod, source_of(OLD))
    assert rows_of(part.events) == ROWS
    assert (part.clock, part.clock_base_ns) == ("unknown", 0)
    assert part.diagnostics.counts == {"no closing bracket": 1}


def test_a_timeline_that_was_cut_off() -> None:
    part = read_one(horovod, source_of(OLD[: OLD.index(b'"NCCL_ALLREDUCE"') + 40]))
    assert rows_of(part.events)[:8] == [
        *ROWS[:4], ("OTHER", "ALLREDUCE", "grad/w", 42, 0), *ROWS[5:8],
    ]  # fmt: skip
    assert part.diagnostics.counts["begin without an end"] >= 1
    with pytest.raises(TraceError):
        read_one(horovod, source_of(OLD[:400]), strict=True)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([end(5)], horovod.NO_BEGIN),
        ([begin("ALLREDUCE", 5)], horovod.NO_END),
        ([{"ph": "B", "name": "ALLREDUCE", "pid": 1}], horovod.NO_TIME),
        ([begin("ALLREDUCE", 50), end(40)], "negative duration, taken as zero"),
        ([begin("ALLREDUCE", 9 * 10**15), end(9 * 10**15)], "timestamp far in the future"),
    ],
)
def test_damage_is_counted(events: list[dict[str, Any]], reason: str) -> None:
    source = source_of(timeline([*ALLREDUCE, *events]))
    part = read_one(horovod, source)
    assert part.diagnostics.counts == {reason: 1}
    assert rows_of(part.events)[:10] == ROWS[:10]
    assert (part.events.duration_ns >= 0).all()
    with pytest.raises(TraceError, match=reason):
        read_one(horovod, source, strict=True)


@settings(max_examples=200)
@given(st.sampled_from([NEW, OLD]), st.data())
def test_whatever_the_bytes_are(content: bytes, data: st.DataObject) -> None:
    content = content[: data.draw(st.integers(0, len(content)))]
    for place, new in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4)):
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + 1 :]
    assert_survives(horovod, content, data.draw(st.booleans()))
