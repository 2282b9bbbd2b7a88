"""Graph: what assemble promises, what verify refuses, and the two directions of its edges."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_graphs import STREAMS, full_graphs
from hypothesis import given
from hypothesis import strategies as st
from strategies import random_graph

from makespan.errors import GraphError
from makespan.graph import (
    EDGE_COLUMNS,
    NONE,
    OP_COLUMNS,
    EdgeKind,
    Edges,
    Graph,
    OpKind,
    Relation,
    Step,
    Stream,
    StreamKind,
    assemble,
)


@given(graph=full_graphs())
def test_assembled_graphs_are_legal_and_frozen(graph: Graph) -> None:
    graph.verify()
    columns = graph.columns()
    assert {*OP_COLUMNS, *EDGE_COLUMNS, "pred_ptr", "attrs.flops"} <= columns.keys()
    assert not any(column.flags.writeable for column in columns.values())
    assert graph.nbytes == sum(column.nbytes for column in columns.values())
    assert all(graph.rank[op] == graph.streams[graph.stream[op]].rank for op in range(len(graph)))


@given(graph=full_graphs())
def test_successors_are_predecessors_read_backwards(graph: Graph) -> None:
    pointer, succ, edge = graph.successors()
    forward = sorted(
        (op, int(succ[place]), int(edge[place]))
        for op in range(len(graph))
        for place in range(pointer[op], pointer[op + 1])
    )
    edges = graph.edges()
    assert forward == sorted(zip(edges.source.tolist(), edges.target.tolist(), range(len(edges)), strict=True))


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Order keys of up to eight ops, edges in any direction, and durations that tell the ops apart."""
    count = draw(st.integers(1, 8))
    number = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(number, number).filter(lambda pair: pair[0] != pair[1]), max_size=10))
    return draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)), edges, list(range(count))


@given(given_parts=shuffled())
def test_assemble_numbers_every_op_and_edge_or_prints_the_cycle(given_parts: Any) -> None:
    key, pairs, durations = given_parts
    count = len(key)
    source, target = np.array(pairs, np.int32).reshape(-1, 2).T
    edges = Edges.of(source, target, np.arange(len(pairs)), kind=EdgeKind.EVENT)
    columns = {
        "kind": [OpKind.COMPUTE] * count, "stream": [1] * count, "duration_ns": durations, "streams": STREAMS,
        "name": [0] * count, "names": ["x"], "order_ns": key, "attrs": {"given": np.arange(count)},
        "steps": [Step("s", 0, 0, count - 1)],
    }  # fmt: skip
    try:
        graph, number = assemble(edges=edges, **columns)
    except GraphError as error:
        assert "the graph waits on itself: op " in str(error)
        return
    graph.verify()
    assert sorted(number) == list(range(count))
    assert list(graph.duration_ns[number]) == durations
    assert list(graph.attrs["given"][number]) == list(range(count))
    assert [graph.steps[0].begin_op, graph.steps[0].end_op] == sorted((number[0], number[count - 1]))
    made = graph.edges()
    assert sorted(zip(made.source.tolist(), made.target.tolist(), made.lag_ns.tolist(), strict=True)) == sorted(
        (int(number[one]), int(number[other]), lag) for lag, (one, other) in enumerate(pairs)
    )


def test_scalars_fill_columns_and_recorded_order_is_kept() -> None:
    graph, number = assemble(
        kind=[OpKind.HOST] * 3, stream=0, duration_ns=4, streams=STREAMS, name=0, names=["x"], edges=Edges.of([], []),
        order_ns=[30, 10, 20], size_bytes=7,
    )  # fmt: skip
    assert list(number) == [2, 0, 1]
    assert (list(graph.size_bytes), list(graph.step), list(graph.group)) == ([7] * 3, [NONE] * 3, [NONE] * 3)
    assert repr(graph) == "Graph(3 ops, 0 edges, 5 streams)"


def test_an_empty_graph_is_legal() -> None:
    graph, number = assemble(
        kind=[], stream=[], duration_ns=[], streams=[], name=[], names=[], edges=Edges.concatenate([])
    )
    graph.verify()
    assert (len(graph), len(number), graph.nbytes) == (0, 0, 8)


def test_edges_that_lead_nowhere_are_told() -> None:
    with pytest.raises(GraphError, match="edge 1 has target 9, expected an op from 0 to 1"):
        assemble(
            kind=[0, 0], stream=0, duration_ns=0, streams=STREAMS, name=0, names=["x"],
            edges=Edges.of([0, 0], [1, 9]),
        )  # fmt: skip


def test_a_cycle_is_printed_and_long_ones_are_cut() -> None:
    count = 20
    with pytest.raises(GraphError) as caught:
        assemble(
            kind=[OpKind.COMPUTE] * count, stream=1, duration_ns=0, streams=STREAMS, name=0, names=["gemm"],
            edges=Edges.of(np.arange(count), np.roll(np.arange(count), -1)),
        )  # fmt: skip
    assert "the graph waits on itself: op " in str(caught.value)
    assert "'gemm' (rank 0, stream 7)" in str(caught.value)
    assert "... 8 more" in str(caught.value)


def with_value(column: str, place: int, value: int) -> Any:
    def change(graph: Graph) -> Graph:
        changed = getattr(graph, column).copy()
        changed[place] = value
        return replace(graph, **{column: changed})

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_value("duration_ns", 3, -1), "durations are never negative; 1 op(s), the first: 3"),
        (with_value("size_bytes", 3, -1), "sizes are never negative"),
        (with_value("kind", 3, 15), "every kind is an OpKind"),
        (with_value("stream", 3, 9), "every stream exists"),
        (with_value("stream", 3, -1), "every stream exists"),
        (with_value("name", 3, 99), "every name exists"),
        (with_value("step", 3, 0), "every step exists"),
        (with_value("rank", 3, 7), "an op is of its stream's rank"),
        (with_value("pred", 5, 99), "every predecessor exists; 1 edge(s), the first: 99 -> "),
        (with_value("lag_ns", 5, -1), "lags are never negative"),
        (with_value("relation", 5, 4), "every relation is a Relation"),
        (with_value("edge_kind", 5, 99), "every edge kind is an EdgeKind"),
        (with_value("evidence", 5, 3), "all evidence is an Evidence"),
        (with_value("pred_ptr", 0, 1), "pred_ptr doesn't cut"),
        (with_value("pred_ptr", 40, 1), "pred_ptr doesn't cut"),
        (
            lambda graph: replace(graph, kind=graph.kind.astype(np.int64)),
            "column kind is int64[40], expected uint8[40]",
        ),
        (lambda graph: replace(graph, stream=graph.stream[:-1]), "column stream is int32[39], expected int32[40]"),
        (lambda graph: replace(graph, lag_ns=graph.lag_ns[:-1]), "column lag_ns is int64["),
        (lambda graph: graph.with_attrs(flops=np.zeros(3)), "attribute flops has 3 values, expected 40"),
        (lambda graph: graph.with_attrs(flops=np.zeros((40, 2))), "attribute flops has the shape [40, 2], expected 40"),
        (lambda graph: graph.with_attrs(flops=np.array([None] * 40)), "attribute flops holds object, expected plain"),
        (lambda graph: graph.with_attrs(bucket=np.zeros(40)), "attribute bucket holds float64, expected whole numbers"),
        (lambda graph: graph.with_attrs(parameter=np.full(40, 99)), "every parameter is a name or -1; 40 op(s)"),
        (lambda graph: replace(graph, lag_ns=graph.lag_ns[:, None]), "column lag_ns is ndarray["),
        (lambda graph: replace(graph, sync=np.zeros(3, np.uint8)), "column sync is uint8[3], expected uint8[40]"),
        (lambda graph: replace(graph, steps=(Step("s", 1, 0, 40),)), "step s of rank 1 begins or ends outside"),
        (lambda graph: replace(graph, steps=(Step("s", 1, 5, 4),)), "step s of rank 1 ends with op 4, before op 5"),
        (lambda graph: replace(graph, steps=(Step("s", 1, 4, 5, 9, 8),)), "was measured to end at 8 ns, before its"),
        (
            lambda graph: replace(graph, streams=(*graph.streams, Stream(1 << 31, "x", StreamKind.HOST))),
            "is of rank 2147483648",
        ),
    ],
)
def test_verify_names_the_broken_invariant(change: Any, told: str) -> None:
    broken = change(random_graph(5))
    with pytest.raises(GraphError) as caught:
        broken.verify()
    assert told in str(caught.value)


def test_an_edge_backward_without_a_cycle_is_told() -> None:
    graph, _ = assemble(
        kind=[0, 0], stream=[0, 1], duration_ns=0, streams=STREAMS, name=0, names=["x"], edges=Edges.of([0], [1])
    )
    backward = replace(graph, pred=np.array([1], np.int32), pred_ptr=np.array([0, 1, 1]))
    with pytest.raises(GraphError, match="every edge goes from a lower to a higher op number; 1 edge"):
        backward.verify()


def test_streams_are_chosen_by_kind() -> None:
    graph, _ = assemble(
        kind=[0] * 5, stream=np.arange(5), duration_ns=0, streams=STREAMS, name=0, names=["x"], edges=Edges.of([], [])
    )
    assert list(graph.on_streams(StreamKind.HOST)) == [True, False, True, False, False]
    assert list(graph.on_streams(StreamKind.LINK, StreamKind.SHARED)) == [False, False, False, True, True]


def test_replacing_shares_what_stays() -> None:
    graph = random_graph(1)
    changed = graph.replace(origin_ns=5).with_attrs(more=np.zeros(len(graph)))
    assert changed.kind is graph.kind
    assert list(changed.attrs) == ["more"]
    assert not changed.attrs["more"].flags.writeable


def test_edges_are_picked_and_joined() -> None:
    edges = Edges.of([0, 1], [2, 2], lag_ns=[5, 6], relation=Relation.START_START)
    twice = Edges.concatenate([edges, edges])
    assert len(twice) == 4
    assert list(twice.take(np.array([3, 0])).lag_ns) == [6, 5]
    assert list(twice.take(twice.source == 0).target) == [2, 2]


def test_steps_know_their_measured_length() -> None:
    assert Step("s", 0, 0, 1, 10, 25).measured_ns == 15
    assert Step("s", 0, 0, 1).measured_ns == NONE


def test_two_streams_of_one_name_are_two() -> None:
    assert Stream(0, "a", StreamKind.HOST) != Stream(1, "a", StreamKind.HOST)
