"""Comparison of two traces, of two schedules, and of a trace with its replay."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from event_tables import Row, trace_of
from hypothesis import given
from schedules import graphs, sweep

from makespan.graph import Graph, OpKind
from makespan.simulator.analysis.compare import compare
from makespan.simulator.build import build
from makespan.trace import EventKind

CPU, RUNTIME, KERNEL, STEP = EventKind.CPU_OP, EventKind.RUNTIME, EventKind.KERNEL, EventKind.STEP


def rows(gemm_us: float, softmax: str, first_step: int) -> list[Row]:
    """Two steps of 200 us with a nested host op, one kernel each."""
    found: list[Row] = []
    for number in range(2):
        at, correlation = 200.0 * number, 10 + number
        found += [
            Row(STEP, f"ProfilerStep#{first_step + number}", "main", at, 200),
            Row(CPU, "aten::linear", "main", at, 100),
            Row(CPU, "aten::mm", "main", at + 20, 50),
            Row(RUNTIME, "cudaLaunchKernel", "main", at + 30, 10, correlation),
            Row(CPU, softmax, "main", at + 120, 30),
            Row(KERNEL, "gemm", "s7", at + 50, gemm_us, correlation),
        ]
    return found


def as_rows(table: pd.DataFrame, columns: list[str]) -> list[list[object]]:
    return [
        [None if isinstance(value, float) and math.isnan(value) else value for value in row]
        for row in table[columns].values
    ]


def test_two_traces_by_op_kind_and_step() -> None:
    found = compare(trace_of(rows(40, "aten::softmax", 1)), trace_of(rows(60, "aten::_softmax", 5)))
    assert as_rows(found.by_op, ["name", "kind", "baseline_count", "other_count", "difference_ns", "status"])[:3] == [
        ["aten::_softmax", "host", 0, 2, 60_000, "new"],
        ["aten::softmax", "host", 2, 0, -60_000, "vanished"],
        ["gemm", "compute", 2, 2, 40_000, "both"],
    ]
    gemm = found.by_op[found.by_op["name"] == "gemm"].iloc[0]
    assert (gemm["baseline_mean_ns"], gemm["other_mean_ns"], gemm["change_pct"]) == (40_000, 60_000, 50)
    # A host op counts once though it was cut into the time before and after the ops inside, which isn't its own.
    linear = found.by_op[found.by_op["name"] == "aten::linear"].iloc[0]
    assert (linear["baseline_count"], linear["baseline_total_ns"]) == (2, 100_000)
    assert as_rows(found.by_step, ["rank", "baseline_step", "other_step", "baseline_ms", "other_ms", "change_pct"]) == [
        [0, "ProfilerStep#1", "ProfilerStep#5", 0.2, 0.2, 0],
        [0, "ProfilerStep#2", "ProfilerStep#6", 0.2, 0.2, 0],
    ]
    assert found.by_kind.iloc[0][["kind", "difference_ns"]].tolist() == ["compute", 40_000]
    assert (found.baseline_ms, found.iteration_time_ms, found.change_pct) == (0.2, 0.2, 0)


def test_a_trace_and_its_replay_differ_in_nothing() -> None:
    trace = trace_of(rows(40, "aten::softmax", 1), rows(50, "aten::softmax", 1))
    found = compare(trace, sweep(build(trace)))
    assert set(found.by_op["status"]) == {"both"}
    assert not found.by_op["difference_ns"].any()
    assert found.change_pct == 0


def test_steps_that_one_side_lacks_are_told() -> None:
    found = compare(trace_of(rows(40, "aten::softmax", 1)), trace_of(rows(40, "aten::softmax", 2)))
    assert as_rows(found.by_step, ["baseline_step", "other_step", "baseline_ms", "other_ms"]) == [
        ["ProfilerStep#1", "", 0.2, None],
        ["ProfilerStep#2", "ProfilerStep#2", 0.2, 0.2],
        ["", "ProfilerStep#3", None, 0.2],
    ]


@given(graphs(), graphs())
def test_totals_are_those_of_the_schedules(first: Graph, second: Graph) -> None:
    before, after = sweep(first), sweep(second)
    found = compare(before, after)
    for table in (found.by_op, found.by_kind):
        for side, schedule in (("baseline", before), ("other", after)):
            runs = schedule.graph.kind != OpKind.ORIGIN
            assert table[f"{side}_total_ns"].sum() == (schedule.end_ns - schedule.start_ns)[runs].sum()
            assert table[f"{side}_count"].sum() == np.count_nonzero(runs)
        status = np.where(table["baseline_count"] == 0, "new", np.where(table["other_count"] == 0, "vanished", "both"))
        assert table["status"].tolist() == status.tolist()
        assert np.all(np.diff(table["difference_ns"].abs()) <= 0)
