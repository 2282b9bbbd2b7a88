"""Contended order: ready order in which computation and communication of one rank slow each other down.

Who starts when is decided as in ready order, round by round (see ready). But the work of an op that contends (see
contention) goes at a pace that changes while it runs (see paces), and its duration is what it would take by itself.

The durations of the schedule's graph are those that ops really took: an op that was slowed lasts from its start until
its work was done, on a shared stream including what it lost to other ops there. So a schedule explains itself as in
any other order, and replays of its graph in other orders keep the contention found here. The attribute `uncontended_ns`
holds the durations that were given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from makespan.compiled import compiled
from makespan.graph import Graph
from makespan.schedule import BY_STREAM, Schedule
from makespan.simulator.orders.alarms import set_alarm, silent_alarms
from makespan.simulator.orders.bounds import explain
from makespan.simulator.orders.columns import TIME_LIMIT_NS, columns_of, fixed, refuse
from makespan.simulator.orders.contention import CHANGED, FRESH, UNCONTENDED_ATTR, contention_of
from makespan.simulator.orders.event_state import DONE, ENDED, EVENTS, HOLDING, SERVED, TOUCHED, state_at
from makespan.simulator.orders.heaps import pop_event, push_event
from makespan.simulator.orders.paces import begin_work, end_work, settle
from makespan.simulator.orders.sharing import join_link, leave_link, next_done, pass_time
from makespan.simulator.orders.standstill import report_standstill
from makespan.simulator.orders.waiting import append, take_first, touch


def replay_contended(graph: Graph) -> Schedule:
    """The schedule of `graph` in contended order; that of ready order where no op contends.

    Raises GraphError where the attributes are out of range (see contention), where an edge goes backward, where ops
    wait for one another for ever (with the wait cycle), or where times overflow.
    """
    columns = columns_of(graph)
    contention = contention_of(graph, columns)
    none = np.zeros(len(graph), np.int64)
    state = state_at(graph, columns, none, none, 0)
    within = _run(state, contention, silent_alarms(len(graph.streams)))
    ops, unmet = state.ops, state.ops["unmet"]
    # Work that is left when nothing more is to come would be done beyond the limit of time.
    if not within or np.any(unmet == SERVED):
        refuse(graph)
    if state.counts[DONE] < len(graph):
        waiting = np.flatnonzero(unmet == 0)
        holder = state.lines["running"][columns.stream[waiting]]
        report_standstill(graph, "contended", unmet < 0, unmet == ENDED, waiting[holder >= 0], holder[holder >= 0])
    start, end = ops["start"].copy(), ops["end"].copy()
    bound_by, bound_edge = ops["bound_by"].copy(), ops["bound_edge"].copy()
    columns = columns._replace(duration_ns=fixed(contention.took_ns, np.int64))
    end_bound_edge = explain(columns, start, end, bound_by, bound_edge)
    if np.any(contention.rivals["role"]):
        attrs = {**graph.attrs, UNCONTENDED_ATTR: graph.duration_ns}
        graph = graph.replace(duration_ns=contention.took_ns, attrs=attrs)
    return Schedule(graph, start, end, bound_by, bound_edge, "contended", end_bound_edge)


@compiled("numpy")
def _run(state: Any, contention: Any, alarms: Any) -> Any:  # pragma: no cover - compiled
    """Simulate until nothing is left to happen; False where a time, duration or lag is out of range.

    Shared streams and the ops that contend tell by alarm when a work is done, everything else is an event.
    """
    ops, out = state.ops, state.out
    lines, queue, counts, links = state.lines, state.queue, state.counts, state.links
    event_time, event, touched = state.event_time, state.event, state.touched
    due, first_due = alarms.due, alarms.heap
    rivals, changes = contention.rivals, contention.counts
    limit = np.int64(TIME_LIMIT_NS)
    started = np.empty(len(ops), np.int32)
    news = np.int64(0)
    size, marked, done = counts[EVENTS], counts[TOUCHED], counts[DONE]
    now, bits = np.int64(0), np.int64(0)
    while True:
        # Drain: the starts of the last round, then all works that are done and all events of this instant.
        while True:
            if news > 0:
                news -= 1
                op, from_start = np.int64(started[news]), np.int32(1)
            elif due[first_due[0]] == now:
                size = _finish_works(np.int64(first_due[0]), now, size, state, contention, alarms)
                continue
            elif size > 0 and event_time[0] == now:
                op, from_start = np.int64(event[0]), np.int32(0)
                size = pop_event(event_time, event, size)
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
                    if rivals[op].role != 0:
                        begin_work(op, contention)
                    else:
                        join_link(line, op, ops[op].duration, links)
                    if ops[op].tells & 2:
                        started[news] = op
                        news += 1
                lines[line].head = lines[line].tail
                lines[line].open_at = lines[line].tail
                set_alarm(line, next_done(line, links), alarms)
                continue
            if lines[line].running >= 0:
                continue
            op = take_first(line, queue, lines, ops)
            ops[op].start = now
            before = lines[line].latest
            if before >= 0 and ops[before].end == now:
                ops[op].bound_by, ops[op].bound_edge = before, BY_STREAM
            lines[line].running = op
            lines[line].latest = op
            bits |= ops[op].duration
            if rivals[op].role != 0:
                ops[op].unmet = SERVED
                begin_work(op, contention)
            else:
                ops[op].unmet = HOLDING
                finish = now + ops[op].duration
                bits |= finish
                ops[op].end = max(finish, ops[op].end)
                if ops[op].unmet_ends == 0:
                    size = push_event(event_time, event, size, ops[op].end, np.int32(op))
            if ops[op].tells & 2:
                started[news] = op
                news += 1
        marked = np.int64(0)
        if news > 0 or due[first_due[0]] == now or (size > 0 and event_time[0] == now):
            continue
        # Time moves on, at the paces that what happened at this instant has left.
        if changes[FRESH] + changes[CHANGED] > 0:
            settle(now, ops, lines, links, contention, alarms)
        following = due[first_due[0]]
        if size > 0:
            following = min(following, event_time[0])
        elif following >= limit:
            break
        now = following
        if bits < 0 or now < 0 or now >= limit:
            return False
    counts[DONE] = done
    return np.uint64(bits) < np.uint64(TIME_LIMIT_NS)


@compiled("numpy")
def _finish_works(
    line: Any, now: Any, size: Any, state: Any, contention: Any, alarms: Any
) -> Any:  # pragma: no cover - compiled
    """Let the ops of `line` whose work is done at `now` hold their stream or end; returns the number of events.

    `size` is that number before.
    """
    ops, links, rivals = state.ops, state.links, contention.rivals
    shared = state.lines[line].shared != 0
    if shared:
        pass_time(line, now, links)
    op = leave_link(line, links) if shared else np.int64(state.lines[line].running)
    while op >= 0:
        ops[op].unmet = HOLDING
        ops[op].end = max(now, ops[op].end)
        if rivals[op].role != 0:
            end_work(op, now, ops, contention)
        if ops[op].unmet_ends == 0:
            size = push_event(state.event_time, state.event, size, ops[op].end, np.int32(op))
        op = leave_link(line, links) if shared else np.int64(-1)
    set_alarm(line, next_done(line, links) if shared else np.int64(TIME_LIMIT_NS), alarms)
    return size
