"""Ready order: a causal, work-conserving event simulation; whichever op can run first on a stream, runs first.

An op becomes eligible at the greatest start that its start edges ask for (0 without any), once the instants that
those edges count from have come. An op that has started ends when its duration is over and every finish→finish
and start→finish edge is satisfied, and holds its stream until then.

Time stands still while rounds are run, and moves on to the next event when a round starts nothing that happens
at the same instant. One round:

1. Drain: all that happens at this instant happens, until nothing is left: ops end and free their streams, ops
   become eligible, also those that the drain itself makes eligible without lag.
2. Dispatch: every idle stream with eligible ops starts one, the first by (instant it became eligible, priority,
   op number). A shared stream starts all of them. What a start makes eligible counts in the next round, and so
   does the end of an op without duration; neither depends on the order in which streams are looked at.

On a shared stream k ops run at once, each at 1/k of its rate (see sharing for the rounding); an op that waits
for its end constraints only takes no share.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import Graph
from makespan.schedule import BY_STREAM, Schedule
from makespan.simulator.orders.bounds import explain
from makespan.simulator.orders.columns import TIME_LIMIT_NS, Columns, columns_of, refuse
from makespan.simulator.orders.event_state import (
    DONE,
    ENDED,
    EVENTS,
    HOLDING,
    SERVED,
    TOUCHED,
    EventState,
    announce,
    serve,
    state_at,
)
from makespan.simulator.orders.heaps import pop_event, push_event
from makespan.simulator.orders.prefetch import prefetch
from makespan.simulator.orders.sharing import join_link, pass_time
from makespan.simulator.orders.standstill import report_standstill
from makespan.simulator.orders.waiting import append, take_first, touch


def replay_ready(graph: Graph) -> Schedule:
    """The schedule of `graph` in ready order.

    Raises GraphError where an edge goes backward, where ops wait for one another for ever (with the wait
    cycle), or where times overflow.
    """
    columns = columns_of(graph)
    none = np.zeros(len(graph), np.int64)
    start, end, bound_by, bound_edge = run_events(graph, columns, state_at(graph, columns, none, none, 0), 0)
    end_bound_edge = explain(columns, start, end, bound_by, bound_edge)
    return Schedule(graph, start, end, bound_by, bound_edge, "ready", end_bound_edge)


def run_events(
    graph: Graph, columns: Columns, state: EventState, instant_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Run the event simulation from `state` at `instant_ns` to its end.

    Returns start and end (n,) int64, and `bound_by`, `bound_edge` (n,) int32 as far as the stream explains the
    starts from that instant on (see `bounds.explain`).
    """
    if not _run(state, instant_ns):
        refuse(graph)
    if state.counts[DONE] < len(graph):
        _report_waits(graph, columns, state)
    ops = state.ops
    return ops["start"].copy(), ops["end"].copy(), ops["bound_by"].copy(), ops["bound_edge"].copy()


def _report_waits(graph: Graph, columns: Columns, state: EventState) -> NoReturn:
    """Raise the error that names the ops that wait for one another."""
    unmet = state.ops["unmet"]
    waiting = np.flatnonzero(unmet == 0)
    holder = state.lines["running"][columns.stream[waiting]]
    report_standstill(graph, "ready", unmet < 0, unmet == ENDED, waiting[holder >= 0], holder[holder >= 0])


@compiled(error_model="numpy")
def _run(state: Any, instant: Any) -> Any:  # pragma: no cover - compiled
    """Simulate until nothing is left to happen; False where a time, duration or lag is out of range."""
    ops, out = state.ops, state.out
    lines, queue, counts = state.lines, state.queue, state.counts
    event_time, event, touched = state.event_time, state.event, state.touched
    links = state.links
    count = len(ops)
    started = np.empty(count, np.int32)
    news = np.int64(0)
    size, marked, done = counts[EVENTS], counts[TOUCHED], counts[DONE]
    now, bits = np.int64(instant), np.int64(0)
    while True:
        # Drain: the starts of the last round, then all events of this instant.
        while True:
            if news > 0:
                news -= 1
                op, from_start = np.int64(started[news]), np.int32(1)
            elif size > 0 and event_time[0] == now:
                op, from_start = np.int64(event[0]), np.int32(0)
                size = pop_event(event_time, event, size)
                # The next op to end is known: ask for the ops that it will tell.
                if size > 0 and 0 <= event[0] < count:
                    for place in range(ops[event[0]].first_out, ops[event[0]].last_out):
                        prefetch(ops, np.int64(out[place].successor))
                if op >= count:
                    link = op - count
                    if links.clock[link, 4] == now:
                        size = serve(link, now, size, ops, event_time, event, links)
                    continue
                line = np.int64(ops[op if op >= 0 else ~op].stream)
                if op < 0:
                    op = ~op
                    append(op, line, queue, lines, ops)
                else:
                    ops[op].unmet = ENDED
                    done += 1
                    if lines[line].shared == 0:
                        lines[line].running = -1
                marked = touch(line, lines, touched, marked)
                if ops[op].unmet != ENDED or ops[op].tells & 1 == 0:
                    continue
            else:
                break
            for place in range(ops[op].first_out, ops[op].last_out):
                binding = out[place].relation
                if binding & 1 != from_start:
                    continue
                after = np.int64(out[place].successor)
                time = now + out[place].lag
                bits |= time | out[place].lag
                if binding & 2:
                    ops[after].end = max(ops[after].end, time)
                    ops[after].unmet_ends -= 1
                    if ops[after].unmet_ends == 0 and ops[after].unmet == HOLDING:
                        size = push_event(event_time, event, size, ops[after].end, np.int32(after))
                    continue
                ops[after].start = max(ops[after].start, time)
                ops[after].unmet -= 1
                if ops[after].unmet > 0:
                    continue
                if ops[after].start > now:
                    size = push_event(event_time, event, size, ops[after].start, np.int32(~after))
                    continue
                line = np.int64(ops[after].stream)
                append(after, line, queue, lines, ops)
                marked = touch(line, lines, touched, marked)
        # Dispatch.
        for position in range(marked):
            line = np.int64(touched[position])
            lines[line].touched = 0
            if lines[line].head == lines[line].tail:
                continue
            if lines[line].shared != 0:
                pass_time(line, now, links)
                for place in range(lines[line].head, lines[line].tail):
                    op = np.int64(queue[place])
                    ops[op].start, ops[op].unmet = now, SERVED
                    bits |= ops[op].duration
                    join_link(line, op, ops[op].duration, links)
                    if ops[op].tells & 2:
                        started[news] = op
                        news += 1
                lines[line].head = lines[line].tail
                lines[line].open_at = lines[line].tail
                size = announce(line, size, count, event_time, event, links)
                continue
            if lines[line].running >= 0:
                continue
            op = take_first(line, queue, lines, ops)
            ops[op].start, ops[op].unmet = now, HOLDING
            before = lines[line].latest
            if before >= 0 and ops[before].end == now:
                ops[op].bound_by, ops[op].bound_edge = before, BY_STREAM
            # What the op will tell when it ends, and what the stream will look at then.
            prefetch(out, np.int64(ops[op].first_out))
            prefetch(ops, np.int64(queue[lines[line].head]))
            lines[line].running = op
            lines[line].latest = op
            finish = now + ops[op].duration
            bits |= ops[op].duration | finish
            ops[op].end = max(finish, ops[op].end)
            if ops[op].unmet_ends == 0:
                size = push_event(event_time, event, size, ops[op].end, np.int32(op))
            if ops[op].tells & 2:
                started[news] = op
                news += 1
        marked = np.int64(0)
        if news == 0:
            if size == 0:
                break
            now = event_time[0]
            if bits < 0 or now < 0 or now >= np.int64(TIME_LIMIT_NS):
                return False
    counts[EVENTS], counts[TOUCHED], counts[DONE] = size, marked, done
    return np.uint64(bits) < np.uint64(TIME_LIMIT_NS)
