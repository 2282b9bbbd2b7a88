"""dPRO order: the rule of the dPRO replayer (MLSys 2022), kept to compare with what that tool reports.

Every stream, shared or not, is one queue with a clock of its own. Until no queue has ops: of the streams with
queued ops take the one with the smallest clock (then the first in `graph.streams`), and of its ops the first by
(priority, ready time, order of arrival); dPRO's classes are priorities FW 0, OUTPUT 1, BW 2, UPDATE 3, else 100.
The op starts at the later of its ready time and the clock, the clock moves to its end, and every successor's
ready time is raised to that end (or start) plus the edge's lag; the last edge that is met queues the successor.

This is not an event simulation. A stream behind in time runs ops that are ready later before ops that are ready
earlier but not yet queued, an op of a better class is waited for while others could run, and the iteration time
is the end of the op that was executed last on a rank, even where another ended later.

A fusion buffer is a stream that a tensor holds over several ops: ops with the attribute `fusion_buffer` (n,) 1
(takes) or 2 (takes, and releases at its end) hold their stream for their `group`; ops of other groups that come
up meanwhile are parked, and each release queues the one parked first again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.errors import GraphError
from makespan.graph import Graph
from makespan.schedule import BY_NOTHING, BY_STREAM, Schedule
from makespan.simulator.orders.bounds import explain
from makespan.simulator.orders.columns import TIME_LIMIT_NS, columns_of, fixed, refuse
from makespan.simulator.orders.fanout import edges_out
from makespan.simulator.orders.heaps import pop_op, push_op
from makespan.simulator.orders.standstill import report_standstill

HOLD_ATTR: Final = "fusion_buffer"
_RELEASES: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class DproReplay:
    """What dPRO's rule makes of a graph of n ops.

    `schedule` has order "dpro"; its makespan is the latest end. `executed` (n,) int32: the ops in the order of
    execution. `iteration_ns`: what dPRO calls the iteration time, the greatest over ranks of the end of the
    op that was executed last; it can be shorter than the makespan.
    """

    schedule: Schedule
    executed: NDArray[np.int32]
    iteration_ns: int


def replay_dpro(graph: Graph) -> DproReplay:
    """Replay `graph` by dPRO's rule.

    Raises GraphError where an edge goes backward or binds an end (dPRO has no such edges), where ops wait for
    one another for ever (dPRO itself ends silently, the ops missing), or where times overflow.
    """
    columns = columns_of(graph)
    if columns.relations >= 2:
        raise GraphError("the dpro order knows no edges that bind an end; replay in recorded or ready order")
    count, streams = len(graph), len(graph.streams)
    hold = fixed(graph.attrs.get(HOLD_ATTR, np.zeros(count, np.uint8)), np.uint8)
    group = fixed(graph.group, np.int32)
    outward = edges_out(columns, graph)
    start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    bound_by, bound_edge = np.full(count, -1, np.int32), np.full(count, BY_NOTHING, np.int32)
    executed, unmet = np.empty(count, np.int32), np.diff(columns.pred_ptr).astype(np.int32)
    holder = np.full(streams, -1, np.int32)
    done = _execute(columns, *outward, hold, group, start, end, bound_by, bound_edge, executed, unmet, holder)
    if done < 0:
        refuse(graph)
    if done < count:
        _report_waits(graph, hold, unmet, holder, executed[:done])
    end_bound_edge = explain(columns, start, end, bound_by, bound_edge)
    schedule = Schedule(graph, start, end, bound_by, bound_edge, "dpro", end_bound_edge)
    last_of_rank = executed[::-1][np.unique(graph.rank[executed[::-1]], return_index=True)[1]]
    return DproReplay(schedule, executed, int(end[last_of_rank].max()) if count else 0)


def _report_waits(
    graph: Graph,
    hold: NDArray[np.uint8],
    unmet: NDArray[np.int32],
    holder: NDArray[np.int32],
    executed: NDArray[np.int32],
) -> NoReturn:
    """Raise the error that names the ops that wait for one another; parked ops wait for the buffer's release."""
    ended = np.zeros(len(graph), np.bool_)
    ended[executed] = True
    waits: list[tuple[int, int]] = []
    for stream in np.flatnonzero(holder >= 0):
        members = np.flatnonzero((graph.stream == stream) & ~ended & (hold > 0))
        releases = members[(graph.group[members] == holder[stream]) & (hold[members] == _RELEASES)]
        parked = members[(graph.group[members] != holder[stream]) & (unmet[members] == 0)]
        waits.extend((int(op), int(release)) for op in parked for release in releases)
    pairs = np.array(waits, np.int64).reshape(-1, 2)
    report_standstill(graph, "dpro", ended, ended, pairs[:, 0], pairs[:, 1])


@compiled(error_model="numpy")
def _execute(
    columns: Any,
    out_ptr: Any,
    successor: Any,
    out_edge: Any,
    hold: Any,
    group: Any,
    start: Any,
    end: Any,
    bound_by: Any,
    bound_edge: Any,
    executed: Any,
    unmet: Any,
    holder: Any,
) -> Any:  # pragma: no cover - compiled
    """Fill the columns; the number of executed ops, or -1 where a time is out of range.

    `start` holds ready times until an op runs; `holder` ends as the group that holds each stream, -1 for none.
    """
    lag, relation, stream, duration = columns.lag_ns, columns.relation, columns.stream, columns.duration_ns
    count, streams = len(stream), len(columns.shared)
    queue_at = np.zeros(streams + 1, np.int64)
    releases = np.int64(0)
    for op in range(count):
        queue_at[stream[op] + 1] += 1
        releases += hold[op] == _RELEASES
    for line in range(streams):
        queue_at[line + 1] += queue_at[line]
    # Queues hold arrival numbers, so that the last tie is broken by arrival; a release can queue an op anew.
    queue, queued = np.empty(count, np.int32), np.zeros(streams, np.int64)
    arrived = np.empty(count + releases, np.int32)
    class_of, ready_of = np.empty(count + releases, np.int32), np.empty(count + releases, np.int64)
    arrivals = np.int64(0)
    # Streams with queued ops, as a heap by (clock, number).
    lines, open_lines, is_open = np.empty(streams, np.int32), np.int64(0), np.zeros(streams, np.uint8)
    clock, level, latest = np.zeros(streams, np.int64), np.zeros(streams, np.int64), np.full(streams, -1, np.int32)
    parked, parked_last = np.full(streams, -1, np.int32), np.full(streams, -1, np.int32)
    parked_after = np.full(count, -1, np.int32)
    coming, expected = np.empty(count, np.int32), np.int64(0)
    for op in range(count):
        if unmet[op] == 0:
            coming[expected] = op
            expected += 1
    done, bits = np.int64(0), np.int64(0)
    while True:
        for position in range(expected):
            op = np.int64(coming[position])
            line = np.int64(stream[op])
            arrived[arrivals], class_of[arrivals], ready_of[arrivals] = op, columns.priority[op], start[op]
            queued[line] = push_op(queue, queue_at[line], queued[line], np.int32(arrivals), class_of, ready_of)
            arrivals += 1
            if is_open[line] == 0:
                is_open[line] = 1
                open_lines = push_op(lines, 0, open_lines, np.int32(line), clock, level)
        expected = np.int64(0)
        if open_lines == 0:
            break
        line = np.int64(lines[0])
        open_lines = pop_op(lines, 0, open_lines, clock, level)
        op = np.int64(arrived[queue[queue_at[line]]])
        queued[line] = pop_op(queue, queue_at[line], queued[line], class_of, ready_of)
        if hold[op] != 0 and holder[line] >= 0 and holder[line] != group[op]:
            if parked[line] < 0:
                parked[line] = op
            else:
                parked_after[parked_last[line]] = op
            parked_last[line], parked_after[op] = op, -1
        else:
            if hold[op] != 0:
                holder[line] = group[op]
            begin = max(start[op], clock[line])
            finish = begin + duration[op]
            bits |= duration[op] | finish
            before = latest[line]
            if before >= 0 and end[before] == begin:
                bound_by[op], bound_edge[op] = before, BY_STREAM
            start[op], end[op], clock[line], latest[line] = begin, finish, finish, op
            executed[done] = op
            done += 1
            for place in range(out_ptr[op], out_ptr[op + 1]):
                edge, after = out_edge[place], np.int64(successor[place])
                time = (begin if relation[edge] & 1 else finish) + lag[edge]
                bits |= time | lag[edge]
                start[after] = max(start[after], time)
                unmet[after] -= 1
                if unmet[after] == 0:
                    coming[expected] = after
                    expected += 1
            if hold[op] == _RELEASES:
                holder[line] = -1
                if parked[line] >= 0:
                    coming[expected] = parked[line]
                    expected += 1
                    parked[line] = parked_after[parked[line]]
        if queued[line] > 0:
            open_lines = push_op(lines, 0, open_lines, np.int32(line), clock, level)
        else:
            is_open[line] = 0
    return done if np.uint64(bits) < np.uint64(TIME_LIMIT_NS) else np.int64(-1)
