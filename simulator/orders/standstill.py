"""Standstill: why ops of an event simulation never run, told as a cycle of waits."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from makespan.errors import GraphError
from makespan.graph import Graph
from makespan.topology import find_cycle


def report_standstill(
    graph: Graph,
    order: str,
    started: NDArray[np.bool_],
    ended: NDArray[np.bool_],
    waiting: NDArray[Any],
    holder: NDArray[Any],
) -> NoReturn:
    """Raise the GraphError for a simulation in which nothing happens any more, with a cycle of waits.

    `started`, `ended` (n,) bool. An op that hasn't ended waits for the predecessors whose instant has not
    come, and op `waiting[i]` (k,) for `holder[i]` (k,), which holds what it needs.
    """
    target = graph.edge_targets()
    from_start, binds_end = graph.relation & 1 != 0, graph.relation & 2 != 0
    open_edge = np.where(from_start, ~started[graph.pred], ~ended[graph.pred])
    open_edge &= np.where(binds_end, ~ended[target], ~started[target])
    source = np.concatenate([graph.pred[open_edge], holder]).astype(np.int32)
    target = np.concatenate([target[open_edge], waiting])
    pointer = np.zeros(len(graph) + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=len(graph)), out=pointer[1:])
    source = source[np.argsort(target, kind="stable")]
    for column in (pointer, source):
        column.setflags(write=False)
    cycle = find_cycle(pointer, source)
    stuck = int(np.count_nonzero(~ended))
    reason = graph.describe_cycle(cycle) if len(cycle) else f"op {np.argmin(ended)} waits for what nothing releases"
    raise GraphError(
        f"{stuck} of {len(graph)} ops never end in {order} order, since they wait for one another; "
        f"each of these waits for the one before it: {reason}"
    )
