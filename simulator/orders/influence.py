"""Influence: the first instant at which a changed graph can run otherwise in ready order, and going on from there.

Before that instant both simulations are the same. A new op can matter from the instant at which it may become
eligible, a vanished op from that at which it did; an op with other edges, stream, priority or place in the
numbering from the earlier of both; an op with another duration from its start plus the shorter duration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import Graph
from makespan.schedule import BY_STREAM, Schedule
from makespan.simulator.orders.bounds import explain
from makespan.simulator.orders.columns import TIME_LIMIT_NS, Columns, columns_of
from makespan.simulator.orders.event_state import DONE, state_at
from makespan.simulator.orders.ready import run_events


def resume_ready(schedule: Schedule, graph: Graph, changed: NDArray[np.int64]) -> tuple[Schedule, int]:
    """The ready schedule of `graph`, given that of the same graph with other durations and lags.

    `changed` (k,) int64 names the ops whose duration or incoming lags differ. Returns the schedule and the number
    of ops that end at or after the first instant that the change can influence. Raises GraphError as
    `replay_ready` does.
    """
    columns, old = columns_of(graph), columns_of(schedule.graph)
    instant = int(_influence_of_changes(columns, old, changed, schedule.start_ns, schedule.end_ns))
    early = schedule.start_ns < instant
    by_stream = np.flatnonzero(early & (schedule.bound_edge == BY_STREAM))
    told = (by_stream, schedule.bound_by[by_stream])
    return _go_on(graph, columns, schedule.start_ns, schedule.end_ns, instant, told)


def resume_rewritten(schedule: Schedule, graph: Graph, old_of_new: NDArray[np.int32]) -> tuple[Schedule, int]:
    """The same for a rewritten graph (n ops); `old_of_new` (n,) int32 is -1 for new ops."""
    columns, old = columns_of(graph), columns_of(schedule.graph)
    # A stream is the same where its number and description are; others count as changed, which is safe.
    same = [stream == other for stream, other in zip(graph.streams, schedule.graph.streams, strict=False)]
    old_stream = np.full(len(graph.streams), -1, np.int32)
    old_stream[np.flatnonzero(same)] = np.flatnonzero(same)
    instant = int(_influence_of_rewrite(columns, old, old_of_new, old_stream, schedule.start_ns, schedule.end_ns))
    kept = np.flatnonzero(old_of_new >= 0)
    origin = old_of_new[kept]
    start, end = np.full(len(graph), TIME_LIMIT_NS, np.int64), np.full(len(graph), TIME_LIMIT_NS, np.int64)
    start[kept], end[kept] = schedule.start_ns[origin], schedule.end_ns[origin]
    new_of_old = np.full(len(schedule.graph), -1, np.int32)
    new_of_old[origin] = kept
    by_stream = kept[(start[kept] < instant) & (schedule.bound_edge[origin] == BY_STREAM)]
    told = (by_stream, new_of_old[schedule.bound_by[old_of_new[by_stream]]])
    return _go_on(graph, columns, start, end, instant, told)


def _go_on(
    graph: Graph,
    columns: Columns,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    instant: int,
    bound_by_stream: tuple[NDArray[np.int64], NDArray[np.int32]],
) -> tuple[Schedule, int]:
    """Simulate on from `instant`, given all times before it and the ops that only their stream explains."""
    state = state_at(graph, columns, start, end, instant)
    again = len(graph) - int(state.counts[DONE])
    new_start, new_end, bound_by, bound_edge = run_events(graph, columns, state, instant)
    bound_by[bound_by_stream[0]], bound_edge[bound_by_stream[0]] = bound_by_stream[1], BY_STREAM
    end_bound_edge = explain(columns, new_start, new_end, bound_by, bound_edge)
    return Schedule(graph, new_start, new_end, bound_by, bound_edge, "ready", end_bound_edge), again


@compiled(error_model="numpy")
def same_edges_in(op: Any, was: Any, columns: Any, old: Any, origin: Any) -> Any:  # pragma: no cover - compiled
    """Whether the edges into `op` are, one by one, those into op `was` of the `old` graph."""
    first, old_first = columns.pred_ptr[op], old.pred_ptr[was]
    count = columns.pred_ptr[op + 1] - first
    if count != old.pred_ptr[was + 1] - old_first:
        return False
    for offset in range(count):
        place, old_place = first + offset, old_first + offset
        if (
            origin[columns.pred[place]] != old.pred[old_place]
            or columns.lag_ns[place] != old.lag_ns[old_place]
            or columns.relation[place] != old.relation[old_place]
        ):
            return False
    return True


@compiled(error_model="numpy")
def _eligible_at(op: Any, columns: Any, start: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The greatest start that the edges into `op` ask for, given times of the ops before it."""
    latest = np.int64(0)
    for place in range(columns.pred_ptr[op], columns.pred_ptr[op + 1]):
        binding, before = columns.relation[place], columns.pred[place]
        if binding & 2 == 0:
            latest = max(latest, (start[before] if binding & 1 else end[before]) + columns.lag_ns[place])
    return latest


@compiled(error_model="numpy")
def _influence_of_changes(
    columns: Any, old: Any, changed: Any, start: Any, end: Any
) -> Any:  # pragma: no cover - compiled
    """The instant described above for other durations and lags; TIME_LIMIT_NS where nothing differs."""
    first = np.int64(TIME_LIMIT_NS)
    for op in changed:
        for place in range(columns.pred_ptr[op], columns.pred_ptr[op + 1]):
            if columns.lag_ns[place] != old.lag_ns[place]:
                first = min(first, _eligible_at(op, columns, start, end), _eligible_at(op, old, start, end))
                break
        if columns.duration_ns[op] != old.duration_ns[op]:
            first = min(first, start[op] + min(columns.duration_ns[op], old.duration_ns[op]))
    return first


@compiled(error_model="numpy")
def _influence_of_rewrite(
    columns: Any, old: Any, origin: Any, old_stream: Any, old_start: Any, old_end: Any
) -> Any:  # pragma: no cover - compiled
    """The same for a rewritten graph."""
    count, first = len(origin), np.int64(TIME_LIMIT_NS)
    start, end = np.empty(count, np.int64), np.empty(count, np.int64)
    lasts = np.zeros(len(old_start), np.bool_)
    latest = np.full(len(old_stream), -1, np.int32)
    for op in range(count):
        was, line = origin[op], columns.stream[op]
        eligible = _eligible_at(op, columns, start, end)
        if was < 0:
            # Lower bounds: it can't be earlier whatever else happens.
            start[op], end[op] = eligible, eligible + columns.duration_ns[op]
            first = min(first, eligible)
            continue
        lasts[was] = True
        start[op], end[op] = old_start[was], old_end[was]
        if (
            old_stream[line] != old.stream[was]
            or columns.priority[op] != old.priority[was]
            or was <= latest[line]
            or not same_edges_in(op, was, columns, old, origin)
        ):
            first = min(first, eligible, _eligible_at(was, old, old_start, old_end))
        if columns.duration_ns[op] != old.duration_ns[was]:
            first = min(first, old_start[was] + min(columns.duration_ns[op], old.duration_ns[was]))
        latest[line] = max(latest[line], was)
    for was in range(len(lasts)):
        if not lasts[was]:
            first = min(first, _eligible_at(was, old, old_start, old_end))
    return first
