"""Recorded order: each stream keeps its measured order, and one sweep over the ops gives all times.

With s(i), e(i) start and end of op i, d its duration, l the lag of an edge p → i and q the op before i on its
stream (shared streams order nothing):

    s(i) = max(0, e(p) + l over finish→start edges, s(p) + l over start→start edges, e(q))
    e(i) = max(s(i) + d(i), e(p) + l over finish→finish edges, s(p) + l over start→finish edges)

Only sums and maxima occur: a schedule is monotone in every duration and lag.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from makespan.compiled import compiled
from makespan.graph import Graph
from makespan.schedule import BY_DURATION, BY_NOTHING, BY_STREAM, Schedule
from makespan.simulator.orders.columns import TIME_LIMIT_NS, columns_of, refuse
from makespan.simulator.orders.prefetch import prefetch

_AHEAD: Final = 24
"""Edges between the one a sweep looks at and the one whose predecessor it asks the memory for."""


def replay_recorded(graph: Graph) -> Schedule:
    """The schedule of `graph` in recorded order.

    Raises GraphError where an edge goes backward (with the wait cycle, if there is one) or times overflow.
    """
    columns = columns_of(graph)
    count = len(graph)
    start, end = np.empty(count, np.int64), np.empty(count, np.int64)
    bound_by, bound_edge = np.empty(count, np.int32), np.empty(count, np.int32)
    binds_ends = columns.relations >= 2
    end_bound = np.empty(count if binds_ends else 0, np.int32)
    if _sweep(columns, start, end, bound_by, bound_edge, end_bound) < 0:
        refuse(graph)
    return Schedule(graph, start, end, bound_by, bound_edge, "recorded", end_bound if binds_ends else None)


def recorded_makespan(graph: Graph) -> int:
    """The makespan of `graph` in recorded order, in ns: the sweep without the columns that tell why.

    Raises GraphError as `replay_recorded` does.
    """
    columns = columns_of(graph)
    count = len(graph)
    start = np.empty(count if columns.relations & 1 else 0, np.int64)
    latest = _sweep_ends(columns, start, np.empty(count, np.int64))
    if latest < 0:
        refuse(graph)
    return int(latest)


@compiled(error_model="numpy")
def place_op(
    op: Any,
    first: Any,
    last: Any,
    pred: Any,
    lag: Any,
    relation: Any,
    start: Any,
    end: Any,
    duration: Any,
    free: Any,
    before: Any,
) -> Any:  # pragma: no cover - compiled
    """When `op` runs, given the times of all ops before it, and why.

    Its edges are `first` to `last` - 1; its stream is free at `free` after op `before` (0 and -1 where nothing ran).
    Returns start, end, `bound_by`, `bound_edge`, `end_bound_edge` and the bits set in any of the times, lags and
    durations, all of them where an edge goes backward.
    """
    begin, edge, by = np.int64(-1), np.int64(BY_NOTHING), np.int64(-1)
    floor, floor_edge = np.int64(-1), np.int64(BY_DURATION)
    bits = np.int64(duration)
    for place in range(first, last):
        if place + _AHEAD < len(pred):
            prefetch(end, np.int64(pred[place + _AHEAD]))
        source = np.uint64(pred[place])
        if source >= np.uint64(op):
            return begin, begin, by, edge, floor_edge, np.int64(-1)
        binding = relation[place]
        time = (start[source] if binding & 1 else end[source]) + lag[place]
        bits |= time | lag[place]
        if binding & 2:
            if time > floor:
                floor, floor_edge = time, place
        elif time > begin:
            begin, edge, by = time, place, np.int64(source)
    if free > begin:
        begin, by = free, np.int64(before)
        edge = np.int64(BY_STREAM) if by >= 0 else np.int64(BY_NOTHING)
    finish = begin + duration
    if floor > finish:
        finish = floor
    else:
        floor_edge = np.int64(BY_DURATION)
    return begin, finish, by, edge, floor_edge, bits | finish


@compiled(error_model="numpy")
def _sweep(
    columns: Any, start: Any, end: Any, bound_by: Any, bound_edge: Any, end_bound: Any
) -> Any:  # pragma: no cover - compiled
    """Fill all columns in op order; the latest end, or -1 for a backward edge or a time out of range."""
    pointer, pred, lag, relation = columns.pred_ptr, columns.pred, columns.lag_ns, columns.relation
    stream, duration, shared = columns.stream, columns.duration_ns, columns.shared
    tells_end = len(end_bound) > 0
    free = np.zeros(len(shared), np.int64)
    latest_op = np.full(len(shared), -1, np.int32)
    bits, latest = np.int64(0), np.int64(0)
    last = np.int64(0)
    for op in range(len(duration)):
        first, last = last, pointer[op + 1]
        queue = stream[op]
        begin, finish, by, edge, floor_edge, seen = place_op(
            op, first, last, pred, lag, relation, start, end, duration[op], free[queue], latest_op[queue]
        )
        if seen < 0:
            return np.int64(-1)
        bits |= seen
        start[op], end[op], bound_by[op], bound_edge[op] = begin, finish, by, edge
        if tells_end:
            end_bound[op] = floor_edge
        if shared[queue] == 0:
            free[queue], latest_op[queue] = finish, op
        latest = max(latest, finish)
    return latest if np.uint64(bits) < np.uint64(TIME_LIMIT_NS) else np.int64(-1)


@compiled(error_model="numpy")
def _sweep_ends(columns: Any, start: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The latest end, or -1 as in `_sweep`; `start` may be empty where no edge counts from a start."""
    pointer, pred, lag, relation = columns.pred_ptr, columns.pred, columns.lag_ns, columns.relation
    stream, duration, shared = columns.stream, columns.duration_ns, columns.shared
    keeps_start = len(start) > 0
    free = np.zeros(len(shared), np.int64)
    bits, latest = np.int64(0), np.int64(0)
    last = np.int64(0)
    for op in range(len(duration)):
        first, last = last, pointer[op + 1]
        queue = stream[op]
        begin, finish, _by, _edge, _floor_edge, seen = place_op(
            op, first, last, pred, lag, relation, start, end, duration[op], free[queue], np.int32(-1)
        )
        if seen < 0:
            return np.int64(-1)
        bits |= seen
        end[op] = finish
        if keeps_start:
            start[op] = begin
        if shared[queue] == 0:
            free[queue] = finish
        latest = max(latest, finish)
    return latest if np.uint64(bits) < np.uint64(TIME_LIMIT_NS) else np.int64(-1)
