"""What-ifs: scaled, removed and moved ops give the schedule that a changed graph has by definition."""

from __future__ import annotations

import numpy as np
import pytest
from event_tables import Row, trace_of
from hypothesis import given
from hypothesis import strategies as st
from schedules import graphs, sweep

from makespan.errors import SelectorError
from makespan.graph import EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Step, Stream, StreamKind, assemble
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.analysis.selectors import select
from makespan.simulator.analysis.slack import slack_ns
from makespan.simulator.analysis.whatif import Move, Remove, Scale, sensitivity, what_if
from makespan.simulator.build import build
from makespan.trace import EventKind


@given(graphs(shared=False), st.integers(0, 5))
def test_scaling_everything_scales_the_makespan(graph: Graph, factor: int) -> None:
    found = what_if(graph, [Scale("all", factor)])
    assert found.changed.makespan_ns == factor * found.baseline.makespan_ns
    assert np.array_equal(found.changed.start_ns, factor * found.baseline.start_ns)


SELECTORS = ["cpu", "gpu", "comm", "name:a", "rank:0,comm"]


@given(graphs(shared=False), st.sampled_from(SELECTORS), st.sampled_from([0, 0.5, 1, 3]))
def test_scaling_some_ops_is_a_replay_with_other_durations(graph: Graph, selector: str, factor: float) -> None:
    try:
        chosen = select(graph, selector)
    except SelectorError:
        return
    found = what_if(graph, [Scale(selector, factor)])
    durations = np.where(chosen, np.rint(graph.duration_ns * factor), graph.duration_ns).astype(np.int64)
    # A lag from the start of device work to that of other device work is part of the former's run.
    within_run = (graph.relation == Relation.START_START) & np.isin(graph.edge_kind, [EdgeKind.STREAM, EdgeKind.ROOM])
    lags = np.where(within_run & chosen[graph.pred], np.rint(graph.lag_ns * factor), graph.lag_ns).astype(np.int64)
    assert np.array_equal(found.changed.end_ns, sweep(graph, durations, lags).end_ns)
    assert np.array_equal(found.baseline.end_ns, sweep(graph).end_ns)
    if factor == 1:
        assert np.array_equal(found.changed.start_ns, found.baseline.start_ns)


@given(graphs(shared=False), st.data())
def test_removing_an_op_with_slack_changes_nothing(graph: Graph, data: st.DataObject) -> None:
    names = tuple(f"op {number}" for number in range(len(graph)))
    graph = graph.replace(names=names, name=np.arange(len(graph), dtype=np.int32))
    schedule = sweep(graph)
    free = np.flatnonzero(slack_ns(schedule) > 0)
    if not len(free):
        return
    op = int(data.draw(st.sampled_from(free.tolist())))
    found = what_if(graph, [Remove(f"name:^op {op}$")])
    assert found.changed.makespan_ns == schedule.makespan_ns


def two_streams() -> Graph:
    """Copy and kernels share stream 7: kernel a, copy, kernel b (2 ns after the copy), each 10 ns."""
    streams = [Stream(0, "main", StreamKind.HOST), Stream(0, "stream 7", StreamKind.DEVICE, 0)]
    edges = Edges.concatenate(
        [
            Edges.of([0, 0, 0], [1, 2, 3], [1, 1, 1], kind=EdgeKind.LAUNCH),
            Edges.of([1, 2], [2, 3], [2, 2], kind=EdgeKind.STREAM),
        ]
    )
    return assemble(
        kind=[OpKind.RUNTIME, OpKind.COMPUTE, OpKind.MEMCPY, OpKind.COMPUTE],
        stream=[0, 1, 1, 1], duration_ns=[1, 10, 10, 10], streams=streams, name=range(4),
        names=["launch", "a", "copy", "b"], edges=edges, step=0, step_names=["step"],
        steps=[Step("step", 0, 0, 3, 0, 36)],
    )[0]  # fmt: skip


def test_a_moved_op_no_longer_holds_its_stream_up() -> None:
    found = what_if(two_streams(), [Move("kind:memcpy", "copies")])
    assert found.baseline.makespan_ns == 36
    graph = found.changed.graph
    at = {
        graph.name_of(op): (graph.streams[graph.stream[op]].name, int(found.changed.start_ns[op]))
        for op in range(len(graph))
    }
    assert at == {"launch": ("main", 0), "a": ("stream 7", 2), "copy": ("copies", 2), "b": ("stream 7", 14)}
    assert graph.streams[graph.stream[np.flatnonzero(graph.kind == OpKind.MEMCPY)[0]]].kind == StreamKind.DEVICE
    table = found.steps()
    assert table[["name", "rank"]].values.tolist() == [["step", 0]]
    assert table[["baseline_ms", "changed_ms"]].values.tolist() == [[36e-6, 24e-6]]
    assert found.change_pct == pytest.approx(-100 / 3)


def test_an_op_moved_to_a_known_stream_waits_there() -> None:
    graph = two_streams().replace(streams=(*two_streams().streams, Stream(0, "stream 9", StreamKind.DEVICE, 0)))
    found = what_if(graph, [Move("name:^(copy|b)$", "9")])
    moved = found.changed.graph
    assert len(moved.streams) == 3
    assert found.changed.makespan_ns == 22


def test_removing_and_scaling_together() -> None:
    found = what_if(two_streams(), [Remove("kind:memcpy"), Scale("name:^b$", 0.5)])
    # b still follows the gaps around the copy, which took no time.
    assert found.changed.makespan_ns == 2 + 10 + 2 + 2 + 5
    assert len(found.changed.graph) == 3


def test_what_an_answer_rests_on_is_told() -> None:
    graph = two_streams()
    evidence = graph.evidence.copy()
    evidence[graph.edge_kind == EdgeKind.STREAM] = [Evidence.INFERRED, Evidence.RESIDUAL]
    found = what_if(graph.replace(evidence=evidence), [Scale("gpu", 2)])
    assert found.rests_on().values.tolist() == [
        ["inferred", "stream", "a", "copy", 1, 2, 100 * 2 / 66],
        ["residual", "stream", "copy", "b", 1, 2, 100 * 2 / 66],
    ]
    assert critical_path(what_if(graph, [Scale("gpu", 2)]).changed).rests_on().empty


def test_nothing_to_change_is_refused() -> None:
    with pytest.raises(SelectorError, match="nothing to change"):
        what_if(two_streams(), [])


def synchronised(gemm_us: float, host_us: float) -> Graph:
    """A step whose host works, launches a kernel and waits for it."""
    rows = [
        Row(EventKind.STEP, "ProfilerStep#1", "main", 0, host_us + gemm_us + 20),
        Row(EventKind.CPU_OP, "aten::mm", "main", 0, host_us),
        Row(EventKind.RUNTIME, "cudaLaunchKernel", "main", host_us, 4, 11),
        Row(EventKind.KERNEL, "gemm", "s7", host_us + 5, gemm_us, 11),
        Row(EventKind.RUNTIME, "cudaDeviceSynchronize", "main", host_us + 6, gemm_us + 9, 12),
    ]
    return build(trace_of(rows))


def test_sensitivity_of_a_step_to_its_device_and_its_host() -> None:
    graph = synchronised(gemm_us=200, host_us=80)
    table = sensitivity(graph, ["gpu", "name:aten::mm"], [0.5, 1, 2])
    assert table["selector"].tolist() == ["gpu"] * 3 + ["name:aten::mm"] * 3
    assert table["factor"].tolist() == [0.5, 1, 2] * 2
    assert table["iteration_time_ms"].tolist() == pytest.approx([0.2, 0.3, 0.5, 0.26, 0.3, 0.38])
    assert table["change_pct"].tolist() == pytest.approx([-100 / 3, 0, 200 / 3, -40 / 3, 0, 80 / 3])


@given(
    graphs(shared=False), st.sampled_from([*SELECTORS, "all"]), st.lists(st.sampled_from([0, 0.5, 1, 3]), max_size=3)
)
def test_sensitivity_is_a_what_if_for_each_factor(graph: Graph, selector: str, factors: list[float]) -> None:
    try:
        select(graph, selector)
    except SelectorError:
        with pytest.raises(SelectorError):
            sensitivity(graph, [selector], factors)
        return
    table = sensitivity(graph, [selector], factors)
    found = [what_if(graph, [Scale(selector, factor)]) for factor in factors]
    assert table["iteration_time_ms"].tolist() == [answer.iteration_time_ms for answer in found]
    assert table["change_pct"].tolist() == pytest.approx([answer.change_pct for answer in found], nan_ok=True)
