"""Steps: measured and replayed times, when a step's device work ends, and what defines the iteration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from event_tables import Row, trace_of
from hypothesis import given
from schedules import graphs, sweep

from makespan.graph import Edges, Graph, OpKind, Stream, StreamKind, assemble
from makespan.simulator.analysis.steps import WHOLE, iteration_time_ms, steps
from makespan.simulator.build import build
from makespan.trace import EventKind

CPU, RUNTIME, KERNEL, STEP = EventKind.CPU_OP, EventKind.RUNTIME, EventKind.KERNEL, EventKind.STEP


def one_step(kernel_us: float, host_us: float) -> list[Row]:
    """A step of `host_us` that launches a kernel at its start and doesn't wait for it."""
    return [
        Row(STEP, "ProfilerStep#1", "main", 0, host_us),
        Row(CPU, "aten::mm", "main", 0, host_us),
        Row(RUNTIME, "cudaLaunchKernel", "main", 1, 4, 11),
        Row(KERNEL, "gemm", "s7", 6, kernel_us, 11),
    ]


@pytest.mark.parametrize(("kernel_us", "host_us", "defined_by"), [(5, 200, "host"), (400, 20, "device")])
def test_the_side_that_a_step_waits_for_defines_it(kernel_us: float, host_us: float, defined_by: str) -> None:
    row = steps(sweep(build(trace_of(one_step(kernel_us, host_us))))).iloc[0]
    assert (row["name"], row["rank"], row["defined_by"]) == ("ProfilerStep#1", 0, defined_by)
    assert row["replayed_ms"] == host_us / 1000
    assert row["error_pct"] == 0
    assert row["device_end_ms"] == pytest.approx((6 + kernel_us) / 1000)
    whole = max(host_us, 6 + kernel_us) / 1000
    assert row["host_path_ms"] + row["device_path_ms"] == pytest.approx(whole)


def test_a_step_that_waits_for_its_device_halfway_is_defined_by_both() -> None:
    rows = [
        Row(STEP, "ProfilerStep#1", "main", 0, 250),
        Row(RUNTIME, "cudaLaunchKernel", "main", 0, 4, 11),
        Row(KERNEL, "gemm", "s7", 5, 120, 11),
        Row(RUNTIME, "cudaDeviceSynchronize", "main", 10, 117, 12),
        Row(CPU, "aten::add", "main", 130, 120),
    ]
    row = steps(sweep(build(trace_of(rows)))).iloc[0]
    assert row["defined_by"] == "both"
    assert row["replayed_ms"] == 0.25
    assert row["device_end_ms"] == 0.125
    assert row["device_path_ms"] == 0.125


def test_iteration_time_is_the_median_over_steps_of_the_slowest_rank() -> None:
    def rank(lengths: list[float]) -> list[Row]:
        edges = np.cumsum([0, *lengths])
        names = [f"ProfilerStep#{number}" for number in range(len(lengths))]
        marks = [Row(STEP, name, "main", at, long) for name, at, long in zip(names, edges, lengths, strict=False)]
        return [*marks, *(Row(CPU, "op", "main", at, long) for at, long in zip(edges, lengths, strict=False))]

    table = steps(sweep(build(trace_of(rank([10, 20, 90]), rank([30, 25, 10])))))
    assert iteration_time_ms(table) == 0.03
    assert iteration_time_ms(table, "measured_ms") == 0.03
    assert table["error_pct"].tolist() == [0] * 6
    assert table["device_end_ms"].isna().all()
    assert set(table["defined_by"]) == {"host"}


def test_a_graph_without_steps_is_one() -> None:
    graph, _ = assemble(
        kind=[OpKind.RUNTIME, OpKind.COMPUTE], stream=[0, 1], duration_ns=[1, 30], name=0, names=["op"],
        streams=[Stream(0, "main", StreamKind.HOST), Stream(0, "stream 7", StreamKind.DEVICE)],
        edges=Edges.of([0], [1], 4),
    )  # fmt: skip
    table = steps(sweep(graph))
    row = table.iloc[0]
    assert (row["name"], row["rank"], row["replayed_ms"], row["defined_by"]) == (WHOLE, -1, 35e-6, "device")
    assert math.isnan(row["measured_ms"])
    assert math.isnan(iteration_time_ms(table, "measured_ms"))
    assert iteration_time_ms(table) == 35e-6


def test_an_empty_graph_has_no_steps() -> None:
    nothing = np.empty(0, np.int64)
    graph, _ = assemble(
        kind=nothing, stream=nothing, duration_ns=nothing, streams=[], name=nothing, names=[],
        edges=Edges.concatenate([]),
    )  # fmt: skip
    table = steps(sweep(graph))
    assert table.empty
    assert math.isnan(iteration_time_ms(table))


@given(graphs())
def test_columns_say_what_the_schedule_says(graph: Graph) -> None:
    schedule = sweep(graph)
    table = steps(schedule)
    on_device = graph.on_streams(StreamKind.DEVICE)
    for row, step in zip(table.itertuples(), graph.steps, strict=bool(graph.steps)):
        begin, end = int(schedule.start_ns[step.begin_op]), int(schedule.end_ns[step.end_op])
        assert round(row.replayed_ms * 1e6) == end - begin
        assert round(row.measured_ms * 1e6) == step.measured_ns
        work = on_device & (graph.rank == step.rank) & (graph.step == graph.step_names.index(step.name))
        latest = end
        if np.any(work):
            latest = max(end, int(schedule.end_ns[work].max()))
            assert round(row.device_end_ms * 1e6) == schedule.end_ns[work].max() - begin
        else:
            assert math.isnan(row.device_end_ms)
        assert round((row.host_path_ms + row.device_path_ms) * 1e6) == max(latest - begin, 0)
