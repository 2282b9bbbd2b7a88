"""Replay: run a graph in simulated time, in one of four named orders."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.errors import GraphError
from makespan.graph import Graph
from makespan.schedule import Schedule
from makespan.simulator.orders.bounds import check_path
from makespan.simulator.orders.contended import replay_contended
from makespan.simulator.orders.dpro_rule import replay_dpro
from makespan.simulator.orders.ready import replay_ready
from makespan.simulator.orders.recorded import replay_recorded

ORDERS: Final = ("recorded", "ready", "contended", "dpro")


def replay(graph: Graph, order: str = "recorded", durations: NDArray[np.int64] | None = None) -> Schedule:
    """The schedule of `graph` (n ops), where `durations` (n,) int64 ns replace its own if given.

    `order` is how streams choose: "recorded" keeps the recorded order of each stream (see recorded), "ready"
    starts whatever can run first (see ready), "contended" does so while computation and communication of a rank
    slow each other down (see contended), "dpro" follows the rule of the dPRO replayer (see dpro_rule).
    The schedule's graph holds the durations that were used; in contended order, what they became. Raises GraphError
    where the graph is invalid or its ops wait for one another in a cycle, which the text then prints.

    >>> replay(graph).makespan_ns
    >>> replay(graph, durations=graph.duration_ns // 2).makespan_ns
    """
    if durations is not None:
        graph = graph.replace(duration_ns=_checked(graph, durations))
    if order == "recorded":
        schedule = replay_recorded(graph)
    elif order == "ready":
        schedule = replay_ready(graph)
    elif order == "contended":
        schedule = replay_contended(graph)
    elif order == "dpro":
        schedule = replay_dpro(graph).schedule
    else:
        raise GraphError(f"there is no replay order {order!r}, expected one of {', '.join(ORDERS)}")
    check_path(schedule)
    return schedule


def _checked(graph: Graph, durations: NDArray[np.int64]) -> NDArray[np.int64]:
    """A copy of `durations`, so that a schedule's graph doesn't change with the caller's array."""
    if durations.shape != (len(graph),) or not np.issubdtype(durations.dtype, np.integer):
        raise GraphError(
            f"durations are {durations.dtype}{list(durations.shape)}, expected whole ns for {len(graph)} ops"
        )
    return durations.astype(np.int64)
