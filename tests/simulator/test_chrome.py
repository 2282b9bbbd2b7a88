"""Plain Chrome JSON: lanes, kinds, spans, arrows; and our own timelines, read back as they were drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chrome_samples import Event, profile, source, span, text, two_steps, write

from makespan.graph import OpKind, StreamKind
from makespan.simulator.build import build
from makespan.simulator.chrome.export import write_chrome
from makespan.simulator.importers import chrome
from makespan.simulator.load import load
from makespan.simulator.replay import replay
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace


def read(content: bytes | list[Event] | dict[str, Any]) -> list[RankTrace]:
    return chrome.read(source(content), Diagnostics(), False)


def read_one(content: bytes | list[Event] | dict[str, Any]) -> RankTrace:
    (part,) = read(content)
    return part


@pytest.mark.parametrize(
    ("head", "claim"),
    [
        (b'{"traceEvents": [', 1),
        (b'[{"ph": "X"', 1),
        (b"[", 1),
        (b" [ ]\n", 1),
        (b'{"name": "x", "ph": "B"}', 1),
        (b'{"makespan": {"version": 1}, "traceEvents": [', 2),
        (b"{}", 0),
        (b"[1, 2]", 0),
        (b"", 0),
        (b'"ph":', 0),
    ],
)
def test_recognition(head: bytes, claim: int):
    assert chrome.recognise(source(head)) == claim


def test_threads_are_host_lanes_unless_they_name_a_device():
    events = [
        span("", "host op", 1.0, 2.0, "worker", "main"),
        span("", "by argument", 2.0, 2.0, 5, 6, stream=3, device=1),
        span("", "by process", 3.0, 2.0, 9, "Stream #14(Compute)"),
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "/device:GPU:2"}},
        {"ph": "M", "name": "process_name", "pid": "worker", "args": {"name": "/device:CPU:0"}},
    ]
    table = read_one(events).events
    assert [(lane.kind, lane.device, lane.stream) for lane in table.lanes] == [
        (LaneKind.HOST, NONE, NONE),
        (LaneKind.DEVICE, 1, 3),
        (LaneKind.DEVICE, 9, 14),
    ]
    assert table.kind.tolist() == [EventKind.CPU_OP, EventKind.KERNEL, EventKind.KERNEL]


def test_names_tell_device_work_and_steps():
    names = ["MemcpyD2H", "memset", "ncclKernel_AllReduce", "fusion.1", "ProfilerStep#3"]
    table = read_one([span("", name, 1.0 + n, 0.5, 1, 1, stream=1) for n, name in enumerate(names)]).events
    assert table.kind.tolist() == [
        EventKind.MEMCPY, EventKind.MEMSET, EventKind.COLLECTIVE, EventKind.KERNEL, EventKind.KERNEL,
    ]  # fmt: skip
    table = read_one([span("", name, 1.0 + n, 0.5) for n, name in enumerate(names)]).events
    assert table.kind.tolist() == [EventKind.CPU_OP] * 4 + [EventKind.STEP]


def test_spans_instants_counters_and_asynchronous_events():
    events = [
        {"ph": "B", "name": "outer", "ts": 1, "pid": 0, "tid": 1},
        {"ph": "i", "name": "mark", "ts": 2, "pid": 0, "tid": 1},
        {"ph": "C", "name": "used", "ts": 2, "pid": 0, "tid": 1, "args": {"bytes": 12}},
        {"ph": "b", "cat": "net", "id": "0xa", "name": "request", "ts": 3, "pid": 0, "tid": 1},
        {"ph": "E", "ts": 9, "pid": 0, "tid": 1},
        {"ph": "e", "cat": "net", "id": "0xa", "name": "request", "ts": 30, "pid": 0, "tid": 2},
    ]
    part = read_one(events)
    table = part.events
    assert table.kind.tolist() == [EventKind.CPU_OP, EventKind.INSTANT, EventKind.COUNTER, EventKind.OTHER]
    assert table.duration_ns.tolist() == [8000, 0, 0, 27_000]
    lanes = [table.lanes[lane].kind for lane in table.lane]
    assert lanes == [LaneKind.HOST, LaneKind.HOST, LaneKind.OTHER, LaneKind.OTHER]
    assert table.attrs["value"].get(2) == 12.0 and not part.diagnostics


def test_arrows_follow_starts_steps_and_ends():
    events = [span("", name, 10.0 * n, 5.0, 1, n) for n, name in enumerate("abcd")]
    for phase, ts, tid in (("s", 1.0, 0), ("t", 11.0, 1), ("f", 22.0, 2), ("f", 99.0, 3)):
        events.append({"ph": phase, "cat": "DataFlow", "name": "x", "id": 1, "ts": ts, "pid": 1, "tid": tid})
    part = read_one(events)
    table = part.events
    arrows = [(table.name_of(a), table.name_of(b)) for a, b in zip(table.flow_source, table.flow_target, strict=True)]
    assert arrows == [("a", "b"), ("b", "c")] and {table.names[k] for k in table.flow_kind} == {"DataFlow"}
    assert part.diagnostics.counts == {"arrow of which only one end is recorded": 1}


def test_an_end_that_clocks_put_before_its_start_still_belongs_to_it():
    events = [span("", "late", 10.0, 5.0, 1, 1), span("", "early", 2.0, 5.0, 1, 2)]
    for phase, ts, tid in (("s", 10.0, 1), ("f", 3.0, 2)):
        events.append({"ph": phase, "cat": "c", "name": "x", "id": 1, "ts": ts, "pid": 1, "tid": tid})
    table = read_one(events).events
    assert (table.flow_source.tolist(), table.flow_target.tolist()) == ([0], [1])


def test_processes_named_by_rank_become_ranks():
    events = [*two_steps(pid=11), *two_steps(begin=5000.0, pid=21)]
    events += [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"Rank {rank}"}}
        for pid, rank in ((11, 3), (10, 3), (21, 1), (20, 1))
    ]
    parts = read(events)
    assert [(part.rank, len(part.events)) for part in parts] == [(1, 20), (3, 20)]
    assert parts[0].events.start_ns.min() == 5_000_000
    assert parts[0].diagnostics is not parts[1].diagnostics


def test_rank_of_the_whole_file():
    assert read_one({"traceEvents": [span("", "x", 1.0, 1.0)], "distributedInfo": {"rank": 4}}).rank == 4
    assert read_one([span("", "x", 1.0, 1.0)]).rank == NONE


def test_empty_file():
    part = read_one(b"[]")
    assert len(part.events) == 0 and part.rank == NONE and not part.diagnostics


# Our own timelines


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_our_own_timeline_reads_back_exactly(tmp_path: Path, name: str):
    for rank in range(2):
        write(tmp_path / "in", profile(two_steps(1000.003 + 7 * rank), rank=rank), f"rank{rank}.json")
    schedule = replay(build(load(tmp_path / "in")))
    write_chrome(schedule, tmp_path / name)
    trace = load(tmp_path / name, strict=True)
    graph = schedule.graph
    assert [part.rank for part in trace] == [0, 1] and {part.format for part in trace} == {chrome.TITLE}
    for part in trace:
        table = part.events
        on_device = graph.on_streams(StreamKind.DEVICE) & (graph.rank == part.rank)
        drawn = {
            (graph.name_of(op), int(schedule.start_ns[op]), int(schedule.end_ns[op]))
            for op in np.flatnonzero(on_device)
        }
        device = [row for row in range(len(table)) if table.lanes[table.lane[row]].kind == LaneKind.DEVICE]
        assert drawn == {(table.name_of(row), int(table.start_ns[row]), int(table.end_ns[row])) for row in device}
        assert {EventKind(table.kind[row]) for row in device} == {EventKind.KERNEL}
        steps = {
            (step.name, int(schedule.start_ns[step.begin_op]), int(schedule.end_ns[step.end_op]))
            for step in graph.steps
            if step.rank == part.rank
        }
        rows = np.flatnonzero(table.kind == EventKind.STEP).tolist()
        assert steps == {(table.name_of(row), int(table.start_ns[row]), int(table.end_ns[row])) for row in rows}
        host = [OpKind.HOST, OpKind.RUNTIME]
        segments = {
            (int(schedule.start_ns[op]), int(schedule.end_ns[op]))
            for op in np.flatnonzero(np.isin(graph.kind, host) & (graph.rank == part.rank))
        }
        ops = np.flatnonzero(np.isin(table.kind, (EventKind.CPU_OP, EventKind.RUNTIME)))
        assert segments == {(int(table.start_ns[row]), int(table.end_ns[row])) for row in ops}
        calls = table.correlation[table.kind == EventKind.RUNTIME]
        assert set(table.correlation[device].tolist()) <= set(calls.tolist()) - {NONE}


def test_a_timeline_with_whole_host_events_replays_like_its_schedule(tmp_path: Path):
    trace = load(write(tmp_path, profile(two_steps())))
    schedule = replay(build(trace))
    write_chrome(schedule, tmp_path / "out.json", trace)
    again = load(tmp_path / "out.json")
    counts = [np.bincount(part.events.kind, minlength=18)[[0, 1, 4, 6]].tolist() for part in (*trace, *again)]
    assert counts[0] == counts[1] == [6, 6, 2, 6]
    assert replay(build(again)).makespan_ns == schedule.makespan_ns


def test_a_timeline_is_not_taken_for_a_profile(tmp_path: Path):
    assert chrome.recognise(source(b'\n{ "makespan" : {"format": "x"}, ' + text(profile(two_steps()))[1:])) == 2
