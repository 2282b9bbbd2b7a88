"""Memory in use over time from allocator instants, and where it peaks."""

from __future__ import annotations

from event_tables import Row, trace_of

from makespan.simulator.analysis.memory import memory_use
from makespan.trace import EventKind

CPU, STEP, INSTANT = EventKind.CPU_OP, EventKind.STEP, EventKind.INSTANT


def instant(at_us: float, change: int, total: int | None = None, device: int = -1) -> Row:
    attrs: dict[str, int | str] = {"bytes": change, "device": device}
    if total is not None:
        attrs["total_allocated_bytes"] = total
    return Row(INSTANT, "[memory]", "main", at_us, 0, attrs=attrs)


def test_peaks_by_device_with_step_and_innermost_op() -> None:
    trace = trace_of(
        [
            Row(STEP, "ProfilerStep#1", "main", 10, 50),
            Row(STEP, "ProfilerStep#2", "main", 60, 50),
            Row(CPU, "aten::linear", "main", 65, 20),
            Row(CPU, "aten::addmm", "main", 70, 10),
            instant(20, 100, 1100),
            instant(75, 900, 2000),
            instant(95, -500, 1500),
            instant(30, 64, 64, device=0),
            instant(62, -64, 0, device=0),
        ]
    )
    found = memory_use(trace)
    assert found.reason == ""
    assert found.peaks.values.tolist() == [
        [0, "host", 2000, 65_000, "ProfilerStep#2", "aten::addmm", 3],
        [0, "device 0", 64, 20_000, "ProfilerStep#1", "", 2],
    ]
    host = found.samples[found.samples["device"] == "host"]
    assert host[["time_ns", "allocated_bytes", "change_bytes"]].values.tolist() == [
        [10_000, 1100, 100],
        [65_000, 2000, 900],
        [85_000, 1500, -500],
    ]


def test_changes_alone_are_added_up_from_what_must_have_been_there() -> None:
    found = memory_use(trace_of([instant(1, 10), instant(3, -50), instant(2, 5), instant(4, 20)]))
    assert found.samples["allocated_bytes"].tolist() == [45, 50, 0, 20]
    assert found.peaks["peak_bytes"].tolist() == [50]
    assert "counted from its first instant" in found.reason


def test_each_rank_has_its_own_rows() -> None:
    found = memory_use(trace_of([instant(1, 10, 10)], [instant(5, 30, 30), instant(6, -30, 0)]))
    assert found.peaks[["rank", "peak_bytes", "instants"]].values.tolist() == [[0, 10, 1], [1, 30, 2]]


def test_a_trace_that_tells_nothing_says_so() -> None:
    copied = Row(EventKind.MEMCPY, "Memcpy HtoD", "s7", 0, 5, attrs={"bytes": 4096})
    found = memory_use(trace_of([copied]))
    assert found.samples.empty
    assert found.peaks.empty
    assert "profile_memory=True" in found.reason
    assert list(found.peaks.columns)[:3] == ["rank", "device", "peak_bytes"]
