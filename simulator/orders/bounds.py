"""Bounds: which edge or stream set each start and end of a finished schedule, and the path that this makes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.errors import GraphError
from makespan.schedule import BY_DURATION, BY_STREAM, Schedule
from makespan.simulator.orders.columns import Columns, fixed


def explain(
    columns: Columns,
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    bound_by: NDArray[np.int32],
    bound_edge: NDArray[np.int32],
) -> NDArray[np.int32] | None:
    """Overwrite `bound_by` and `bound_edge` (n,) wherever an edge asks for exactly the start that an op has.

    On entry they tell what the stream alone explains: the op before, where its end is the start, else -1 and
    BY_NOTHING. Of several such edges the first counts. Returns `end_bound_edge` (n,) int32: the first edge
    that asks for exactly the end, where that end is beyond start + duration; None where no edge binds an end.
    """
    end_bound_edge = np.full(len(start_ns) if columns.relations >= 2 else 0, BY_DURATION, np.int32)
    _explain(columns, start_ns, end_ns, bound_by, bound_edge, end_bound_edge)
    return end_bound_edge if columns.relations >= 2 else None


def path_length_ns(schedule: Schedule) -> int:
    """Length of the path that leads backward from the latest end along what set each start and end.

    The sum of the lags on it and of the time that its ops take between the instants where the path enters
    and leaves them. Equal to the makespan, or the schedule is wrong.
    """
    if not len(schedule.start_ns):
        return 0
    graph = schedule.graph
    edges = (fixed(graph.pred, np.int32), fixed(graph.lag_ns, np.int64), fixed(graph.relation, np.uint8))
    times = (fixed(schedule.start_ns, np.int64), fixed(schedule.end_ns, np.int64))
    bounds = (fixed(schedule.bound_by, np.int32), fixed(schedule.bound_edge, np.int32))
    end_bound_edge = fixed([] if schedule.end_bound_edge is None else schedule.end_bound_edge, np.int32)
    return int(_walk(*edges, *times, *bounds, end_bound_edge))


def check_path(schedule: Schedule) -> None:
    """Raise GraphError unless the path that `schedule` tells is as long as its makespan."""
    length_ns = path_length_ns(schedule)
    if length_ns != schedule.makespan_ns:
        raise GraphError(
            f"broken invariant: the makespan ({schedule.makespan_ns} ns) is the length of the path that leads to "
            f"it ({length_ns} ns); this is a fault of the {schedule.order} replay, please report it with the graph"
        )


@compiled(error_model="numpy")
def _explain(
    columns: Any, start: Any, end: Any, bound_by: Any, bound_edge: Any, end_bound_edge: Any
) -> None:  # pragma: no cover - compiled
    pointer, pred, lag, relation = columns.pred_ptr, columns.pred, columns.lag_ns, columns.relation
    duration = columns.duration_ns
    tells_end = len(end_bound_edge) > 0
    last = np.int64(0)
    for op in range(len(start)):
        first, last = last, pointer[op + 1]
        for place in range(first, last):
            if relation[place] & 2:
                continue
            before = pred[place]
            if (start[before] if relation[place] & 1 else end[before]) + lag[place] == start[op]:
                bound_by[op], bound_edge[op] = before, place
                break
        if not tells_end or end[op] == start[op] + duration[op]:
            continue
        for place in range(first, last):
            if relation[place] & 2 == 0:
                continue
            before = pred[place]
            if (start[before] if relation[place] & 1 else end[before]) + lag[place] == end[op]:
                end_bound_edge[op] = place
                break


@compiled(error_model="numpy")
def _walk(
    pred: Any, lag: Any, relation: Any, start: Any, end: Any, bound_by: Any, bound_edge: Any, end_bound_edge: Any
) -> Any:  # pragma: no cover - compiled
    """Sum of the path's pieces, each measured along the op it runs through."""
    tells_end = len(end_bound_edge) > 0
    length = np.int64(0)
    op = np.argmax(end)
    at_end = True
    # Every op is passed at most twice: once from its end to its start, once from its start.
    for _ in range(2 * len(start)):
        edge = np.int64(end_bound_edge[op]) if at_end and tells_end else np.int64(BY_DURATION)
        if edge == BY_DURATION:
            if at_end:
                length += end[op] - start[op]
            edge = np.int64(bound_edge[op])
            if edge == BY_STREAM:
                op, at_end = np.int64(bound_by[op]), True
                continue
            if edge < 0:
                return length
        length += lag[edge]
        op, at_end = np.int64(pred[edge]), relation[edge] & 1 == 0
    return np.int64(-1)
