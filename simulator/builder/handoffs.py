"""Hand-offs: which host thread set which other to work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.simulator.builder.enqueued import find_enqueuing_calls
from makespan.trace import NONE, EventKind, EventTable, LaneKind

HANDOFF_GAP_NS: Final = 30_000
"""A thread idle for longer may have been woken by another."""
HANDOFF_REACH_NS: Final = 2_000_000
"""A thread that woke later than this after the other's last op was not woken by it."""
LATE_SPAN_NS: Final = 5_000_000
"""A worker thread closes a collective's span up to this long after it has let a waiting thread go."""


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Threads set to work by others, k rows.

    Thread `lane` (k,) went to work at `woken_ns` (k,), having been idle since `idle_from_ns` (k,). It was woken by
    the end (or, inside an explicit wait, shortly before the end) of event `source` (k,) of another thread, or,
    where `enqueued` (k,) is set, given work by the call `source`.
    """

    lane: NDArray[np.int32]
    woken_ns: NDArray[np.int64]
    idle_from_ns: NDArray[np.int64]
    source: NDArray[np.int32]
    enqueued: NDArray[np.bool_]


def find_handoffs(events: EventTable, host: NDArray[np.int32]) -> Handoffs:
    """Threads that went to work right after another of their process had ended an op, or on its call.

    A thread works while an op is open and at the moments at which a user's range or step begins or ends on it.
    """
    works = (EventKind.CPU_OP, EventKind.RUNTIME, EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)
    ops = host[np.isin(events.kind[host], works)]
    hosts = np.fromiter((lane.kind != LaneKind.DEVICE for lane in events.lanes), np.bool_, len(events.lanes))
    marks = (EventKind.ANNOTATION, EventKind.STEP, EventKind.WAIT)
    ranges = np.flatnonzero(np.isin(events.kind, marks) & hosts[events.lane])
    rows = np.concatenate([ops, ranges, ranges])
    start = np.concatenate([events.start_ns[ops], events.start_ns[ranges], events.end_ns[ranges]])
    end = np.concatenate([events.end_ns[ops], events.start_ns[ranges], events.end_ns[ranges]])
    order = np.lexsort((-end, start, events.lane[rows]))
    order = order[_is_outermost(start[order], end[order], events.lane[rows[order]])]
    is_op, start, end, rows = order < len(ops), start[order], end[order], rows[order]
    lane = events.lane[rows]

    codes: dict[str, int] = {}
    process = np.fromiter(
        (codes.setdefault(place.process, len(codes)) for place in events.lanes), np.int64, len(events.lanes)
    )
    bounds = np.searchsorted(lane, np.arange(len(events.lanes) + 1))
    woken_by = _last_ended_elsewhere(start, end, lane, is_op, bounds, process, HANDOFF_GAP_NS, HANDOFF_REACH_NS)
    source = np.where(woken_by >= 0, rows[woken_by], NONE)
    _find_late_spans(events, host, lane, start, end, bounds, process, source)
    enqueuing = np.where(is_op, find_enqueuing_calls(events, host)[rows], NONE)
    chosen = np.flatnonzero((source >= 0) | (enqueuing >= 0))
    before = np.maximum(chosen - 1, 0)
    goes_on = (lane[before] == lane[chosen]) & (chosen > 0)
    enqueued = enqueuing[chosen] >= 0
    return Handoffs(
        lane=lane[chosen],
        woken_ns=start[chosen],
        idle_from_ns=np.where(goes_on, end[before], np.iinfo(np.int64).min),
        source=np.where(enqueued, enqueuing[chosen], source[chosen]).astype(np.int32),
        enqueued=enqueued,
    )


def _find_late_spans(
    events: EventTable,
    host: NDArray[np.int32],
    lane: NDArray[np.int32],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    bounds: NDArray[np.int64],
    process: NDArray[np.int64],
    source: NDArray[np.int64],
) -> None:
    """Where a thread was idle inside an explicit wait and nothing woke it, fill in the collective that let it go.

    `lane`, `start`, `end`, `source` (m,) are the moments of work by lane and time; a lane's lie between its `bounds`.
    """
    spans = host[events.kind[host] == EventKind.COLLECTIVE]
    spans = spans[np.argsort(events.end_ns[spans], kind="stable")]
    for wait in host[events.kind[host] == EventKind.WAIT].tolist():
        first, last = bounds[events.lane[wait]], bounds[events.lane[wait] + 1]
        inside = np.flatnonzero((end[first:last] >= events.start_ns[wait]) & (start[first:last] <= events.end_ns[wait]))
        for row in (first + inside)[1:].tolist():
            woken_ns, idle_from = start[row], end[row - 1]
            if source[row] >= 0 or woken_ns - idle_from <= HANDOFF_GAP_NS:
                continue
            fits = (events.end_ns[spans] > woken_ns) & (events.end_ns[spans] <= woken_ns + LATE_SPAN_NS)
            fits &= events.start_ns[spans] < woken_ns
            fits &= process[events.lane[spans]] == process[lane[row]]
            if np.any(fits):
                source[row] = spans[fits][0]


@compiled()
def _is_outermost(start_ns: Any, end_ns: Any, lane: Any) -> Any:  # pragma: no cover - compiled
    outermost = np.zeros(len(start_ns), np.bool_)
    reach = np.int64(0)
    for row in range(len(start_ns)):
        if row == 0 or lane[row] != lane[row - 1] or start_ns[row] >= reach:
            outermost[row] = True
            reach = end_ns[row]
        else:
            reach = max(reach, end_ns[row])
    return outermost


@compiled()
def _last_ended_elsewhere(
    start_ns: Any, end_ns: Any, lane: Any, is_op: Any, bounds: Any, process: Any, gap_ns: int, reach_ns: int
) -> Any:  # pragma: no cover - compiled
    """For each outermost event the one of another lane that ended last before it, within its thread's idle time."""
    found = np.full(len(start_ns), -1, np.int64)
    lanes = len(bounds) - 1
    for row in range(len(start_ns)):
        is_first = row == 0 or lane[row] != lane[row - 1]
        idle_from = np.iinfo(np.int64).min if is_first else end_ns[row - 1]
        if not is_first and start_ns[row] - idle_from <= gap_ns:
            continue
        latest = max(idle_from, start_ns[row] - reach_ns)
        for other in range(lanes):
            if other == lane[row] or process[other] != process[lane[row]]:
                continue
            lower, upper = bounds[other], bounds[other + 1]
            place = lower + np.searchsorted(end_ns[lower:upper], start_ns[row], side="right") - 1
            # Of two that begin and end at one moment neither woke the other.
            while place >= lower and (not is_op[place] or start_ns[place] >= start_ns[row]):
                place -= 1
            if place >= lower and end_ns[place] > latest:
                latest = end_ns[place]
                found[row] = place
    return found
