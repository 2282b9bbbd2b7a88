"""Event state: what an event simulation knows at one instant, rebuilt from the times before that instant."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import Graph
from makespan.schedule import BY_NOTHING
from makespan.simulator.orders.columns import TIME_LIMIT_NS, Columns, fixed, refuse
from makespan.simulator.orders.heaps import push_event
from makespan.simulator.orders.prefetch import prefetch
from makespan.simulator.orders.sharing import Links, join_link, leave_link, next_done, pass_time
from makespan.simulator.orders.waiting import append, touch

HOLDING: Final = -1
"""In `unmet`: started; ends by itself or once its end constraints are met."""
SERVED: Final = -2
"""In `unmet`: started on a shared stream, with work left."""
ENDED: Final = -3
"""In `unmet`: ended."""

EVENTS: Final = 0
TOUCHED: Final = 1
DONE: Final = 2


_OP: Final = np.dtype(
    [("start", "i8"), ("end", "i8"), ("duration", "i8"), ("first_out", "i4"), ("last_out", "i4"), ("stream", "i4"),
     ("priority", "i4"), ("unmet", "i4"), ("unmet_ends", "i4"), ("bound_by", "i4"), ("bound_edge", "i4"),
     ("tells", "i8")]
)  # fmt: skip
"""All that concerns one op fills one cache line of 64 bytes: event by event, ops are met in no order of memory."""
_OUT: Final = np.dtype([("lag", "i8"), ("successor", "i4"), ("relation", "i4")])
_STREAM: Final = np.dtype(
    [("head", "i8"), ("open_at", "i8"), ("tail", "i8"), ("running", "i4"), ("latest", "i4"), ("touched", "i4"),
     ("shared", "i4")]
)  # fmt: skip
_LINE_BYTES: Final = 64
_AHEAD: Final = 16
"""Edges between the one at hand and the one whose predecessor's record is asked for."""


class EventState(NamedTuple):
    """The arrays of a running event simulation of n ops on s streams, m edges.

    `ops` (n,) records. `start`, `end`: before an op starts, the greatest start and end asked for so far; the start
    of a started op is final, its end is the earliest possible. `duration`, `stream`, `priority` as in the graph.
    `unmet`: start constraints whose instant has not come, or HOLDING, SERVED, ENDED; `unmet_ends`: the same count
    for the end. `bound_by`, `bound_edge`: what the stream explains of the start. `first_out`, `last_out`: the
    op's run of `out` (m,) records, which hold `lag`, `successor` and `relation` of the edges that leave an op;
    `tells`: bit 0 set where some of them count from its end, bit 1 where some count from its start.

    `lines` (s,) records. `running`: the op on the stream, `latest`: the op that started there last, -1 for none.
    `head`, `open_at`, `tail`: its eligible ops in `queue` (n+1,) int32 (see waiting). `touched`: whether the stream
    is in `touched` (s,) int32, the list of those on which an op may start now. `shared`: 1 where it is shared.
    `event_time`, `event`: heap of what is to come, the event being an op number for its end, n + stream for a
    shared stream of which an op is done, ~op for the instant at which an op becomes eligible. `counts`:
    numbers of events, touched streams and ended ops. `links`: what else concerns shared streams.
    """

    ops: NDArray[Any]
    out: NDArray[Any]
    lines: NDArray[Any]
    queue: NDArray[np.int32]
    event_time: NDArray[np.int64]
    event: NDArray[np.int32]
    touched: NDArray[np.int32]
    counts: NDArray[np.int64]
    links: Links


def state_at(
    graph: Graph, columns: Columns, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], instant_ns: int
) -> EventState:
    """The state at the beginning of `instant_ns`, given all times before it.

    `start_ns`, `end_ns` (n,) int64: of the ops that start or end before the instant, their times; of all
    others anything not before it (zeros do for instant 0). Raises GraphError where an edge goes backward.
    """
    count, streams = len(columns.stream), len(columns.shared)
    on_shared = columns.shared.astype(np.bool_)[columns.stream] if columns.shared.any() else np.empty(0, np.bool_)
    queue_at = np.cumsum(np.bincount(columns.stream, minlength=streams)) - np.bincount(
        columns.stream, minlength=streams
    )
    lines = np.zeros(streams, _STREAM)
    lines["head"] = lines["open_at"] = lines["tail"] = queue_at
    lines["running"] = lines["latest"] = -1
    lines["shared"] = columns.shared
    # An op has one event at most; a shared stream announces anew when an op joins or leaves it.
    events = count + streams + 2 * int(np.count_nonzero(on_shared))
    state = EventState(
        ops=_in_cache_lines(count, _OP),
        out=_in_cache_lines(len(columns.pred), _OUT),
        lines=lines,
        queue=np.zeros(count + 1, np.int32),  # one more, so that looking at the head of an empty run is harmless
        event_time=np.empty(events, np.int64),
        event=np.empty(events, np.int32),
        touched=np.empty(streams, np.int32),
        counts=np.zeros(3, np.int64),
        links=Links(
            clock=np.zeros((streams if len(on_shared) else 0, 5), np.int64),
            first=queue_at,
            members=np.empty(len(on_shared), np.int32),
            goal=np.empty(len(on_shared), np.int64),
            goal_part=np.empty(len(on_shared), np.int64),
        ),
    )
    eligible = np.empty(count, np.int32)
    found = _rebuild(columns, state, fixed(start_ns, np.int64), fixed(end_ns, np.int64), instant_ns, eligible)
    if found < 0:
        refuse(graph)
    if instant_ns > 0:
        eligible[:found] = eligible[:found][np.argsort(state.ops["start"][eligible[:found]], kind="stable")]
    _enqueue(state, eligible[:found])
    if len(on_shared):
        state.links.clock[:, 4] = TIME_LIMIT_NS
        joined = np.flatnonzero(on_shared & (start_ns < instant_ns))
        _rejoin(state, joined[np.argsort(start_ns[joined], kind="stable")], instant_ns)
    return state


def _in_cache_lines(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """(count,) records of which none crosses a cache line that needn't."""
    memory = np.empty(count * dtype.itemsize + _LINE_BYTES, np.uint8)
    offset = -memory.ctypes.data % _LINE_BYTES
    return memory[offset : offset + count * dtype.itemsize].view(dtype)


@compiled(error_model="numpy")
def serve(
    link: Any, now: Any, size: Any, ops: Any, event_time: Any, event: Any, links: Any
) -> Any:  # pragma: no cover - compiled
    """Bring `link` to `now`, let the ops whose work is done leave it, and announce its next instant.

    `size` is the number of events; returns the new number.
    """
    pass_time(link, now, links)
    op = leave_link(link, links)
    while op >= 0:
        ops[op].unmet = HOLDING
        ops[op].end = max(now, ops[op].end)
        if ops[op].unmet_ends == 0:
            size = push_event(event_time, event, size, ops[op].end, np.int32(op))
        op = leave_link(link, links)
    return announce(link, size, len(ops), event_time, event, links)


@compiled(error_model="numpy")
def announce(
    link: Any, size: Any, count: Any, event_time: Any, event: Any, links: Any
) -> Any:  # pragma: no cover - compiled
    """Put the instant at which the next of `count` ops is done on `link` among the `size` events, if it is new."""
    following = next_done(link, links)
    if following == links.clock[link, 4]:
        return size
    links.clock[link, 4] = following
    if following >= np.int64(TIME_LIMIT_NS):
        return size
    return push_event(event_time, event, size, following, np.int32(count + link))


@compiled(error_model="numpy")
def _rebuild(
    columns: Any, state: Any, start_ns: Any, end_ns: Any, instant: Any, ready: Any
) -> Any:  # pragma: no cover - compiled
    """Everything but the shared streams, in op order: what an op waits for is known before it.

    Fills `ready` with the ops that are eligible but not started, and returns their number; -1 where an edge
    doesn't come from an earlier op.
    """
    pointer, pred, lag, relation = columns.pred_ptr, columns.pred, columns.lag_ns, columns.relation
    stream, duration, priority, shared = columns.stream, columns.duration_ns, columns.priority, columns.shared
    ops, out = state.ops, state.out
    event_time, event, counts = state.event_time, state.event, state.counts
    size, found = np.int64(0), np.int64(0)
    for op in range(len(stream)):
        line = stream[op]
        ops[op].duration, ops[op].stream, ops[op].priority = duration[op], line, priority[op]
        ops[op].bound_by, ops[op].bound_edge = -1, BY_NOTHING
        ops[op].last_out, ops[op].tells = 0, 0
        begun, ended = start_ns[op] < instant, end_ns[op] < instant
        eligible, floor = np.int64(0), np.int64(0)
        waits, end_waits = np.int32(0), np.int32(0)
        for place in range(pointer[op], pointer[op + 1]):
            if place + _AHEAD < len(pred):
                prefetch(ops, np.int64(pred[place + _AHEAD]))
            before, binding = pred[place], relation[place]
            if np.uint64(before) >= np.uint64(op):
                return np.int64(-1)
            ops[before].last_out += 1
            ops[before].tells |= 2 if binding & 1 else 1
            met = ops[before].unmet < 0 if binding & 1 else ops[before].unmet == ENDED
            time = (ops[before].start if binding & 1 else ops[before].end) + lag[place]
            if binding & 2:
                if met:
                    floor = max(floor, time)
                else:
                    end_waits += 1
            elif met:
                eligible = max(eligible, time)
            else:
                waits += 1
        ops[op].unmet_ends = end_waits
        if ended:
            ops[op].start, ops[op].end, ops[op].unmet = start_ns[op], end_ns[op], ENDED
            counts[DONE] += 1
        elif begun and shared[line] != 0:
            ops[op].start, ops[op].end, ops[op].unmet = start_ns[op], floor, SERVED
        elif begun:
            ops[op].start, ops[op].end, ops[op].unmet = start_ns[op], max(start_ns[op] + duration[op], floor), HOLDING
            state.lines[line].running = op
            state.lines[line].latest = op
            if end_waits == 0:
                size = push_event(event_time, event, size, ops[op].end, np.int32(op))
        else:
            ops[op].start, ops[op].end, ops[op].unmet = eligible, floor, waits
            if waits == 0 and eligible > instant:
                size = push_event(event_time, event, size, eligible, np.int32(~op))
            elif waits == 0:
                ready[found] = op
                found += 1
    counts[EVENTS] = size
    total = np.int32(0)
    for op in range(len(stream)):
        ops[op].first_out = total
        total += ops[op].last_out
        ops[op].last_out = ops[op].first_out
    for op in range(len(stream)):
        for place in range(pointer[op], pointer[op + 1]):
            if place + _AHEAD < len(pred):
                prefetch(ops, np.int64(pred[place + _AHEAD]))
                prefetch(out, np.int64(ops[pred[place + _AHEAD // 2]].last_out))
            slot = ops[pred[place]].last_out
            ops[pred[place]].last_out = slot + 1
            out[slot].lag, out[slot].successor, out[slot].relation = lag[place], op, relation[place]
    return found


@compiled(error_model="numpy")
def _enqueue(state: Any, ready: Any) -> None:  # pragma: no cover - compiled
    """Queue the eligible ops, given in the order in which they became so."""
    for op in ready:
        line = np.int64(state.ops[op].stream)
        append(np.int64(op), line, state.queue, state.lines, state.ops)
        state.counts[TOUCHED] = touch(line, state.lines, state.touched, state.counts[TOUCHED])


@compiled(error_model="numpy")
def _serve_until(link: Any, until: Any, ops: Any, links: Any) -> None:  # pragma: no cover - compiled
    """Let all ops leave `link` whose work is done before `until`."""
    while links.clock[link, 4] < until:
        now = links.clock[link, 4]
        pass_time(link, now, links)
        op = leave_link(link, links)
        while op >= 0:
            if ops[op].unmet == SERVED:
                ops[op].unmet = HOLDING
                ops[op].end = max(now, ops[op].end)
            op = leave_link(link, links)
        links.clock[link, 4] = next_done(link, links)


@compiled(error_model="numpy")
def _rejoin(state: Any, joined: Any, instant: Any) -> None:  # pragma: no cover - compiled
    """Let the shared streams serve again what joined them before the instant, in order of joining."""
    ops, links, event_time, event, counts = state.ops, state.links, state.event_time, state.event, state.counts
    for op in joined:
        now, link = ops[op].start, np.int64(ops[op].stream)
        _serve_until(link, now + 1, ops, links)
        pass_time(link, now, links)
        join_link(link, op, ops[op].duration, links)
        links.clock[link, 4] = next_done(link, links)
    for link in range(len(links.clock)):
        _serve_until(link, instant, ops, links)
        links.clock[link, 4] = TIME_LIMIT_NS
        counts[EVENTS] = announce(link, counts[EVENTS], len(ops), event_time, event, links)
    for op in joined:
        if ops[op].unmet == HOLDING and ops[op].unmet_ends == 0:
            counts[EVENTS] = push_event(event_time, event, counts[EVENTS], ops[op].end, np.int32(op))
