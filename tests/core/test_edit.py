"""GraphEdit: every change does what it says, the rest stays, and the result is a legal graph."""

from collections.abc import Sequence

import numpy as np
import pytest
from core_graphs import STREAMS, full_graphs, replay_plainly, same_graph
from hypothesis import assume, given
from hypothesis import strategies as st

from makespan.edit import GraphEdit
from makespan.errors import GraphError
from makespan.graph import NONE, EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Stream, StreamKind, assemble


def line(stream: Sequence[int] = (1, 1, 1, 1), edges: Edges | None = None, priority: Sequence[int] | int = 0) -> Graph:
    """One op for each stream named, op i of 10 · (i + 1) ns and i bytes."""
    count = len(stream)
    graph, _ = assemble(
        kind=[OpKind.COMPUTE] * count, stream=stream, duration_ns=10 * np.arange(1, count + 1), streams=STREAMS,
        name=np.arange(count), names=[f"op {number}" for number in range(count)],
        edges=Edges.concatenate([]) if edges is None else edges, size_bytes=np.arange(count), priority=priority,
        attrs={"event": np.arange(count, dtype=np.int32), "flops": np.arange(count, dtype=np.float64)},
    )  # fmt: skip
    return graph


def names(graph: Graph) -> list[str]:
    return [graph.name_of(op) for op in range(len(graph))]


@given(graph=full_graphs())
def test_an_edit_without_changes_gives_the_same_graph(graph: Graph) -> None:
    rewrite = GraphEdit(graph).finish()
    assert same_graph(rewrite.graph, graph)
    assert rewrite.provenance.is_identity()


@given(graph=full_graphs(), data=st.data())
def test_an_op_added_and_removed_again_leaves_the_graph_as_it_was(graph: Graph, data: st.DataObject) -> None:
    assume(len(graph))
    edit = GraphEdit(graph)
    anchor = data.draw(st.integers(0, len(graph) - 1))
    side = data.draw(st.sampled_from(["after", "before"]))
    added = edit.add_op(kind=OpKind.MARK, stream=0, duration_ns=3, name="new", **{side: anchor})
    rewrite = edit.finish()
    (place,) = rewrite.provenance.added()
    assert place == (anchor + 1 if side == "after" else anchor)
    assert rewrite.graph.attrs["measured_start_ns"][place] == NONE
    assert np.isnan(rewrite.graph.attrs["flops"][place])
    assert added == len(graph)
    back = GraphEdit(rewrite.graph)
    back.remove_ops(place)
    again = back.finish()
    left = again.graph.replace(names=graph.names)
    assert same_graph(left, graph)
    assert rewrite.provenance.then(again.provenance).is_identity()


@given(graph=full_graphs(), data=st.data())
def test_columns_change_where_told_and_nowhere_else(graph: Graph, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), bool)
    edit = GraphEdit(graph)
    edit.set_duration(mask, 5)
    edit.scale_duration(mask, 2.5)
    edit.set_column("priority", mask, 7)
    edit.set_column("name", mask, "renamed")
    edit.set_column("flops", mask, -1.0)
    edit.set_lag(np.arange(graph.edge_count), 11)
    edit.scale_lag(np.arange(graph.edge_count), 0.5)
    changed = edit.finish().graph
    assert list(changed.duration_ns) == [
        12 if chosen else old for chosen, old in zip(mask, graph.duration_ns, strict=True)
    ]
    assert list(changed.priority) == [7 if chosen else old for chosen, old in zip(mask, graph.priority, strict=True)]
    assert names(changed) == ["renamed" if chosen else old for chosen, old in zip(mask, names(graph), strict=True)]
    assert list(changed.attrs["flops"][mask]) == [-1.0] * np.count_nonzero(mask)
    assert list(changed.lag_ns) == [6] * graph.edge_count, "5.5 rounds to the even 6"
    assert np.array_equal(changed.kind, graph.kind)
    assert not np.shares_memory(changed.duration_ns, graph.duration_ns)


def test_values_go_to_ops_in_the_order_given() -> None:
    edit = GraphEdit(line())
    edit.set_duration([2, 0], [200, 100])
    edit.scale_duration([3, 1], [2, 3])
    assert list(edit.finish().graph.duration_ns) == [100, 60, 200, 80]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda edit: edit.set_duration(4, 1), "op 4 is outside the 4 of the graph"),
        (lambda edit: edit.set_duration([True, False], 1), "numbers or by a mask of length 4"),
        (lambda edit: edit.scale_duration(0, float("nan")), "finite factor"),
        (lambda edit: edit.scale_duration(0, -1), "finite factor"),
        (lambda edit: edit.set_lag(0, 1), "edge 0 is outside the 0"),
        (lambda edit: edit.set_column("stream", 0, 1), "can't be set: expected one of kind"),
        (lambda edit: edit.set_column("sync", 0, 1), "column 'sync' can't be set"),
        (lambda edit: edit.move(0, 9), "stream 9 doesn't exist"),
        (lambda edit: edit.move(0, after=1, before=2), "at once"),
        (lambda edit: edit.add_edge(0, 4), "expected 0 to 3"),
        (lambda edit: edit.add_op(kind=OpKind.MARK, stream=7, duration_ns=0, name=""), "stream 7 doesn't exist"),
        (
            lambda edit: edit.add_op(kind=OpKind.MARK, stream=0, duration_ns=0, name="", attrs={"x": 1}),
            "attribute 'x'",
        ),
        (lambda edit: edit.replace_ops([], kind=OpKind.OTHER, duration_ns=1, name=""), "at least one"),
        (lambda edit: (edit.remove_ops(1), edit.remove_ops(1)), "op 1 is removed or replaced already"),
        (
            lambda edit: (edit.remove_ops(1), edit.replace_ops([1], kind=OpKind.OTHER, duration_ns=1, name="")),
            "op 1 is removed or replaced already",
        ),
        (lambda edit: (edit.set_duration(0, -5), edit.finish()), "durations are never negative"),
        (lambda edit: (edit.add_edge(1, 1), edit.finish()), "waits on itself: op 1 'op 1'"),
    ],
)  # fmt: skip
def test_wrong_changes_are_told_in_a_sentence(change, told: str) -> None:
    with pytest.raises(GraphError, match=told):
        change(GraphEdit(line()))


def test_moving_changes_stream_rank_and_order() -> None:
    graph = line()
    edit = GraphEdit(graph)
    edit.move([3, 2], stream=3, before=0)
    moved = edit.finish()
    assert names(moved.graph) == ["op 3", "op 2", "op 0", "op 1"]
    assert list(moved.graph.stream) == [3, 3, 1, 1]
    assert list(moved.graph.rank) == [1, 1, 0, 0]
    assert [list(moved.provenance.of(op)) for op in range(4)] == [[3], [2], [0], [1]]
    assert replay_plainly(moved.graph) == ([0, 40, 0, 10], [40, 70, 10, 30])


def test_an_op_takes_along_what_was_placed_beside_it() -> None:
    edit = GraphEdit(line())
    new = edit.add_op(kind=OpKind.MARK, stream=1, duration_ns=0, name="new", before=0)
    newer = edit.add_op(kind=OpKind.MARK, stream=1, duration_ns=0, name="newer", after=new)
    edit.move(0, after=2)
    assert names(edit.finish().graph) == ["op 1", "op 2", "new", "newer", "op 0", "op 3"]
    with pytest.raises(GraphError, match="placed beside it"):
        edit.move(0, after=newer)


def test_ops_placed_on_one_side_come_in_the_order_of_the_calls() -> None:
    edit = GraphEdit(line([1, 1]))
    for name in "abc":
        edit.add_op(kind=OpKind.MARK, stream=1, duration_ns=0, name=f"after {name}", after=0)
        edit.add_op(kind=OpKind.MARK, stream=1, duration_ns=0, name=f"before {name}", before=1)
    wanted = ["op 0", *(f"{side} {name}" for side in ("after", "before") for name in "abc"), "op 1"]
    assert names(edit.finish().graph) == wanted


def test_an_edge_keeps_the_order_of_every_stream() -> None:
    """Op 0 of the first stream must wait for op 3 of the second; nothing else overtakes it."""
    graph = line([0, 0, 1, 1])
    edit = GraphEdit(graph)
    edit.add_edge(3, 0, lag_ns=2, kind=EdgeKind.EVENT, evidence=Evidence.INFERRED)
    left = edit.finish().graph
    assert names(left) == ["op 2", "op 3", "op 0", "op 1"]
    assert replay_plainly(left)[0] == [0, 30, 72, 82]


def test_an_edge_against_the_order_of_a_stream_prints_the_cycle() -> None:
    edit = GraphEdit(line())
    edit.add_edge(2, 1)
    with pytest.raises(GraphError, match=r"recorded order of a stream contradicts.*op 1 'op 1' .*op 2 'op 2'"):
        edit.finish()
    edit.move(2, before=1)
    assert names(edit.finish().graph) == ["op 0", "op 2", "op 1", "op 3"]


def test_a_cycle_of_edges_prints_the_cycle_alone() -> None:
    edit = GraphEdit(line([0, 1, 2]))
    edit.add_edge([0, 1, 2], [1, 2, 0])
    with pytest.raises(GraphError, match=r"^the graph waits on itself: .*op 0 'op 0' \(rank 0, thread 1\) -> op 1"):
        edit.finish()


def test_shared_links_have_no_order_to_contradict() -> None:
    edit = GraphEdit(line([4, 4, 4]))
    edit.add_edge(2, 0)
    assert names(edit.finish().graph) == ["op 1", "op 2", "op 0"]


def test_removed_edges_leave_nothing_behind() -> None:
    graph = line([0, 1, 2], Edges.of([0, 1, 0], [1, 2, 2], [1, 2, 3]))
    edit = GraphEdit(graph)
    edit.remove_edges(1)
    left = edit.finish().graph.edges()
    assert list(zip(left.source, left.target, left.lag_ns, strict=True)) == [(0, 1, 1), (0, 2, 3)]


def test_fusion_redirects_edges_and_conserves_bytes() -> None:
    edges = Edges.of([0, 0, 1, 2, 1, 2], [1, 2, 2, 3, 3, 3], [5, 6, 1, 2, 9, 2], kind=EdgeKind.EVENT)
    graph = line([0, 1, 1, 2], edges, [0, 3, 2, 0])
    edit = GraphEdit(graph)
    fused = edit.replace_ops([2, 1], kind=OpKind.COMPUTE, duration_ns=45, name="fused", attrs={"flops": 3.0})
    edit.add_edge(fused, 3, lag_ns=1, relation=Relation.START_START)
    rewrite = edit.finish()
    left = rewrite.graph
    assert names(left) == ["op 0", "fused", "op 3"]
    assert left.size_bytes.sum() == graph.size_bytes.sum()
    assert (left.priority[1], left.attrs["flops"][1], left.attrs["event"][1]) == (2, 3.0, NONE)
    assert [list(rewrite.provenance.of(op)) for op in range(3)] == [[0], [1, 2], [3]]
    found = left.edges()
    assert sorted(zip(found.source, found.target, found.lag_ns, found.relation, strict=True)) == [
        (0, 1, 6, 0), (1, 2, 1, 1), (1, 2, 9, 0),
    ]  # fmt: skip


@given(graph=full_graphs(streams=STREAMS[:2], steps=True), data=st.data())
def test_fusing_neighbours_is_legal_and_told(graph: Graph, data: st.DataObject) -> None:
    assume(len(graph) >= 2)
    first = data.draw(st.integers(0, len(graph) - 2))
    last = data.draw(st.integers(first + 1, len(graph) - 1))
    chosen = np.arange(first, last + 1)
    edit = GraphEdit(graph)
    edit.replace_ops(chosen, kind=OpKind.COMPUTE, duration_ns=1, name="fused")
    rewrite = edit.finish()
    assert len(rewrite.graph) == len(graph) - len(chosen) + 1
    assert list(rewrite.provenance.of(first)) == list(chosen)
    assert not len(rewrite.provenance.removed())
    assert rewrite.graph.size_bytes.sum() == graph.size_bytes.sum()
    for step, old in zip(rewrite.graph.steps, graph.steps, strict=True):
        assert old.begin_op in rewrite.provenance.of(step.begin_op)


def test_fusing_around_an_op_in_between_is_a_cycle() -> None:
    graph = line([0, 1, 2], Edges.of([0, 1], [1, 2]))
    edit = GraphEdit(graph)
    edit.replace_ops([0, 2], kind=OpKind.COMPUTE, duration_ns=1, name="fused")
    with pytest.raises(GraphError, match=r"waits on itself: op 1 'op 1' .* -> op 3 'fused'|op 3 'fused' .* -> op 1"):
        edit.finish()


def test_added_streams_and_split_ops() -> None:
    edit = GraphEdit(line([1, 1]))
    link = edit.add_stream(Stream(1, "new link", StreamKind.LINK))
    chunks = [
        edit.add_op(
            kind=OpKind.SEND, stream=link, duration_ns=5, name=f"chunk {part}", size_bytes=part, stands_for=[1],
            after=1, step=NONE, group=4, priority=1,
        )
        for part in range(3)
    ]  # fmt: skip
    edit.add_edge(0, chunks)
    edit.remove_ops(1)
    rewrite = edit.finish()
    assert names(rewrite.graph) == ["op 0", "chunk 0", "chunk 1", "chunk 2"]
    assert list(rewrite.graph.rank) == [0, 1, 1, 1]
    assert list(rewrite.provenance.inverse().of(1)) == [1, 2, 3]
    assert replay_plainly(rewrite.graph)[1] == [10, 15, 20, 25]


def test_the_old_graph_stays_as_it_is() -> None:
    graph = line()
    before = {name: column.copy() for name, column in graph.columns().items()}
    edit = GraphEdit(graph)
    edit.scale_duration([0, 1], 3)
    edit.set_column("event", 0, 99)
    edit.remove_ops(2)
    edit.finish()
    assert all(np.array_equal(column, before[name]) for name, column in graph.columns().items())
