"""Pipeline: passes one after another, each result verified, all told in terms of the first graph."""

from __future__ import annotations

from collections.abc import Sequence

from makespan.errors import GraphError, MakespanError, PassError
from makespan.graph import Graph
from makespan.plan import Decision
from makespan.protocols import Context, Pass, Rewrite
from makespan.provenance import Provenance


def run_passes(graph: Graph, passes: Sequence[tuple[str, Pass]], context: Context) -> Rewrite:
    """Apply named `passes` in order; the result's provenance leads back to the ops of `graph`.

    Raises PassError, naming the pass and those that ran before it, where one fails, whatever it raised, or
    leaves a graph, a provenance or a decision that breaks the rules.
    """
    current, provenance = graph, Provenance.identity(len(graph))
    decisions: list[Decision] = []
    for place, (name, rewrite_graph) in enumerate(passes):
        context.progress(place, len(passes), name)
        try:
            rewrite = rewrite_graph(current, context)
            _verify(name, rewrite, len(current))
        except Exception as error:
            raise PassError(_told(name, error, [before for before, _ in passes[:place]])) from error
        current, provenance = rewrite.graph, provenance.then(rewrite.provenance)
        decisions.extend(rewrite.decisions)
    context.progress(len(passes), len(passes), "done")
    return Rewrite(current, provenance, tuple(decisions))


def _verify(name: str, rewrite: Rewrite, old_count: int) -> None:
    rewrite.graph.verify()
    rewrite.provenance.verify()
    given = (len(rewrite.provenance), rewrite.provenance.old_count)
    if given != (len(rewrite.graph), old_count):
        raise GraphError(
            f"provenance maps {given[0]} ops to {given[1]}, expected {len(rewrite.graph)} ops of the new graph to "
            f"{old_count} of the old one"
        )
    for decision in rewrite.decisions:
        if decision.pass_name != name:
            raise GraphError(f"a decision is signed {decision.pass_name!r}, expected the name of the pass that made it")


def _told(name: str, error: Exception, before: list[str]) -> str:
    ran = f"after {', '.join(before)}" if before else "as the first pass"
    told = str(error) if isinstance(error, MakespanError) else f"{type(error).__name__} {error}".rstrip()
    return f"pass {name} failed {ran}: {told}"
