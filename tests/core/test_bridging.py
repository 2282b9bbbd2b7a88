"""Removed ops: what is left waits exactly as long as if the removed ops took no time."""

import numpy as np
import pytest
from core_graphs import ORDER_KINDS, STREAMS, full_graphs, replay_plainly
from hypothesis import given
from hypothesis import strategies as st

from makespan.bridging import BRIDGE_LIMIT, merge_parallel
from makespan.edit import GraphEdit
from makespan.graph import EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Stream, StreamKind, assemble
from makespan.rebuild import MARKS_NOTE


def survivors_agree(graph: Graph, chosen: np.ndarray) -> tuple[list[bool], list[tuple[int, int]]]:
    """Compare ops left after a removal with the same ops of a graph in which the removed ones take no time."""
    edit = GraphEdit(graph)
    edit.remove_ops(chosen)
    rewrite = edit.finish()
    idle = GraphEdit(graph)
    idle.set_duration(chosen, 0)
    wanted = replay_plainly(idle.finish().graph)
    got = replay_plainly(rewrite.graph)
    agree = []
    times = []
    for op in range(len(rewrite.graph)):
        (old,) = rewrite.provenance.of(op)
        agree.append((got[0][op], got[1][op]) == (wanted[0][old], wanted[1][old]))
        times.append((got[1][op], wanted[1][old]))
    return agree, times


@given(graph=full_graphs(kinds=ORDER_KINDS), data=st.data())
def test_removed_ops_are_ops_of_no_duration(graph: Graph, data: st.DataObject) -> None:
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), bool)
    agree, _ = survivors_agree(graph, chosen)
    assert all(agree)


@given(graph=full_graphs(steps=False), data=st.data())
def test_data_edges_free_others_from_the_order_of_the_stream(graph: Graph, data: st.DataObject) -> None:
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), bool)
    _, times = survivors_agree(graph, chosen)
    assert all(got <= wanted for got, wanted in times)


@given(graph=full_graphs(max_ops=40, min_ops=20, kinds=ORDER_KINDS, steps=False))
def test_all_but_the_ends_can_go(graph: Graph) -> None:
    chosen = np.arange(1, len(graph) - 1)
    agree, _ = survivors_agree(graph, chosen)
    assert all(agree)


@given(graph=full_graphs(), data=st.data())
def test_ops_that_bound_a_step_stay_as_marks(graph: Graph, data: st.DataObject) -> None:
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), bool)
    edit = GraphEdit(graph)
    edit.remove_ops(chosen)
    rewrite = edit.finish()
    ends = {op for step in graph.steps for op in (step.begin_op, step.end_op)}
    kept = {int(op) for op in rewrite.provenance.old}
    assert kept >= ends
    assert rewrite.graph.notes.get(MARKS_NOTE, 0) == len({op for op in kept if chosen[op]})
    for step, old in zip(rewrite.graph.steps, graph.steps, strict=True):
        assert list(rewrite.provenance.of(step.begin_op)) == [old.begin_op]
        assert list(rewrite.provenance.of(step.end_op)) == [old.end_op]
    for op in range(len(rewrite.graph)):
        (old,) = rewrite.provenance.of(op)
        if chosen[old]:
            assert rewrite.graph.kind[op] == OpKind.MARK
            assert rewrite.graph.duration_ns[op] == 0


def chain(relations: list[Relation], lags: list[int], kinds: list[EdgeKind], evidence: list[Evidence]) -> Graph:
    """Ops 0 → 1 → 2 ..., each on a stream of its own."""
    count = len(relations) + 1
    streams = [Stream(0, f"stream {number}", StreamKind.DEVICE) for number in range(count)]
    graph, _ = assemble(
        kind=[OpKind.COMPUTE] * count, stream=np.arange(count), duration_ns=np.full(count, 10), streams=streams,
        name=np.zeros(count, int), names=["op"],
        edges=Edges.of(np.arange(count - 1), np.arange(1, count), lags, relations, kinds, evidence),
    )  # fmt: skip
    return graph


@pytest.mark.parametrize("first", Relation)
@pytest.mark.parametrize("second", Relation)
def test_two_relations_become_one(first: Relation, second: Relation) -> None:
    meet = first in (Relation.FINISH_START, Relation.START_START) or second in (
        Relation.FINISH_START,
        Relation.FINISH_FINISH,
    )
    kinds, evidence = [EdgeKind.LAUNCH, EdgeKind.SYNC], [Evidence.INFERRED, Evidence.MEASURED]
    edit = GraphEdit(chain([first, second], [3, 4 if meet else 0], kinds, evidence))
    edit.remove_ops(1)
    left = edit.finish().graph
    if not meet:
        assert left.edge_count == 0, "what holds only the end doesn't hold what follows the start"
        return
    edges = left.edges()
    assert (list(edges.source), list(edges.target), list(edges.lag_ns)) == ([0], [1], [7])
    assert list(edges.kind) == [EdgeKind.SYNC]
    assert list(edges.evidence) == [Evidence.INFERRED]
    from_start = first in (Relation.START_START, Relation.START_FINISH)
    binds_end = second in (Relation.FINISH_FINISH, Relation.START_FINISH)
    assert list(edges.relation) == [from_start + 2 * binds_end]


def test_a_chain_of_removed_ops_adds_up() -> None:
    evidence = [Evidence.MEASURED, Evidence.RESIDUAL, Evidence.INFERRED, Evidence.MEASURED]
    graph = chain([Relation.FINISH_START] * 4, [1, 2, 3, 4], [EdgeKind.EVENT] * 4, evidence)
    edit = GraphEdit(graph)
    edit.remove_ops([1, 2, 3])
    edges = edit.finish().graph.edges()
    assert (list(edges.lag_ns), list(edges.evidence)) == ([10], [Evidence.RESIDUAL])


def test_a_lag_that_counts_from_a_removed_op_before_all_others_is_kept() -> None:
    edit = GraphEdit(chain([Relation.START_START], [25], [EdgeKind.ORIGIN], [Evidence.RESIDUAL]))
    edit.remove_ops(0)
    left = edit.finish().graph
    assert list(left.kind) == [OpKind.MARK, OpKind.COMPUTE]
    assert replay_plainly(left)[0] == [0, 25]


def test_a_wait_for_a_removed_kernel_still_waits_for_the_kernel_before() -> None:
    """Stream order is implied here; only the SYNC edge is stated."""
    graph, _ = assemble(
        kind=[OpKind.COMPUTE, OpKind.COMPUTE, OpKind.WAIT], stream=[1, 1, 0], duration_ns=[30, 20, 1],
        streams=STREAMS, name=[0, 1, 2], names=["first", "second", "wait"],
        edges=Edges.of([1], [2], kind=EdgeKind.SYNC),
    )  # fmt: skip
    edit = GraphEdit(graph)
    edit.remove_ops(1)
    assert list(edit.finish().graph.edges().kind) == [EdgeKind.SYNC]
    assert replay_plainly(edit.finish().graph)[1] == [30, 31]


def test_a_result_that_is_gone_is_not_waited_for() -> None:
    graph, _ = assemble(
        kind=[OpKind.COLLECTIVE, OpKind.COLLECTIVE, OpKind.COMPUTE], stream=[1, 1, 0], duration_ns=[30, 20, 1],
        streams=STREAMS, name=[0, 1, 2], names=["first", "second", "user"],
        edges=Edges.of([1], [2], kind=EdgeKind.DATA),
    )  # fmt: skip
    edit = GraphEdit(graph)
    edit.remove_ops(1)
    assert replay_plainly(edit.finish().graph)[1] == [30, 1]


def crossing(count: int) -> Graph:
    """`count` ops into one and out of it into `count` others, all on streams of their own."""
    streams = [Stream(0, f"stream {number}", StreamKind.DEVICE) for number in range(2 * count + 1)]
    others = np.setdiff1d(np.arange(2 * count + 1), [count])
    source = np.concatenate([others[:count], np.full(count, count)])
    target = np.concatenate([np.full(count, count), others[count:]])
    graph, _ = assemble(
        kind=[OpKind.COMPUTE] * (2 * count + 1), stream=np.arange(2 * count + 1), duration_ns=np.arange(2 * count + 1),
        streams=streams, name=np.zeros(2 * count + 1, int), names=["op"], edges=Edges.of(source, target),
    )  # fmt: skip
    return graph


@pytest.mark.parametrize(("count", "stays"), [(3, False), (9, False), (10, True), (50, True)])
def test_an_op_between_too_many_stays_as_a_mark(count: int, stays: bool) -> None:
    assert (count * count > 2 * count + BRIDGE_LIMIT) == stays
    graph = crossing(count)
    edit = GraphEdit(graph)
    edit.remove_ops(count)
    left = edit.finish().graph
    assert left.edge_count == (2 * count if stays else count * count)
    assert left.notes.get(MARKS_NOTE, 0) == stays
    assert np.count_nonzero(left.kind == OpKind.MARK) == stays


def test_a_long_stream_goes_in_linear_time_and_edges() -> None:
    """Each removed kernel has its own launch: without marks the edges would grow with the square."""
    count = 20_000
    kind = np.repeat([OpKind.RUNTIME, OpKind.COMPUTE], [count, count])
    launches = np.arange(count)
    graph, _ = assemble(
        kind=[*kind, OpKind.WAIT], stream=[*np.repeat([0, 1], count), 0], duration_ns=np.full(2 * count + 1, 7),
        streams=STREAMS, name=np.zeros(2 * count + 1, int), names=["op"],
        edges=Edges.concatenate([
            Edges.of(launches, launches + count, 3, Relation.START_START, EdgeKind.LAUNCH),
            Edges.of([2 * count - 1], [2 * count], kind=EdgeKind.SYNC),
        ]),
    )  # fmt: skip
    edit = GraphEdit(graph)
    edit.remove_ops(graph.kind == OpKind.COMPUTE)
    left = edit.finish().graph
    assert len(left) == count + 1 + left.notes[MARKS_NOTE]
    assert left.notes[MARKS_NOTE] < count / 50
    assert left.edge_count < 2 * count
    assert max(replay_plainly(left)[1]) == 7 * count + 7


def test_merging_keeps_the_longest_lag_of_edges_that_agree() -> None:
    edges = Edges.of(
        [0, 0, 0, 1], [2, 2, 2, 2], [5, 9, 1, 4], [0, 0, 1, 0], kind=[EdgeKind.SYNC] * 4, evidence=[2, 0, 1, 1]
    )
    merged = merge_parallel(edges)
    assert list(zip(merged.source, merged.relation, merged.lag_ns, merged.evidence, strict=True)) == [
        (0, 0, 9, 0), (0, 1, 1, 1), (1, 0, 4, 1),
    ]  # fmt: skip
