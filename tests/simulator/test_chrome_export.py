"""Exported schedules read back identically, and are drawn so that a viewer shows each thing once and in its place."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_tables import Row, trace_of
from hypothesis import given
from hypothesis import strategies as st
from schedules import graphs, sweep

from makespan.errors import MakespanError, TraceError
from makespan.graph import Graph, StreamKind
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.analysis.steps import steps
from makespan.simulator.build import build
from makespan.simulator.chrome.export import write_chrome, write_measured_chrome
from makespan.simulator.chrome.reload import read_schedule
from makespan.simulator.chrome.tracks import lay_out
from makespan.simulator.load import load
from makespan.trace import EventKind, Trace

CPU, RUNTIME, KERNEL, PYTHON, STEP = (
    EventKind.CPU_OP, EventKind.RUNTIME, EventKind.KERNEL, EventKind.PYTHON, EventKind.STEP,
)  # fmt: skip


def ns(event: dict[str, Any]) -> tuple[int, int]:
    """Exact begin and end of a slice."""
    return int(event["ts"] * 1000), int((event["ts"] + event["dur"]) * 1000)


def read_events(path: Path) -> list[dict[str, Any]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(content, parse_float=Decimal)["traceEvents"]


def slices(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Slices of that name on the streams, not on the critical path."""
    return [event for event in slices(events) if event["name"] == name and "critical_op" not in event["args"]]


def threads(events: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    """(process, thread) -> "process/thread" by their names."""
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    return {
        (e["pid"], e["tid"]): f"{process[e['pid']]}/{e['args']['name']}" for e in events if e["name"] == "thread_name"
    }


def assert_nothing_overlaps_without_enclosing(events: list[dict[str, Any]]) -> None:
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in slices(events):
        tracks[event["pid"], event["tid"]].append(ns(event))
    assert tracks.keys() <= threads(events).keys()
    for spans in tracks.values():
        open_until: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def training_rows(rank: int = 0) -> list[Row]:
    """Two steps with frames that straddle them, nested ops, launches, overlapping kernels and a synchronisation."""
    rows = [Row(PYTHON, "train.py(1): loop", "main", 5, 480)]
    for number in range(2):
        at, call = 240.0 * number, 100 * (number + 1)
        rows += [
            Row(STEP, f"ProfilerStep#{number}", "main", at, 240),
            Row(CPU, "aten::linear", "main", at + 10, 60.5),
            Row(CPU, "aten::addmm", "main", at + 10, 50.001),
            Row(RUNTIME, "cudaLaunchKernel", "main", at + 20, 10, call, {"bytes": 64}),
            Row(RUNTIME, "cudaLaunchKernel", "main", at + 40, 10, call + 1),
            Row(KERNEL, "gemm", "s7", at + 30, 70 + rank, call),
            Row(KERNEL, "add", "s7", at + 90, 40, call + 1),
            Row(RUNTIME, "cudaDeviceSynchronize", "main", at + 80, 60, call + 2),
            Row(CPU, "aten::backward", "autograd", at + 100, 30),
        ]
    return rows


@pytest.fixture(scope="module")
def training() -> tuple[Trace, Graph]:
    trace = trace_of(training_rows(), training_rows(1))
    return trace, build(trace)


@given(graphs(max_ops=16), st.sampled_from(["schedule.json", "schedule.json.gz"]), st.integers(0, 20))
def test_any_schedule_reads_back_identically(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, name: str, arrows: int
) -> None:
    schedule = sweep(graph)
    path = tmp_path_factory.getbasetemp() / name
    write_chrome(schedule, path, arrows=arrows)
    told = read_schedule(path)
    assert told.order == "recorded"
    assert np.array_equal(told.start_ns, schedule.start_ns)
    assert np.array_equal(told.end_ns, schedule.end_ns)
    events = read_events(path)
    assert_nothing_overlaps_without_enclosing(events)
    assert sum("op" in event.get("args", ()) for event in events) == len(graph)
    on_path = [ns(event) for event in slices(events) if "critical_op" in event["args"]]
    assert sum(end - begin for begin, end in on_path) == schedule.makespan_ns
    assert all(after[0] == before[1] for before, after in pairwise(on_path))


def test_a_trace_and_its_replay_read_back_identically(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    schedule = sweep(graph)
    for name, given_trace in (("whole.json", trace), ("segments.json", None)):
        write_chrome(schedule, tmp_path / name, given_trace)
        told = read_schedule(tmp_path / name)
        assert np.array_equal(told.start_ns, schedule.start_ns)
        assert np.array_equal(told.end_ns, schedule.end_ns)
        assert_nothing_overlaps_without_enclosing(read_events(tmp_path / name))
    write_measured_chrome(graph, tmp_path / "measured.json.gz", trace)
    told = read_schedule(tmp_path / "measured.json.gz")
    assert told.order == "measured"
    assert np.array_equal(told.start_ns, graph.attrs["measured_start_ns"])
    assert np.array_equal(told.end_ns - told.start_ns, graph.duration_ns)


def test_each_host_event_is_one_slice_around_those_inside_it(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    write_chrome(sweep(graph), tmp_path / "out.json", trace)
    events = read_events(tmp_path / "out.json")
    place = threads(events)
    told = [
        (event["name"], *ns(event))
        for event in slices(events)
        if place[event["pid"], event["tid"]] == "rank 0/main" and "op" not in event["args"]
    ]
    recorded = trace.ranks[0].events
    main = [lane.thread == "main" for lane in recorded.lanes]
    expected = [
        (recorded.name_of(row), int(recorded.start_ns[row]), int(recorded.end_ns[row]))
        for row in range(len(recorded))
        if main[recorded.lane[row]] and recorded.kind[row] != STEP
    ]
    # A replay of unchanged durations puts every event where it was recorded.
    assert sorted(told) == sorted(expected)
    addmm = named(events, "aten::addmm")[0]["args"]
    assert (addmm["kind"], addmm["step"], len(addmm["ops"])) == ("cpu_op", "ProfilerStep#0", 9)
    assert named(events, "cudaLaunchKernel")[0]["args"]["size_bytes"] == 64


def test_an_exported_replay_loads_as_a_trace_of_the_same_times(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    slower = sweep(graph, graph.duration_ns * np.where(graph.on_streams(StreamKind.DEVICE), 3, 1))
    write_chrome(slower, tmp_path / "out.json.gz", trace)
    again = load(tmp_path / "out.json.gz")
    assert [part.rank for part in again] == [0, 1]
    drawn = read_events(tmp_path / "out.json.gz")
    for part in again:
        events = part.events
        works = np.isin(events.kind, [CPU, RUNTIME, KERNEL, PYTHON])
        loaded = [
            (events.name_of(row), int(events.start_ns[row]), int(events.end_ns[row])) for row in np.flatnonzero(works)
        ]
        kinds = ("cpu_op", "runtime", "compute", "python")
        written = [
            (event["name"], *ns(event))
            for event in slices(drawn)
            if event["pid"] == part.rank + 1 and event["args"].get("kind") in kinds
        ]
        assert sorted(loaded) == sorted(written)
        assert sum(name == "gemm" for name, _, _ in loaded) == 2
    # Steps are drawn on a thread of their own, and are still about the main one.
    rebuilt = sweep(build(again))
    assert rebuilt.makespan_ns == slower.makespan_ns
    assert steps(rebuilt)["replayed_ms"].tolist() == steps(slower)["replayed_ms"].tolist()


def test_events_keep_their_shape_when_the_replay_is_another(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    slower = sweep(graph, graph.duration_ns * np.where(graph.on_streams(StreamKind.DEVICE), 3, 1))
    write_chrome(slower, tmp_path / "out.json", trace)
    events = read_events(tmp_path / "out.json")
    assert_nothing_overlaps_without_enclosing(events)
    waits = named(events, "cudaDeviceSynchronize")
    gemms = named(events, "gemm")
    assert all(ns(wait)[1] - ns(wait)[0] > 130_000 for wait in waits)
    assert {ns(gemm)[1] - ns(gemm)[0] for gemm in gemms} == {210_000, 213_000}


def test_processes_threads_steps_and_categories(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    write_chrome(sweep(graph), tmp_path / "out.json", trace)
    events = read_events(tmp_path / "out.json")
    names = set(threads(events).values())
    assert {"rank 0/main", "rank 0/stream 7", "rank 1/steps", "critical path/critical path"} <= names
    assert any("overlap" in name for name in names)
    steps = [event for event in slices(events) if threads(events)[event["pid"], event["tid"]] == "rank 1/steps"]
    assert [(event["name"], *ns(event)) for event in steps] == [
        ("ProfilerStep#0", 0, 240_000),
        ("ProfilerStep#1", 240_000, 480_000),
    ]
    assert steps[0]["args"] == {"step": "ProfilerStep#0", "measured_ns": 240_000}
    gemm = named(events, "gemm")[0]
    assert (gemm["cat"], gemm["args"]["device"], gemm["args"]["stream"]) == ("kernel", 0, 7)
    launches = {event["args"]["correlation"] for event in named(events, "cudaLaunchKernel")}
    assert {event["args"]["correlation"] for event in [*named(events, "gemm"), *named(events, "add")]} == launches
    assert named(events, "aten::addmm")[0]["cat"] == "cpu_op"
    assert named(events, "train.py(1): loop")[0]["cat"] == "python_function"
    head = json.loads((tmp_path / "out.json").read_text())["makespan"]
    assert (head["order"], head["ops"], head["arrows_left_out"]) == ("recorded", len(graph), 0)


def test_arrows_join_the_slices_of_their_ops(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    write_chrome(sweep(graph), tmp_path / "out.json", trace)
    events = read_events(tmp_path / "out.json")
    spans = defaultdict(list)
    for event in slices(events):
        spans[event["pid"], event["tid"]].append(event)

    def around(arrow: dict[str, Any]) -> str:
        at = int(arrow["ts"] * 1000)
        open_there = [event for event in spans[arrow["pid"], arrow["tid"]] if ns(event)[0] <= at < ns(event)[1]]
        return min(open_there, key=lambda event: event["dur"])["name"]

    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    joined = [(starts[number]["cat"], around(starts[number]), around(ends[number])) for number in starts]
    assert joined.count(("ac2g", "cudaLaunchKernel", "gemm")) == 4
    assert joined.count(("ac2g", "cudaLaunchKernel", "add")) == 4
    assert joined.count(("sync", "add", "cudaDeviceSynchronize")) == 4


def test_arrows_beyond_the_limit_are_counted_and_binding_ones_kept(
    tmp_path: Path, training: tuple[Trace, Graph]
) -> None:
    _, graph = training
    schedule = sweep(graph)
    target = graph.edge_targets()
    across = graph.stream[graph.pred] != graph.stream[target]
    across &= graph.name[graph.pred] != graph.names.index("trace start")
    binding = np.zeros(graph.edge_count, np.bool_)
    binding[schedule.bound_edge[schedule.bound_edge >= 0]] = True
    limit = int(np.count_nonzero(across & binding))
    assert 0 < limit < np.count_nonzero(across)
    write_chrome(schedule, tmp_path / "out.json", arrows=limit)
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["makespan"]["arrows_left_out"] == np.count_nonzero(across & ~binding)
    drawn = [event for event in content["traceEvents"] if event["ph"] == "f"]
    assert len(drawn) == limit
    arrivals = sorted(round(event["ts"] * 1000) for event in drawn)
    assert arrivals == sorted(schedule.start_ns[target[across & binding]].tolist())


def test_equal_schedules_are_equal_files(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    trace, graph = training
    for name in ("first.json.gz", "second.json.gz"):
        write_chrome(sweep(graph), tmp_path / name, trace)
    assert (tmp_path / "first.json.gz").read_bytes() == (tmp_path / "second.json.gz").read_bytes()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9)), max_size=30))
def test_tracks_are_as_few_as_ops_that_run_at_once(ops: list[tuple[int, int, int]]) -> None:
    stream, start, length = (np.array(column, np.int64) for column in (zip(*ops, strict=True) if ops else ([], [], [])))
    tracks = lay_out(stream.astype(np.int32), start, start + length)
    for number in set(stream.tolist()):
        mine = stream == number
        at_once = max(
            (np.count_nonzero(mine & (start <= moment) & (start + length > moment)) for moment in range(30)), default=0
        )
        assert np.count_nonzero(tracks.stream == number) == max(at_once, 1)
        for track in np.flatnonzero(tracks.stream == number):
            spans = sorted(
                (int(start[op]), int(start[op] + length[op])) for op in np.flatnonzero(tracks.of_op == track)
            )
            assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_names_from_strangers_stay_text(tmp_path: Path) -> None:
    name = 'quote " backslash \\ newline \n control \x01 snowman ☃'
    graph = build(trace_of([Row(CPU, name, "main", 0, 5)]))
    write_chrome(sweep(graph), tmp_path / "out.json")
    assert named(read_events(tmp_path / "out.json"), name)


def test_what_cannot_be_written_or_read_is_told_in_one_sentence(tmp_path: Path, training: tuple[Trace, Graph]) -> None:
    _, graph = training
    with pytest.raises(MakespanError, match="can't be written"):
        write_chrome(sweep(graph), tmp_path / "no folder" / "out.json")
    with pytest.raises(MakespanError, match="measured time"):
        write_measured_chrome(graph.replace(attrs={}), tmp_path / "out.json")
    good = tmp_path / "good.json"
    write_chrome(sweep(graph), good)
    text = good.read_text()
    whole = critical_path(sweep(graph)).length_ns
    broken = {
        "[]": "not a schedule",
        "": "not a schedule",
        text.replace("makespan-schedule", "other"): "expected 'makespan-schedule'",
        text.replace('{"op":3,', '{"op":4,'): "each of",
        text.replace('"ts":0.000', '"ts":-1.5', 3): "lies outside of time",
        text.replace('"ts":0.000', '"ts":1e400', 3): "lies outside of time",
        text.replace(f'"makespan_ns":{whole}', '"makespan_ns":"x"'): "not a schedule",
    }
    for content, told in broken.items():
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(TraceError, match=told):
            read_schedule(tmp_path / "bad.json")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(text.encode())[:-200])
    with pytest.raises(TraceError, match="can't be read"):
        read_schedule(tmp_path / "cut.json.gz")
