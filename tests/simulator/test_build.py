"""From small traces written by hand to the ops and edges that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from event_tables import Row, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from makespan.errors import TraceError
from makespan.graph import EdgeKind, Evidence, Graph, OpKind, Relation, StreamKind
from makespan.simulator.build import build
from makespan.trace import EventKind

CPU, RUNTIME, KERNEL, STEP = EventKind.CPU_OP, EventKind.RUNTIME, EventKind.KERNEL, EventKind.STEP


def sweep(graph: Graph, factor: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Recorded replay written straight from its definition."""
    duration = graph.duration_ns if factor is None else np.rint(graph.duration_ns * factor).astype(np.int64)
    start, end = np.zeros(len(graph), np.int64), np.zeros(len(graph), np.int64)
    free = np.zeros(len(graph.streams), np.int64)
    for op in range(len(graph)):
        start[op] = free[graph.stream[op]]
        for edge in range(graph.pred_ptr[op], graph.pred_ptr[op + 1]):
            from_start = graph.relation[edge] & 1
            instant = (start if from_start else end)[graph.pred[edge]]
            start[op] = max(start[op], instant + graph.lag_ns[edge])
        end[op] = start[op] + duration[op]
        free[graph.stream[op]] = end[op]
    return start, end


def built(*ranks: Sequence[Row]) -> Graph:
    graph = build(trace_of(*ranks))
    graph.verify()
    return graph


def ops(graph: Graph, stream: str) -> list[tuple[str, str, float, float]]:
    """(kind, name, start, duration) of a stream's ops in microseconds."""
    number = next(n for n, item in enumerate(graph.streams) if item.name == stream)
    chosen = np.flatnonzero(graph.stream == number)
    start = graph.attrs["measured_start_ns"]
    return [
        (OpKind(graph.kind[op]).name, graph.name_of(op), start[op] / 1000, graph.duration_ns[op] / 1000)
        for op in chosen
    ]


def edges(graph: Graph, kind: EdgeKind) -> list[tuple[str, str, str, float, str]]:
    """(from, to, relation, lag in microseconds, evidence) of all edges of a kind."""
    chosen = np.flatnonzero(graph.edge_kind == kind)
    target = graph.edge_targets()
    return [
        (
            graph.name_of(graph.pred[edge]),
            graph.name_of(target[edge]),
            Relation(graph.relation[edge]).name,
            graph.lag_ns[edge] / 1000,
            Evidence(graph.evidence[edge]).name,
        )
        for edge in chosen
    ]


def test_nested_events_become_self_times_and_think_time() -> None:
    graph = built(
        [Row(CPU, "outer", "main", 10, 40), Row(CPU, "inner", "main", 20, 5), Row(CPU, "next", "main", 60, 2)]
    )
    assert ops(graph, "main") == [
        ("HOST", "outer", 0, 10),
        ("HOST", "inner", 10, 5),
        ("HOST", "outer", 15, 25),
        ("THINK", "think time", 40, 10),
        ("HOST", "next", 50, 2),
    ]
    assert [graph.names[code] for code in graph.attrs["outer"][1:4]] == ["outer"] * 3
    assert graph.steps[0].name == "whole trace"
    assert graph.steps[0].measured_ns == 52_000


def test_an_event_that_outlives_its_parent_is_cut_and_counted() -> None:
    graph = built([Row(CPU, "parent", "main", 0, 10), Row(CPU, "child", "main", 5, 10)])
    assert ops(graph, "main") == [("HOST", "parent", 0, 5), ("HOST", "child", 5, 5)]
    assert graph.notes["host events cut to the end of the event around them"] == 1


def test_an_event_of_no_length_stays_visible() -> None:
    graph = built([Row(CPU, "parent", "main", 0, 10), Row(CPU, "point", "main", 5, 0)])
    assert ops(graph, "main") == [("HOST", "parent", 0, 5), ("HOST", "point", 5, 0), ("HOST", "parent", 5, 5)]


def test_equal_intervals_on_a_thread_nest_without_a_cycle() -> None:
    graph = built([Row(CPU, "first", "main", 0, 10), Row(CPU, "second", "main", 0, 10)])
    assert ops(graph, "main") == [("HOST", "second", 0, 10)]
    assert graph.names[graph.attrs["outer"][1]] == "first"


def test_steps_cut_segments_and_need_not_nest_with_frames() -> None:
    graph = built(
        [
            Row(STEP, "ProfilerStep#1", "main", 0, 50),
            Row(STEP, "ProfilerStep#2", "main", 50, 50),
            Row(EventKind.PYTHON, "train.py(1): loop", "main", 10, 85),
            Row(CPU, "aten::mm", "main", 20, 5),
            Row(CPU, "aten::mm", "main", 70, 5),
        ]
    )
    start, end = sweep(graph)
    assert [(step.name, end[step.end_op] - start[step.begin_op]) for step in graph.steps] == [
        ("ProfilerStep#1", 50_000),
        ("ProfilerStep#2", 50_000),
    ]
    frames = [(a, d) for kind, _, a, d in ops(graph, "main") if kind == "PYTHON"]
    assert frames == [(10, 10), (25, 25), (50, 20), (75, 20)]
    assert set(graph.step[1:]) == {0, 1}


def launch(name: str, at: float, correlation: int, lane: str = "main", takes: float = 4) -> Row:
    return Row(RUNTIME, name, lane, at, takes, correlation)


def kernel(name: str, at: float, takes: float, correlation: int, stream: str = "s7") -> Row:
    return Row(KERNEL, name, stream, at, takes, correlation)


def test_a_launch_is_what_shares_a_correlation_whatever_its_name() -> None:
    graph = built([launch("brandNewLaunchExV9", 0, 7), kernel("k", 9, 5, 7)])
    assert edges(graph, EdgeKind.LAUNCH) == [("brandNewLaunchExV9", "k", "START_START", 9, "MEASURED")]


def test_correlation_zero_and_minus_one_join_nothing() -> None:
    graph = built([launch("launch", 0, -1), kernel("k", 9, 5, -1), launch("launch", 20, 0), kernel("k2", 29, 5, 0)])
    assert edges(graph, EdgeKind.LAUNCH) == []
    assert graph.notes["device work without a recorded launch"] == 2


def test_stream_order_launch_latency_and_residual() -> None:
    rows = [launch("go", 0, 1), kernel("a", 5, 100, 1)]
    rows += [launch("go", 10 * n, n + 1) for n in range(1, 5)]
    rows += [kernel("b", 106, 10, 2), kernel("c", 117, 10, 3), kernel("d", 128, 10, 4), kernel("late", 200, 10, 5)]
    graph = built(rows)
    stream = edges(graph, EdgeKind.STREAM)
    assert ("a", "b", "FINISH_START", 1, "MEASURED") in stream
    assert ("d", "late", "FINISH_START", 1, "MEASURED") in stream
    assert ("d", "late", "FINISH_START", 62, "RESIDUAL") in stream
    start, _ = sweep(graph)
    np.testing.assert_array_equal(start, graph.attrs["measured_start_ns"])


def test_kernel_without_anything_before_hangs_on_the_origin() -> None:
    graph = built([Row(CPU, "op", "main", 0, 30), kernel("orphan", 12, 5, -1)])
    assert ("trace start", "orphan", "FINISH_START", 12, "RESIDUAL") in edges(graph, EdgeKind.ORIGIN)


def test_a_synchronising_call_waits_for_the_last_work_launched_before_it() -> None:
    rows = [
        launch("go", 0, 1),
        kernel("k", 10, 100, 1),
        Row(RUNTIME, "cudaStreamSynchronize", "main", 20, 95, 2),
        Row(CPU, "after", "main", 120, 10),
    ]
    graph = built(rows)
    assert edges(graph, EdgeKind.SYNC) == [("k", "cudaStreamSynchronize", "FINISH_START", 0, "INFERRED")]
    assert ("WAIT", "cudaStreamSynchronize", 110, 5) in ops(graph, "main")
    assert ("RUNTIME", "cudaStreamSynchronize", 20, 3) in ops(graph, "main")
    on_device = np.where(graph.on_streams(StreamKind.DEVICE), 2.0, 1.0)
    assert sweep(graph)[1].max() == 130_000
    assert sweep(graph, on_device)[1].max() == 230_000


def test_a_sync_record_names_the_stream_that_is_awaited() -> None:
    rows = [
        launch("go", 0, 1),
        launch("go", 5, 2),
        kernel("short", 10, 40, 1, "s7"),
        kernel("long", 11, 89, 2, "s8"),
        Row(RUNTIME, "cudaStreamSynchronize", "main", 20, 90, 3),
        Row(EventKind.SYNC_RECORD, "Stream Sync", "s7", 20, 90, 3, {"sync_stream": 7}),
    ]
    assert edges(built(rows), EdgeKind.SYNC)[0][0] == "short"
    assert edges(built(rows[:-1]), EdgeKind.SYNC)[0][0] == "long"


def test_work_whose_launch_was_lost_counts_as_launched_before_a_sync() -> None:
    rows = [kernel("orphan", 5, 100, -1), Row(RUNTIME, "hipDeviceSynchronize", "main", 20, 90, 3)]
    assert edges(built(rows), EdgeKind.SYNC)[0][:2] == ("orphan", "hipDeviceSynchronize")


def test_a_copy_that_returned_after_its_copy_had_ended_waited_for_it() -> None:
    rows = [
        Row(RUNTIME, "hipMemcpyWithStream", "main", 0, 60, 1),
        Row(EventKind.MEMCPY, "Memcpy DtoH", "s0", 10, 40, 1),
        Row(RUNTIME, "cudaMemcpyAsync", "main", 100, 5, 2),
        Row(EventKind.MEMCPY, "Memcpy HtoD", "s0", 110, 40, 2),
    ]
    graph = built(rows)
    assert edges(graph, EdgeKind.SYNC) == [("Memcpy DtoH", "hipMemcpyWithStream", "FINISH_START", 0, "INFERRED")]


def test_a_full_launch_queue_holds_the_host_back() -> None:
    rows: list[Row] = []
    for number in range(1, 601):
        # The device takes 40 us a kernel; launches cost 4 us until 512 are outstanding, then one a kernel.
        free_at = 40.0 * (number - 512)
        issue = 4.0 * number if number <= 560 else max(4.0 * number, free_at)
        blocked = number > 560
        at = 2240 + 40.0 * (number - 561) if blocked else issue
        rows.append(launch("go", at, number, takes=39 if blocked else 3))
        rows.append(kernel(f"k{number}", 10 + 40.0 * number, 40, number))
    graph = built(rows)
    assert graph.notes["launches blocked by a full queue"] > 30
    assert len(edges(graph, EdgeKind.QUEUE)) == graph.notes["launches blocked by a full queue"]


def test_a_thread_woken_by_another_hangs_on_its_last_op() -> None:
    rows = [
        Row(CPU, "forward", "main", 0, 100),
        Row(CPU, "backward", "autograd", 110, 200),
        Row(CPU, "optimizer", "main", 320, 50),
    ]
    graph = built(rows)
    assert edges(graph, EdgeKind.HANDOFF) == [
        ("forward", "backward", "FINISH_START", 10, "INFERRED"),
        ("backward", "optimizer", "FINISH_START", 10, "INFERRED"),
    ]
    twice = np.where([graph.name_of(op) == "backward" for op in range(len(graph))], 2.0, 1.0)
    assert sweep(graph, twice)[1].max() == 570_000


def test_a_collective_on_a_worker_thread_hangs_on_the_call_that_enqueued_it() -> None:
    rows = [
        Row(EventKind.COLLECTIVE, "gloo:all_reduce", "worker", 1, 5),  # enqueued before the recording
        Row(CPU, "backward", "main", 10, 100),
        Row(CPU, "c10d::allreduce_", "main", 20, 30),
        Row(EventKind.COLLECTIVE, "gloo:all_reduce", "worker", 40, 60),
        Row(CPU, "c10d::allreduce_", "main", 80, 10),
        Row(EventKind.COLLECTIVE, "gloo:all_reduce", "worker 2", 100, 70),
        Row(CPU, "copy back", "main", 175, 10),
    ]
    graph = built(rows)
    assert edges(graph, EdgeKind.LAUNCH) == [
        ("c10d::allreduce_", "gloo:all_reduce", "START_START", 20, "INFERRED"),
        ("c10d::allreduce_", "gloo:all_reduce", "START_START", 20, "INFERRED"),
    ]
    assert edges(graph, EdgeKind.HANDOFF)[-1] == ("gloo:all_reduce", "copy back", "FINISH_START", 5, "INFERRED")


def test_a_range_that_begins_or_ends_shows_that_its_thread_was_awake() -> None:
    rows = [
        Row(STEP, "ProfilerStep#1", "main", 0, 200),
        Row(STEP, "ProfilerStep#2", "main", 200, 100),
        Row(CPU, "optimizer", "main", 0, 50),
        Row(CPU, "elsewhere", "worker", 0, 100),
        Row(CPU, "next", "main", 220, 80),
    ]
    graph = built(rows)
    start, end = sweep(graph)
    # Woken at 100 at the latest, the main thread ended its step at 200 by itself.
    assert [end[step.end_op] - start[step.begin_op] for step in graph.steps] == [200_000, 100_000]
    assert edges(graph, EdgeKind.HANDOFF) == [("elsewhere", "think time", "FINISH_START", 100, "INFERRED")]


def test_a_whole_trace_ends_with_what_ends_last() -> None:
    overlapping = [launch("go", 0, 1), launch("go", 5, 2), kernel("long", 10, 500, 1), kernel("short", 40, 20, 2)]
    graph = built(overlapping)
    start, end = sweep(graph)
    (step,) = graph.steps
    assert end[step.end_op] - start[step.begin_op] == step.measured_ns == 510_000
    outliving = [launch("go", 0, 1, takes=200), kernel("k", 10, 5, 1)]
    graph = built(outliving)
    assert sweep(graph)[1][graph.steps[0].end_op] == 200_000


def test_an_explicit_wait_ends_with_the_collective_it_was_for() -> None:
    def rows(span_ends: float) -> list[Row]:
        return [
            Row(CPU, "c10d::allreduce_", "main", 0, 5),
            Row(EventKind.COLLECTIVE, "gloo:all_reduce", "worker", 10, span_ends - 10),
            Row(EventKind.WAIT, "wait for gradients", "main", 20, 80),
            Row(CPU, "optimizer", "main", 110, 10),
        ]

    before, after = built(rows(95)), built(rows(103))
    assert edges(before, EdgeKind.HANDOFF)[-1] == (
        "gloo:all_reduce",
        "wait for gradients",
        "FINISH_START",
        5,
        "INFERRED",
    )
    assert edges(after, EdgeKind.HANDOFF)[-1] == (
        "gloo:all_reduce",
        "wait for gradients",
        "START_START",
        90,
        "INFERRED",
    )
    for graph in (before, after):
        np.testing.assert_array_equal(sweep(graph)[0], graph.attrs["measured_start_ns"])
    # A transfer that takes a fifth of its time ends 68 us earlier, and so does everything behind the wait.
    shorter = np.where(before.kind == OpKind.COLLECTIVE, 0.2, 1.0)
    assert sweep(before, shorter)[1].max() == 120_000 - 68_000


def test_devices_of_one_process_are_told_apart() -> None:
    def on(device: int, stream: int) -> str:
        return f"s{device}.{stream}"

    rows = [
        launch("go", 0, 1),
        launch("go", 5, 2),
        kernel("awaited", 12, 40, 2, on(1, 7)),
        kernel("later", 10, 80, 1, on(0, 7)),
        Row(RUNTIME, "cudaStreamSynchronize", "main", 20, 75, 3),
        Row(EventKind.SYNC_RECORD, "Stream Sync", on(1, 7), 20, 75, 3, {"sync_stream": 7}),
    ]
    assert edges(built(rows), EdgeKind.SYNC)[0][0] == "awaited"


def test_threads_of_other_processes_wake_nobody() -> None:
    trace = trace_of([Row(CPU, "loader", "worker", 0, 100), Row(CPU, "forward", "main", 110, 20)])
    events = trace.ranks[0].events
    lanes = (replace(events.lanes[0], process="2"), events.lanes[1])
    part = replace(trace.ranks[0], events=replace(events, lanes=lanes))
    assert edges(build(replace(trace, ranks=(part,))), EdgeKind.HANDOFF) == []


def test_a_recorded_stream_wait_is_a_measured_edge() -> None:
    rows = [
        launch("go", 0, 1),
        kernel("producer", 10, 100, 1, "s7"),
        Row(RUNTIME, "cudaEventRecord", "main", 8, 1, 50),
        Row(RUNTIME, "cudaStreamWaitEvent", "main", 12, 1, 51),
        launch("go", 20, 2),
        kernel("consumer", 150, 10, 2, "s8"),
        Row(
            EventKind.SYNC_RECORD, "Stream Wait Event", "s8", 12, 0, 51,
            {"sync_stream": 8, "wait_on_stream": 7, "wait_on_correlation": 50},
        ),
    ]  # fmt: skip
    assert ("producer", "consumer", "FINISH_START", 0, "MEASURED") in edges(built(rows), EdgeKind.EVENT)


def test_a_wait_for_another_stream_is_inferred_from_an_end_just_before() -> None:
    rows = [
        launch("go", 0, 1),
        kernel("producer", 5, 100, 1, "s7"),
        launch("go", 20, 2),
        kernel("consumer", 110, 10, 2, "s8"),
    ]
    assert edges(built(rows), EdgeKind.EVENT) == [("producer", "consumer", "FINISH_START", 5, "INFERRED")]


def test_work_that_found_no_room_hangs_on_the_start_of_what_filled_the_device() -> None:
    rows = [
        launch("go", 0, 1),
        kernel("early", 5, 1, 1, "s9"),
        launch("go", 15, 2),
        kernel("filler", 20, 1000, 2, "s7"),
        launch("go", 25, 3),
        kernel("squeezed", 800, 10, 3, "s8"),
    ]
    assert edges(built(rows), EdgeKind.ROOM) == [("filler", "squeezed", "START_START", 780, "INFERRED")]


def test_overlap_on_one_stream_goes_to_a_lane_of_its_own() -> None:
    rows = [launch("go", 0, 1), launch("go", 5, 2), kernel("a", 10, 50, 1), kernel("b", 40, 50, 2)]
    graph = built(rows)
    assert ops(graph, "stream 7 (overlap 1)") == [("COMPUTE", "b", 40, 50)]
    assert ("a", "b", "START_START", 30, "INFERRED") in edges(graph, EdgeKind.STREAM)
    assert graph.notes["device work that overlaps on its stream"] == 1


def test_one_launch_fans_out_to_many_kernels() -> None:
    rows = [launch("cudaGraphLaunch", 0, 1), *(kernel(f"k{n}", 10 + 11 * n, 10, 1) for n in range(40))]
    graph = built(rows)
    assert len(edges(graph, EdgeKind.GRAPH)) == 40
    assert len(edges(graph, EdgeKind.STREAM)) == 39


def test_ranks_on_one_clock_keep_their_offsets() -> None:
    graph = built([Row(CPU, "op", "main", 100, 10)], [Row(CPU, "op", "main", 105, 10)])
    start = {int(graph.rank[op]): graph.attrs["measured_start_ns"][op] for op in range(1, len(graph))
             if graph.kind[op] == OpKind.HOST}  # fmt: skip
    assert start == {0: 0, 1: 5_000}
    assert [step.rank for step in graph.steps] == [0, 1]


def test_a_trace_without_times_is_refused() -> None:
    trace = trace_of([Row(CPU, "op", "main", 0, 0)])
    untimed = replace(trace, ranks=(replace(trace.ranks[0], timed=False),))
    with pytest.raises(TraceError, match="no event has a time"):
        build(untimed)


@st.composite
def random_rows(draw: st.DrawFn) -> list[Row]:
    """Host threads with nested events and a device that works on what they launch, one work after another."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows: list[Row] = []
    correlation = 0
    free = {"s7": 0.0, "s8": 0.0}
    at = 0.0
    for _ in range(int(rng.integers(1, 40))):
        at += float(rng.integers(0, 50))
        takes = float(rng.integers(0, 40))
        rows.append(Row(CPU, f"op{rng.integers(5)}", "main", at, takes))
        if rng.random() < 0.6 and takes > 4:
            correlation += 1
            stream = str(rng.choice(["s7", "s8"]))
            rows.append(Row(RUNTIME, "launch", "main", at + 1, 2, correlation))
            begin = max(at + 1 + float(rng.integers(1, 30)), free[stream])
            length = float(rng.integers(0, 100))
            rows.append(Row(KERNEL, f"k{rng.integers(5)}", stream, begin, length, correlation))
            free[stream] = begin + length
        at += takes
    return rows


@settings(max_examples=150, deadline=None)
@given(random_rows())
def test_replay_of_measured_durations_gives_every_measured_start(rows: list[Row]) -> None:
    graph = built(rows)
    start, _ = sweep(graph)
    np.testing.assert_array_equal(start, graph.attrs["measured_start_ns"])
    works = sum(row.kind == KERNEL for row in rows)
    assert np.count_nonzero(graph.kind == OpKind.COMPUTE) == works


def test_of_two_ops_without_length_at_one_moment_neither_woke_the_other() -> None:
    rows = [
        Row(CPU, name, lane, at, long) for lane in ("main", "other") for name, at, long in (("a", 0, 5), ("b", 99, 0))
    ]
    graph = built(rows)
    assert {(source, target) for source, target, *_ in edges(graph, EdgeKind.HANDOFF)} <= {("a", "b")}
