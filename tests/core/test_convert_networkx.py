"""networkx both ways: identity for our graphs, sensible defaults and clear words for other people's."""

import networkx as nx
import numpy as np
import pytest
from core_graphs import full_graphs, replay_plainly, same_graph
from hypothesis import given
from hypothesis import strategies as st

from makespan.convert_networkx import from_networkx, to_networkx
from makespan.errors import GraphError
from makespan.graph import EdgeKind, Evidence, Graph, OpKind, Relation, StreamKind


@given(graph=full_graphs())
def test_there_and_back_is_identity(graph: Graph) -> None:
    there = to_networkx(graph)
    assert (len(there), there.number_of_edges()) == (len(graph), graph.edge_count)
    assert same_graph(from_networkx(there), graph)
    assert same_graph(from_networkx(there.copy()), graph)


@given(graph=full_graphs(min_ops=1))
def test_facts_are_readable(graph: Graph) -> None:
    there = to_networkx(graph)
    op = len(graph) - 1
    facts = there.nodes[op]
    assert facts["name"] == graph.name_of(op)
    assert facts["kind"] == OpKind(graph.kind[op]).name
    assert facts["duration_ns"] == graph.duration_ns[op]
    assert facts["flops"] == graph.attrs["flops"][op]
    for source, target, edge in there.edges(data=True):
        assert graph.pred[edge["edge"]] == source
        assert graph.edge_targets()[edge["edge"]] == target
        assert edge["kind"] == EdgeKind(graph.edge_kind[edge["edge"]]).name


@given(
    count=st.integers(1, 10),
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20),
    durations=st.lists(st.integers(0, 9), min_size=10, max_size=10),
)
def test_durations_alone_give_the_longest_path(count: int, pairs: list[tuple[int, int]], durations: list[int]) -> None:
    given_graph = nx.DiGraph()
    for op in reversed(range(count)):
        given_graph.add_node(f"op {op}", duration_ns=durations[op])
    for one, other in pairs:
        if max(one, other) < count and one != other:
            given_graph.add_edge(f"op {min(one, other)}", f"op {max(one, other)}")
    graph = from_networkx(given_graph)
    longest: dict[str, int] = {}
    for vertex in nx.topological_sort(given_graph):
        before = [longest[other] for other in given_graph.predecessors(vertex)]
        longest[vertex] = max(before, default=0) + given_graph.nodes[vertex]["duration_ns"]
    _, ends = replay_plainly(graph)
    assert {graph.name_of(op): end for op, end in enumerate(ends)} == longest


def test_defaults_and_stated_values() -> None:
    given_graph = nx.MultiDiGraph()
    given_graph.add_node("a", duration_ns=5, stream="main", rank=1, watts=1.5, count=2)
    given_graph.add_node(
        "b", duration_ns=np.int64(6), kind="SEND", size_bytes=10.0, stream="main", rank=1, watts=3, count=1
    )
    given_graph.add_node(3, duration_ns=7, kind=OpKind.MARK, name="last", watts=0.0, count=0)
    given_graph.add_edge("a", 3, lag_ns=2, relation="START_START", kind="EVENT", evidence="RESIDUAL")
    given_graph.add_edge("a", 3)
    graph = from_networkx(given_graph)
    assert [graph.name_of(op) for op in range(3)] == ["a", "b", "last"]
    assert list(graph.kind) == [OpKind.COMPUTE, OpKind.SEND, OpKind.MARK]
    assert [(s.rank, s.name, s.kind) for s in graph.streams] == [
        (1, "main", StreamKind.DEVICE), (0, "op 3", StreamKind.DEVICE),
    ]  # fmt: skip
    assert list(graph.stream) == [0, 0, 1]
    assert list(graph.size_bytes) == [0, 10, 0]
    assert (graph.attrs["count"].dtype, graph.attrs["watts"].dtype) == (np.int64, np.float64)
    assert list(graph.attrs["watts"]) == [1.5, 3.0, 0.0]
    edges = graph.edges()
    assert list(edges.relation) == [Relation.START_START, Relation.FINISH_START]
    assert list(edges.kind) == [EdgeKind.EVENT, EdgeKind.DATA]
    assert list(edges.evidence) == [Evidence.RESIDUAL, Evidence.MEASURED]
    assert replay_plainly(graph)[0] == [0, 5, 5]


def two(**facts: object) -> nx.DiGraph:
    given_graph = nx.DiGraph()
    given_graph.add_node("a", duration_ns=1)
    given_graph.add_node("b", **({"duration_ns": 1} | facts))
    return given_graph


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"duration_ns": -1}, "durations are never negative"),
        ({"duration_ns": 1.5}, "op 'b' has duration_ns 1.5, expected a number that fits int64"),
        ({"duration_ns": "1"}, "op 'b' has duration_ns '1'"),
        ({"duration_ns": 2**63}, "op 'b' has duration_ns 9223372036854775808"),
        ({"duration_ns": float("nan")}, "op 'b' has duration_ns nan"),
        ({"duration_ns": [1]}, r"op 'b' has duration_ns \[1\]"),
        ({"kind": "COMPUT"}, r"op 'b' has kind 'COMPUT'; did you mean 'COMPUTE'\?"),
        ({"kind": 99}, "op 'b' has kind 99"),
        ({"rank": 2**40}, "op 'b' has rank"),
        ({"colour": "red"}, "op 'a' has no colour, expected a number"),
        ({"step": 0}, "every step exists"),
    ],
)
def test_values_that_do_not_fit_are_told(facts: dict[str, object], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        from_networkx(two(**facts))


def test_edges_that_do_not_fit_are_told() -> None:
    for facts, told in (
        ({"lag": 5}, r"edge 'a' -> 'b' has an unknown attribute 'lag'; did you mean 'lag_ns'\?"),
        ({"lag_ns": -5}, "lags are never negative; 1 edge"),
        ({"relation": "FINISH"}, "edge 'a' -> 'b' has relation 'FINISH'; did you mean 'START_FINISH'"),
    ):
        given_graph = two()
        given_graph.add_edge("a", "b", **facts)
        with pytest.raises(GraphError, match=told):
            from_networkx(given_graph)


def test_missing_durations_undirected_graphs_and_cycles() -> None:
    given_graph = two()
    given_graph.add_node("c")
    with pytest.raises(GraphError, match="op 'c' has no duration_ns"):
        from_networkx(given_graph)
    with pytest.raises(GraphError, match="undirected"):
        from_networkx(nx.Graph())
    given_graph = two()
    given_graph.add_edges_from([("a", "b"), ("b", "a")])
    with pytest.raises(GraphError, match=r"waits on itself: op \d 'b' .* -> op \d 'a' .* -> op|'a' .* -> op \d 'b'"):
        from_networkx(given_graph)


def test_a_stream_number_must_exist() -> None:
    there = to_networkx(from_networkx(two()))
    there.nodes[1]["stream"] = 7
    with pytest.raises(GraphError, match="op 1 has stream 7, expected 0 to 1"):
        from_networkx(there)


def test_an_empty_graph() -> None:
    assert len(from_networkx(nx.DiGraph())) == 0
