"""The critical path fills the makespan, and slack is what may be added without changing it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import graphs, sweep

from makespan.errors import GraphError, MakespanError
from makespan.graph import EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Stream, StreamKind, assemble
from makespan.schedule import Schedule
from makespan.simulator.analysis.chain import PiecePart, walk_back
from makespan.simulator.analysis.critical_path import critical_path, path_to
from makespan.simulator.analysis.slack import slack_ns


def chain_of_four() -> Graph:
    """A host op launches a kernel 2 ns after its start; a copy may end 3 ns after the kernel; a host op awaits it."""
    streams = [
        Stream(0, "main", StreamKind.HOST),
        Stream(0, "stream 7", StreamKind.DEVICE, 0),
        Stream(1, "main", StreamKind.HOST),
    ]
    edges = Edges.concatenate(
        [
            Edges.of(0, 1, 2, Relation.START_START, EdgeKind.LAUNCH),
            Edges.of(1, 2, 3, Relation.FINISH_FINISH, EdgeKind.STREAM, Evidence.RESIDUAL),
            Edges.of(2, 3, 1, Relation.FINISH_START, EdgeKind.SYNC, Evidence.INFERRED),
        ]
    )
    return assemble(
        kind=[OpKind.RUNTIME, OpKind.COMPUTE, OpKind.MEMCPY, OpKind.WAIT],
        stream=[0, 1, 1, 2],
        duration_ns=[5, 10, 1, 4],
        streams=streams,
        name=[0, 1, 2, 3],
        names=["launch", "kernel", "copy", "wait"],
        edges=edges,
    )[0]  # fmt: skip


def test_pieces_of_a_chain_written_by_hand() -> None:
    path = critical_path(sweep(chain_of_four()))
    told = path.to_frame()[["from_ns", "to_ns", "part", "name", "edge_kind", "evidence"]]
    assert told.astype(object).values.tolist() == [
        [0, 2, "lag", "kernel", "launch", "measured"],
        [2, 12, "duration", "kernel", "", ""],
        [12, 15, "lag", "copy", "stream", "residual"],
        [15, 16, "lag", "wait", "sync", "inferred"],
        [16, 20, "duration", "wait", "", ""],
    ]
    assert path.length_ns == 20
    assert path.by_kind().values.tolist() == [
        ["duration", "compute", 1, 10, 50.0],
        ["duration", "wait", 1, 4, 20.0],
        ["lag", "stream", 1, 3, 15.0],
        ["lag", "launch", 1, 2, 10.0],
        ["lag", "sync", 1, 1, 5.0],
    ]
    assert path.by_evidence()[["evidence", "edge_kind", "time_ns"]].values.tolist() == [
        ["residual", "stream", 3],
        ["measured", "launch", 2],
        ["inferred", "sync", 1],
    ]
    assert path.by_name()[["name", "kind", "time_ns"]].values.tolist() == [
        ["kernel", "compute", 10],
        ["wait", "wait", 4],
    ]
    assert dict(path.by_rank()[["rank", "time_ns"]].values.tolist()) == {0: 15, 1: 5}
    assert path.ops().tolist() == [1, 3]
    assert slack_ns(path.schedule).tolist() == [15, 0, 2, 0]


@given(graphs())
def test_pieces_fill_the_makespan_exactly(graph: Graph) -> None:
    schedule = sweep(graph)
    path = critical_path(schedule)
    pieces = path.pieces
    assert path.length_ns == schedule.makespan_ns
    if schedule.makespan_ns:
        assert pieces.from_ns[0] == 0
        assert pieces.to_ns[-1] == schedule.makespan_ns
    assert np.array_equal(pieces.from_ns[1:], pieces.to_ns[:-1])
    for table in (path.by_kind(), path.by_rank()):
        assert table["time_ns"].sum() == schedule.makespan_ns
    lags = pieces.length_ns[pieces.part == PiecePart.LAG].sum()
    assert path.by_evidence()["time_ns"].sum() == lags
    assert path.by_name()["time_ns"].sum() == schedule.makespan_ns - lags
    assert path.to_frame()["time_ns"].sum() == schedule.makespan_ns
    # Each piece is as long as what it stands for.
    durations = pieces.part == PiecePart.DURATION
    assert np.array_equal(pieces.length_ns[durations], graph.duration_ns[pieces.op[durations]])
    assert np.array_equal(pieces.length_ns[~durations], graph.lag_ns[pieces.edge[~durations]])


@given(graphs(), st.data())
def test_chains_are_clipped_to_where_they_are_asked_to_end(graph: Graph, data: st.DataObject) -> None:
    schedule = sweep(graph)
    ops = data.draw(st.lists(st.integers(0, len(graph) - 1), max_size=5))
    at_end = np.array([data.draw(st.booleans()) for _ in ops], np.bool_)
    until = np.array([data.draw(st.integers(0, 30)) for _ in ops], np.int64)
    pieces = walk_back(schedule, ops, at_end, until)
    for number, op in enumerate(ops):
        of_chain = slice(pieces.pointer[number], pieces.pointer[number + 1])
        instant = int((schedule.end_ns if at_end[number] else schedule.start_ns)[op])
        assert pieces.length_ns[of_chain].sum() == max(instant - until[number], 0)
        assert np.array_equal(pieces.from_ns[of_chain][1:], pieces.to_ns[of_chain][:-1])
        assert np.all(pieces.from_ns[of_chain] >= until[number])
        assert np.all(pieces.chain()[of_chain] == number)


@given(graphs())
def test_slack_is_exactly_what_may_be_added(graph: Graph) -> None:
    schedule = sweep(graph)
    slack = slack_ns(schedule)
    assert np.all(slack >= 0)
    assert np.all(slack[critical_path(schedule).ops()] == 0)
    for op in range(len(graph)):
        longer = graph.duration_ns.copy()
        longer[op] += slack[op]
        assert sweep(graph, longer).makespan_ns == schedule.makespan_ns
        longer[op] += 1
        assert sweep(graph, longer).makespan_ns == schedule.makespan_ns + 1
        if slack[op] > 0:
            without = graph.duration_ns.copy()
            without[op] = 0
            assert sweep(graph, without).makespan_ns == schedule.makespan_ns


@given(graphs(), st.data())
def test_a_path_to_any_op_begins_where_it_is_asked_to(graph: Graph, data: st.DataObject) -> None:
    schedule = sweep(graph)
    op = data.draw(st.integers(0, len(graph) - 1))
    begin = data.draw(st.integers(0, int(schedule.end_ns[op])))
    assert path_to(schedule, op, begin).length_ns == schedule.end_ns[op] - begin


def test_an_empty_schedule_has_an_empty_path() -> None:
    nothing = np.empty(0, np.int64)
    graph, _ = assemble(
        kind=nothing,
        stream=nothing,
        duration_ns=nothing,
        streams=[],
        name=nothing,
        names=[],
        edges=Edges.concatenate([]),
    )
    path = critical_path(sweep(graph))
    assert path.length_ns == 0
    assert path.by_kind().empty
    assert len(slack_ns(path.schedule)) == 0


def test_a_schedule_that_contradicts_itself_is_refused() -> None:
    good = sweep(chain_of_four())
    unbound = good.bound_edge.copy()
    unbound[1] = -2
    start = good.start_ns.copy()
    start[0] = 11
    for broken in (
        Schedule(good.graph, good.start_ns, good.end_ns, good.bound_by, unbound, "recorded", good.end_bound_edge),
        Schedule(good.graph, start, good.end_ns, good.bound_by, good.bound_edge, "recorded", good.end_bound_edge),
    ):
        with pytest.raises(GraphError, match=r"contradicts itself: op 1 .'kernel'"):
            critical_path(broken)


def test_slack_is_refused_for_orders_in_which_it_has_no_meaning() -> None:
    good = sweep(chain_of_four())
    other = Schedule(
        good.graph, good.start_ns, good.end_ns, good.bound_by, good.bound_edge, "ready", good.end_bound_edge
    )
    with pytest.raises(MakespanError, match="replay it with order recorded"):
        slack_ns(other)
