"""Communication: what the collectives of a captured job took, as a table that cost models are fitted on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.capture_file import COPY_OUT, LAUNCH
from makespan.communication_table import COLLECTIVES, CommunicationTable, Measured
from makespan.errors import PredictionError
from makespan.graph import Graph, OpKind
from makespan.simulator.reading.kineto_kinds import canonical_collective

UNTOLD: Final = "float32"
"""The element type, where a graph doesn't tell; only sizes count."""


def communication_table(graph: Graph, network: str) -> CommunicationTable:
    """The transfers of the matched collectives of `graph`, of known size, by collective, ranks and size.

    A transfer is as long as on the rank where it is shortest: that one waits least. If the job computed meanwhile,
    that is in it. Enqueuing and copying out, where the graph tells them, are host work. Raises PredictionError where
    no collective of several ranks has a size.
    """
    seen: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    ops = np.flatnonzero((graph.kind == OpKind.COLLECTIVE) & (graph.group >= 0) & (graph.size_bytes > 0))
    ops = ops[np.argsort(graph.group[ops], kind="stable")]
    for members in np.split(ops, np.flatnonzero(np.diff(graph.group[ops])) + 1):
        ranks = len(np.unique(graph.rank[members]))
        if ranks > 1:
            operation = canonical_collective(graph.name_of(int(members[0])))
            shortest = int(graph.duration_ns[members].min())
            seen[operation, ranks, int(graph.size_bytes[members].max())].append(shortest)
    measured = [
        Measured(operation, ranks, UNTOLD, size, times)
        for (operation, ranks, size), times in sorted(seen.items())
        if operation in COLLECTIVES
    ]
    if not measured:
        raise PredictionError(
            f"{network}: no collective among several ranks, of known size, is in it; measure the job's network with "
            "makespan.probe_communication"
        )
    return CommunicationTable(network=network, measured=[*measured, *_host_work(graph)])


def _host_work(graph: Graph) -> list[Measured]:
    """The shortest call that enqueues a collective, and the copying of whole gradients, if there are any."""
    found: list[Measured] = []
    launches = _named(graph, lambda name: name.startswith(LAUNCH))
    if len(launches):
        found.append(Measured("launch", 1, UNTOLD, 0, [int(graph.duration_ns[launches].min())]))
    copies = _named(graph, lambda name: name == COPY_OUT)
    parameter = graph.attrs.get("parameter")
    if len(copies) and parameter is not None:
        gradients = parameter >= 0
        steps = max(len({(rank, step) for rank, step in zip(graph.rank[copies], graph.step[copies], strict=True)}), 1)
        size = int(graph.size_bytes[gradients].sum()) // steps
        if size:
            found.append(Measured("copy", 1, UNTOLD, size, graph.duration_ns[copies].tolist()))
    return found


def _named(graph: Graph, wanted: Callable[[str], bool]) -> NDArray[np.int64]:
    fits = np.fromiter((wanted(name) for name in graph.names), np.bool_, len(graph.names))
    return np.flatnonzero(fits[graph.name])
