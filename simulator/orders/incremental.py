"""Incremental replay: after a change, replay again only what the change can have moved; equal to a full replay.

In recorded order that is the cone of the changed ops: an op is evaluated again when an op before it moved, and
the cone ends where times stay the same. In ready order a change can move anything that happens later, anywhere;
everything before the first instant that it can influence is kept, and the simulation goes on from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.compiled import compiled
from makespan.errors import GraphError
from makespan.graph import Graph
from makespan.schedule import BY_DURATION, Schedule
from makespan.simulator.orders.columns import Columns, columns_of, fixed, refuse
from makespan.simulator.orders.fanout import FanOut, stream_neighbours
from makespan.simulator.orders.influence import resume_ready, resume_rewritten, same_edges_in
from makespan.simulator.orders.recorded import place_op
from makespan.units import TIME_LIMIT_NS


def rereplay(
    schedule: Schedule, graph: Graph, changed_ops: ArrayLike | None = None, fan_out: FanOut | None = None
) -> tuple[Schedule, int]:
    """The schedule of `graph`, from that of a graph with the same ops, edges and streams.

    Durations and lags may differ: `changed_ops` names the ops whose duration differs and those into which an edge
    with another lag leads; None finds them. `fan_out`, kept from `FanOut.of(graph)`, saves most of the work on a
    small cone. Returns the schedule, equal in every column to a full replay in the same order, and how many
    ops were evaluated again. Raises GraphError where the graphs differ otherwise, or as `replay` does.
    """
    old = schedule.graph
    for name in ("pred_ptr", "pred", "relation", "stream", "priority"):
        if getattr(old, name) is not getattr(graph, name) and not np.array_equal(
            getattr(old, name), getattr(graph, name)
        ):
            raise GraphError(f"{name} differs from the graph of the schedule; use rereplay_rewritten")
    if changed_ops is None:
        slower = old.duration_ns != graph.duration_ns
        slower[graph.edge_targets()[old.lag_ns != graph.lag_ns]] = True
        changed = fixed(np.flatnonzero(slower), np.int64)
    else:
        changed = fixed(changed_ops, np.int64).reshape(-1)
        if np.any((changed < 0) | (changed >= len(graph))):
            raise GraphError(f"changed ops are 0 to {len(graph) - 1}")
    if schedule.order == "ready":
        return resume_ready(schedule, graph, changed)
    _expect_recorded(schedule)
    columns = columns_of(graph)
    start, end = schedule.start_ns.copy(), schedule.end_ns.copy()
    bound_by, bound_edge = schedule.bound_by.copy(), schedule.bound_edge.copy()
    end_bound = _end_bound(schedule, columns).copy()
    moved = _marks(len(graph))
    moved[changed] = 1
    return _spread(graph, columns, fan_out, moved, start, end, bound_by, bound_edge, end_bound)


def rereplay_rewritten(
    schedule: Schedule, graph: Graph, old_of_new: ArrayLike, fan_out: FanOut | None = None
) -> tuple[Schedule, int]:
    """The schedule of `graph` (n ops), from that of the graph that it was rewritten from.

    `old_of_new` (n,) int32: the op of the schedule's graph that each op was, -1 for a new op. Ops whose duration,
    incoming edges or place on the stream changed are found by comparison, and all others inherit their times
    unless the change reaches them. Returns as `rereplay` does; `fan_out` is that of the new graph.
    """
    origin = fixed(old_of_new, np.int32)
    if origin.shape != (len(graph),) or (len(origin) and origin.max() >= len(schedule.graph)):
        raise GraphError(
            f"old_of_new has shape {list(origin.shape)}, expected an op below {len(schedule.graph)} or -1 for each "
            f"of {len(graph)} ops"
        )
    if schedule.order == "ready":
        return resume_rewritten(schedule, graph, origin)
    _expect_recorded(schedule)
    columns, old_columns = columns_of(graph), columns_of(schedule.graph)
    fan_out = FanOut.of(graph) if fan_out is None or not fan_out.fits(graph) else fan_out
    old_before, _ = stream_neighbours(old_columns)
    count = len(graph)
    start, end = np.empty(count, np.int64), np.empty(count, np.int64)
    bound_by, bound_edge = np.empty(count, np.int32), np.empty(count, np.int32)
    end_bound = np.empty(count if columns.relations >= 2 else 0, np.int32)
    moved = _marks(count)
    old_times = (schedule.start_ns, schedule.end_ns, schedule.bound_edge, _end_bound(schedule, old_columns))
    new_times = (start, end, bound_by, bound_edge, end_bound)
    _inherit(old_columns, columns, old_before, fan_out.before, origin, old_times, new_times, moved)
    return _spread(graph, columns, fan_out, moved, *new_times)


def _expect_recorded(schedule: Schedule) -> None:
    if schedule.order != "recorded":
        raise GraphError(f"a replay in {schedule.order} order can't go on from an earlier one; use replay")


def _marks(count: int) -> NDArray[np.uint8]:
    """(count,) zeros, padded to whole words of eight marks."""
    return np.zeros(-(-count // 8) * 8, np.uint8)


def _end_bound(schedule: Schedule, columns: Columns) -> NDArray[np.int32]:
    """`end_bound_edge` of `schedule`, empty where no edge of its graph binds an end."""
    if columns.relations < 2:
        return fixed([], np.int32)
    if schedule.end_bound_edge is None:
        return fixed(np.full(len(schedule.start_ns), BY_DURATION), np.int32)
    return fixed(schedule.end_bound_edge, np.int32)


def _spread(
    graph: Graph,
    columns: Columns,
    fan_out: FanOut | None,
    moved: NDArray[np.uint8],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    bound_by: NDArray[np.int32],
    bound_edge: NDArray[np.int32],
    end_bound: NDArray[np.int32],
) -> tuple[Schedule, int]:
    """Evaluate the marked ops again and all that they move; the schedule and the number of evaluations."""
    outward = FanOut.of(graph) if fan_out is None or not fan_out.fits(graph) else fan_out
    evaluated = _evaluate_cone(
        columns, outward.pointer, outward.successor, outward.before, outward.after,
        moved, moved.view(np.uint64), start, end, bound_by, bound_edge, end_bound,
    )  # fmt: skip
    if evaluated < 0:
        refuse(graph)
    told = end_bound if columns.relations >= 2 else None
    return Schedule(graph, start, end, bound_by, bound_edge, "recorded", told), int(evaluated)


@compiled(error_model="numpy")
def _evaluate_cone(
    columns: Any,
    out_ptr: Any,
    successor: Any,
    before: Any,
    after: Any,
    moved: Any,
    words: Any,
    start: Any,
    end: Any,
    bound_by: Any,
    bound_edge: Any,
    end_bound: Any,
) -> Any:  # pragma: no cover - compiled
    """Evaluate marked ops in op order, marking what follows an op whose times changed; -1 as in `_sweep`.

    Marks lie ahead of the op at hand only, since edges and streams go forward; `words` is `moved` in eights.
    """
    pointer, pred, lag, relation = columns.pred_ptr, columns.pred, columns.lag_ns, columns.relation
    tells_end = len(end_bound) > 0
    evaluated, bits = np.int64(0), np.int64(0)
    for word in range(len(words)):
        if words[word] == 0:
            continue
        for op in range(8 * word, 8 * word + 8):
            if moved[op] == 0:
                continue
            evaluated += 1
            earlier = before[op]
            free = end[earlier] if earlier >= 0 else np.int64(0)
            begin, finish, by, edge, floor_edge, seen = place_op(
                op, pointer[op], pointer[op + 1], pred, lag, relation, start, end, columns.duration_ns[op],
                free, earlier,
            )  # fmt: skip
            if seen < 0:
                return np.int64(-1)
            bits |= seen
            bound_by[op], bound_edge[op] = by, edge
            if tells_end:
                end_bound[op] = floor_edge
            if begin == start[op] and finish == end[op]:
                continue
            start[op], end[op] = begin, finish
            for place in range(out_ptr[op], out_ptr[op + 1]):
                moved[successor[place]] = 1
            if after[op] >= 0:
                moved[after[op]] = 1
    return evaluated if np.uint64(bits) < np.uint64(TIME_LIMIT_NS) else np.int64(-1)


@compiled(error_model="numpy")
def _inherit(
    old: Any, columns: Any, old_before: Any, before: Any, origin: Any, old_times: Any, new_times: Any, moved: Any
) -> None:  # pragma: no cover - compiled
    """Give every op the times and bounds it had, and mark those that a changed duration, edge or stream touches."""
    old_start, old_end, old_bound_edge, old_end_bound = old_times
    start, end, bound_by, bound_edge, end_bound = new_times
    for op in range(len(origin)):
        was, earlier = origin[op], before[op]
        if was < 0:
            start[op], end[op], moved[op] = -1, -1, 1
            continue
        start[op], end[op] = old_start[was], old_end[was]
        old_earlier = old_before[was]
        if (
            columns.duration_ns[op] != old.duration_ns[was]
            or (origin[earlier] if earlier >= 0 else np.int32(-1)) != old_earlier
            or (earlier >= 0) != (old_earlier >= 0)
            or not same_edges_in(op, was, columns, old, origin)
        ):
            moved[op] = 1
            continue
        shift = columns.pred_ptr[op] - old.pred_ptr[was]
        edge = np.int64(old_bound_edge[was])
        if edge >= 0:
            bound_by[op], bound_edge[op] = columns.pred[edge + shift], edge + shift
        else:
            bound_by[op], bound_edge[op] = earlier if edge == -1 else np.int32(-1), edge
        if len(end_bound) > 0:
            edge = np.int64(old_end_bound[was]) if len(old_end_bound) > 0 else np.int64(BY_DURATION)
            end_bound[op] = edge + shift if edge >= 0 else edge
