"""Every pass that a module of optimizers offers keeps the contract; and the checks themselves notice what is wrong."""

import numpy as np
import pytest
from contracts import check_module, check_pass

from makespan.edit import GraphEdit
from makespan.errors import PassError
from makespan.graph import Graph
from makespan.plan import Decision
from makespan.protocols import Context, Rewrite
from makespan.provenance import Provenance
from makespan.resolve import find_module, member_names, offered

FOLDER = "makespan.optimizers"


@pytest.mark.parametrize("name", member_names(FOLDER))
def test_members(name: str) -> None:
    module = find_module(FOLDER, name)
    check_module(module)
    if offered(module) is not None:
        check_pass(offered(module))


class Halve:
    """Halves some durations."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def __call__(self, graph: Graph, context: Context) -> Rewrite:
        chosen = np.random.default_rng(context.seed).random(len(graph)) < self.share
        edit = GraphEdit(graph)
        edit.scale_duration(chosen, 0.5)
        made = edit.finish()
        return Rewrite(made.graph, made.provenance, (Decision("halve", {"ops": int(chosen.sum())}),))


def refuse(graph: Graph, context: Context) -> Rewrite:
    """Refuses every graph."""
    raise PassError("this graph has no gradients to fuse")


def nothing(graph: Graph, context: Context) -> Rewrite:
    """Finds nothing to do."""
    return Rewrite(graph, Provenance.identity(len(graph)))


@pytest.mark.parametrize("good", [Halve, refuse, nothing])
def test_good_passes_pass(good: object) -> None:
    check_pass(good)


def crashes(graph: Graph, context: Context) -> Rewrite:
    """Has a bug."""
    raise ZeroDivisionError


def breaks(graph: Graph, context: Context) -> Rewrite:
    """Leaves an illegal graph."""
    return Rewrite(graph.replace(duration_ns=graph.duration_ns - 1000), Provenance.identity(len(graph)))


def forgets(graph: Graph, context: Context) -> Rewrite:
    """Gives a provenance of another graph."""
    return Rewrite(graph, Provenance.identity(3))


def gambles(graph: Graph, context: Context) -> Rewrite:
    """Draws from a generator that nobody seeded."""
    return Rewrite(graph, Provenance.identity(len(graph)), (Decision("gambles", {"x": np.random.random()}),))


def changes_quietly(graph: Graph, context: Context) -> Rewrite:
    """Changes the graph without a decision."""
    return Rewrite(graph.replace(origin_ns=1), Provenance.identity(len(graph)))


def has_other_parameters(graph: Graph) -> Rewrite:
    """Takes no context."""
    return nothing(graph, None)  # type: ignore[arg-type]


def undocumented(graph: Graph, context: Context) -> Rewrite:
    return nothing(graph, context)


def meddles(graph: Graph, context: Context) -> Rewrite:
    """Writes into the graph it was given."""
    graph.duration_ns.setflags(write=True)
    graph.duration_ns[0] += 1
    return nothing(graph, context)


@pytest.mark.parametrize(
    "bad",
    [crashes, breaks, forgets, gambles, changes_quietly, has_other_parameters, undocumented, meddles],
)
def test_bad_passes_are_noticed(bad: object) -> None:
    with pytest.raises(Exception):  # noqa: B017
        check_pass(bad)
