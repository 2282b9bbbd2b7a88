"""Pipeline: passes in order, told in terms of the first graph, and each fault under the name of its pass."""

import numpy as np
import pytest
from core_graphs import full_graphs
from hypothesis import given
from hypothesis import strategies as st
from strategies import assemble_plain

from makespan.edit import GraphEdit
from makespan.errors import GraphError, PassError
from makespan.graph import Edges, Graph, OpKind, StreamKind
from makespan.pipeline import run_passes
from makespan.plan import Decision
from makespan.protocols import Context, Pass, Rewrite
from makespan.provenance import Provenance


def no_replay(graph: Graph, order: str = "recorded") -> None:
    raise AssertionError("none of these passes replays")


CONTEXT = Context(replay=no_replay)  # type: ignore[arg-type]


class Drop:
    """Removes one op and says so."""

    def __init__(self, op: int) -> None:
        self.op = op

    def __call__(self, graph: Graph, context: Context) -> Rewrite:
        edit = GraphEdit(graph)
        edit.remove_ops(self.op % len(graph))
        rewrite = edit.finish()
        return Rewrite(rewrite.graph, rewrite.provenance, (Decision("drop", {"op": self.op}),))


def idle(graph: Graph, context: Context) -> Rewrite:
    return Rewrite(graph, Provenance.identity(len(graph)))


@given(graph=full_graphs(min_ops=3, steps=False), drops=st.lists(st.integers(0, 20), max_size=3))
def test_provenance_leads_back_to_the_first_graph(graph: Graph, drops: list[int]) -> None:
    edit = GraphEdit(graph)
    edit.set_column("flops", np.arange(len(graph)), np.arange(len(graph)))
    graph = edit.finish().graph
    passes: list[tuple[str, Pass]] = [("drop", Drop(op)) for op in drops]
    rewrite = run_passes(graph, [*passes, ("idle", idle)], CONTEXT)
    assert [decision.payload for decision in rewrite.decisions] == [{"op": op} for op in drops]
    for op in range(len(rewrite.graph)):
        assert list(rewrite.provenance.of(op)) == [rewrite.graph.attrs["flops"][op]]


def test_no_passes_change_nothing() -> None:
    graph = graph_of_three()
    rewrite = run_passes(graph, [], CONTEXT)
    assert rewrite.graph is graph
    assert rewrite.provenance.is_identity()
    assert rewrite.decisions == ()


def graph_of_three() -> Graph:
    return assemble_plain(np.zeros(3, int), [StreamKind.HOST], np.array([1, 2, 3]), Edges.concatenate([]))


def clumsy(graph: Graph, context: Context) -> Rewrite:
    raise ZeroDivisionError("division by zero")


def careless(graph: Graph, context: Context) -> Rewrite:
    return Rewrite(graph.replace(duration_ns=-graph.duration_ns - 1), Provenance.identity(len(graph)))


def forgetful(graph: Graph, context: Context) -> Rewrite:
    return Rewrite(graph, Provenance.identity(len(graph) + 1))


def boastful(graph: Graph, context: Context) -> Rewrite:
    return Rewrite(graph, Provenance.identity(len(graph)), (Decision("other", {}),))


def silent(graph: Graph, context: Context) -> Rewrite:
    raise KeyError


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (clumsy, "ZeroDivisionError division by zero"),
        (careless, "durations are never negative; 2 op"),
        (forgetful, "provenance maps 3 ops to 3, expected 2 ops of the new graph to 2 of the old one"),
        (boastful, "a decision is signed 'other', expected the name of the pass that made it"),
        (silent, "KeyError"),
    ],
)
def test_a_fault_names_the_pass_and_those_before(wrong: Pass, told: str) -> None:
    with pytest.raises(PassError) as caught:
        run_passes(graph_of_three(), [("idle", idle), ("drop", Drop(0)), ("wrong-one", wrong), ("late", idle)], CONTEXT)
    assert str(caught.value).startswith("pass wrong-one failed after idle, drop: ")
    assert told in str(caught.value)
    assert caught.value.__cause__ is not None
    with pytest.raises(PassError, match="pass wrong-one failed as the first pass"):
        run_passes(graph_of_three(), [("wrong-one", wrong)], CONTEXT)


def test_progress_is_told() -> None:
    heard: list[tuple[int, int, str]] = []
    context = Context(replay=no_replay, progress=lambda *told: heard.append(told))  # type: ignore[arg-type]
    run_passes(graph_of_three(), [("idle", idle), ("drop", Drop(1))], context)
    assert heard == [(0, 2, "idle"), (1, 2, "drop"), (2, 2, "done")]


def test_passes_see_what_those_before_made() -> None:
    seen: list[int] = []

    def count(graph: Graph, context: Context) -> Rewrite:
        seen.append(int(np.count_nonzero(graph.kind != OpKind.MARK)))
        return idle(graph, context)

    run_passes(graph_of_three(), [("count", count), ("drop", Drop(2)), ("count", count)], CONTEXT)
    assert seen == [3, 2]


def test_a_pass_error_is_no_graph_error() -> None:
    assert not issubclass(PassError, GraphError)
