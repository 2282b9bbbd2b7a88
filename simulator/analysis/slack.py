"""Slack: how much longer each op could take without making the schedule longer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.errors import MakespanError
from makespan.graph import StreamKind
from makespan.schedule import Schedule


def slack_ns(schedule: Schedule) -> NDArray[np.int64]:
    """(n,) int64: by how many ns the duration of each op alone could grow with the makespan staying as it is.

    One nanosecond more than that makes the schedule one nanosecond longer. Counted in recorded order: through
    edges and through the order of each stream (ops of a shared stream don't wait for each other). An op whose
    end is held by another (finish→finish) has the time that it waits there as slack too. Raises MakespanError
    for other orders, in which a longer op may change who goes first.
    """
    if schedule.order != "recorded":
        raise MakespanError(
            f"slack is defined for the recorded order, this schedule was replayed with order {schedule.order!r}; "
            "replay it with order recorded"
        )
    graph = schedule.graph
    shared = np.fromiter((stream.kind == StreamKind.SHARED for stream in graph.streams), np.bool_, len(graph.streams))
    latest = _latest_ends(
        schedule.makespan_ns, graph.duration_ns, graph.stream, shared,
        graph.pred_ptr, graph.pred, graph.lag_ns, graph.relation,
    )  # fmt: skip
    return latest - schedule.start_ns - graph.duration_ns


@compiled()
def _latest_ends(
    limit: int, duration: Any, stream: Any, shared: Any, pred_ptr: Any, pred: Any, lag: Any, relation: Any
) -> Any:  # pragma: no cover - compiled
    """When each op may end at the latest: a sweep from the last op to the first, each telling its predecessors."""
    count = len(duration)
    latest_end = np.full(count, limit, np.int64)
    latest_start = np.full(count, limit, np.int64)
    next_start = np.full(len(shared), limit, np.int64)
    for op in range(count - 1, -1, -1):
        queue = stream[op]
        if not shared[queue]:
            latest_end[op] = min(latest_end[op], next_start[queue])
        latest_start[op] = min(latest_start[op], latest_end[op] - duration[op])
        next_start[queue] = latest_start[op]
        for edge in range(pred_ptr[op], pred_ptr[op + 1]):
            bound = (latest_end[op] if relation[edge] & 2 else latest_start[op]) - lag[edge]
            before = pred[edge]
            if relation[edge] & 1:
                latest_start[before] = min(latest_start[before], bound)
            else:
                latest_end[before] = min(latest_end[before], bound)
    return latest_end
