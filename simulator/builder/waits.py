"""Waits: which host calls waited, for what, and which thread woke which.

All rules work on times and correlations. A call that shares a correlation with device work is a launch; only
for calls that *wait* is a word of the name needed, since nothing else in a trace marks them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from makespan.simulator.builder.enqueued import find_enqueuing_calls
from makespan.trace import NONE, EventKind, EventTable, LaneKind

CLOCK_SLACK_NS: Final = 2_000
"""Host and device stamps of one trace disagree by up to this much."""
BLOCKING_COPY_NS: Final = 20_000
"""A copy call longer than this, which returned after its copy had ended, waited for it."""
QUEUE_MIN_DEPTH: Final = 500
"""Launch queues hold about 1,000 entries; below this depth no launch is blocked by a full queue."""
QUEUE_FULL_SHARE: Final = 0.8
"""Blocked launches are looked for from this share of the deepest queue seen."""
SLOW_LAUNCH_NS: Final = 30_000
"""A launch takes 5 to 10 us; beyond this it may have been blocked."""
HANDOFF_GAP_NS: Final = 30_000
"""A thread idle for longer may have been woken by another."""
HANDOFF_REACH_NS: Final = 2_000_000
"""A thread that woke later than this after the other's last op was not woken by it."""

_SYNCHRONISES: Final = re.compile(r"synchroni[sz]e", re.IGNORECASE)
# Freeing device memory waits for the whole device, as the runtimes' manuals say; asynchronous and host frees don't.
_FREES: Final = re.compile(r"^(cuda|hip|cu)(Mem)?Free(_v2)?$")


@dataclass(frozen=True, slots=True)
class HostWaits:
    """For each event: `target` (n,) int32, the device event that its call awaited, -1 none; `blocked_launch`
    (n,) bool, where the wait was for room in the launch queue.
    """

    target: NDArray[np.int32]
    blocked_launch: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Threads set to work by others, k rows.

    Thread `lane` (k,) went to work at `woken_ns` (k,), having been idle since `idle_from_ns` (k,). It was woken by the
    end of event `source` (k,) of another thread, or, where `enqueued` (k,) is set, given work by the call `source`.
    """

    lane: NDArray[np.int32]
    woken_ns: NDArray[np.int64]
    idle_from_ns: NDArray[np.int64]
    source: NDArray[np.int32]
    enqueued: NDArray[np.bool_]


def find_launches(events: EventTable, host: NDArray[np.int32], device: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n,) int32: for each device event the host call with its correlation (the earliest), else -1."""
    launch = np.full(len(events), NONE, np.int32)
    calls = host[events.correlation[host] > 0]
    calls = calls[np.lexsort((events.start_ns[calls], events.correlation[calls]))]
    keys = events.correlation[calls]
    place = np.searchsorted(keys, events.correlation[device])
    found = place < len(keys)
    found[found] = keys[place[found]] == events.correlation[device[found]]
    launch[device[found]] = calls[place[found]]
    return launch


def find_host_waits(
    events: EventTable, host: NDArray[np.int32], device: NDArray[np.int32], launch: NDArray[np.int32]
) -> HostWaits:
    """Synchronising calls, blocking copies and blocked launches among `host` with the device work they awaited.

    The awaited work of a synchronisation is the last device event that ended inside the call and had been
    launched before it; work whose launch was not recorded counts as launched before.
    """
    target = np.full(len(events), NONE, np.int32)
    blocked = np.zeros(len(events), np.bool_)
    if not len(device):
        return HostWaits(target, blocked)
    by_end = device[np.argsort(events.end_ns[device], kind="stable")]
    end_ns = events.end_ns[by_end]
    launched_ns = np.where(launch[by_end] >= 0, events.start_ns[launch[by_end]], np.iinfo(np.int64).min)
    streams = np.fromiter((lane.stream for lane in events.lanes), np.int64, len(events.lanes))
    stream = streams[events.lane[by_end]]

    waits_by_name = np.fromiter((_SYNCHRONISES.search(name) is not None for name in events.names), np.bool_)
    frees_by_name = np.fromiter((_FREES.match(name) is not None for name in events.names), np.bool_)
    runtime = host[events.kind[host] == EventKind.RUNTIME]
    syncs = runtime[waits_by_name[events.name[runtime]]]
    awaited_stream = _awaited_stream(events, syncs)
    found = _last_ended_inside(
        events.start_ns[syncs],
        events.end_ns[syncs],
        awaited_stream,
        end_ns,
        launched_ns,
        stream,
        CLOCK_SLACK_NS,
    )
    target[syncs] = np.where(found >= 0, by_end[found], NONE)

    frees = runtime[frees_by_name[events.name[runtime]] & (events.duration_ns[runtime] > BLOCKING_COPY_NS)]
    everywhere = np.full(len(frees), NONE, np.int64)
    found = _last_ended_inside(events.start_ns[frees], events.end_ns[frees], everywhere, end_ns, launched_ns, stream, 0)
    idle_after = _device_is_idle(events, device, launch, events.end_ns[frees])
    target[frees] = np.where((found >= 0) & idle_after, by_end[found], NONE)

    copies = device[(events.kind[device] == EventKind.MEMCPY) & (launch[device] >= 0)]
    call = launch[copies]
    waited = (
        (events.duration_ns[call] > BLOCKING_COPY_NS)
        & (events.end_ns[copies] <= events.end_ns[call] + CLOCK_SLACK_NS)
        & (events.end_ns[copies] > events.start_ns[call])
    )
    target[call[waited]] = copies[waited]

    launched = device[launch[device] >= 0]
    launched = launched[np.argsort(events.start_ns[launch[launched]], kind="stable")]
    first = np.ones(len(launched), np.bool_)
    first[1:] = launch[launched[1:]] != launch[launched[:-1]]
    calls = launch[launched]
    room = _room_made(
        events.start_ns[calls], events.end_ns[calls], np.sort(events.end_ns[launched]),
        QUEUE_MIN_DEPTH, QUEUE_FULL_SHARE, SLOW_LAUNCH_NS,
    )  # fmt: skip
    waited = (room >= 0) & first & (target[calls] < 0)
    by_launched_end = launched[np.argsort(events.end_ns[launched], kind="stable")]
    target[calls[waited]] = by_launched_end[room[waited]]
    blocked[calls[waited]] = True
    return HostWaits(target, blocked)


def find_handoffs(events: EventTable, host: NDArray[np.int32]) -> Handoffs:
    """Threads that went to work right after another of their process had ended an op, or on its call.

    A thread works while an op is open and at the moments at which a user's range or step begins or ends on it.
    """
    works = (EventKind.CPU_OP, EventKind.RUNTIME, EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)
    ops = host[np.isin(events.kind[host], works)]
    hosts = np.fromiter((lane.kind != LaneKind.DEVICE for lane in events.lanes), np.bool_, len(events.lanes))
    ranges = np.flatnonzero(np.isin(events.kind, (EventKind.ANNOTATION, EventKind.STEP)) & hosts[events.lane])
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
    enqueuing = np.where(is_op, find_enqueuing_calls(events, host)[rows], NONE)
    chosen = np.flatnonzero((woken_by >= 0) | (enqueuing >= 0))
    before = np.maximum(chosen - 1, 0)
    goes_on = (lane[before] == lane[chosen]) & (chosen > 0)
    enqueued = enqueuing[chosen] >= 0
    return Handoffs(
        lane=lane[chosen],
        woken_ns=start[chosen],
        idle_from_ns=np.where(goes_on, end[before], np.iinfo(np.int64).min),
        source=np.where(enqueued, enqueuing[chosen], rows[woken_by[chosen]]).astype(np.int32),
        enqueued=enqueued,
    )


def _awaited_stream(events: EventTable, syncs: NDArray[np.int32]) -> NDArray[np.int64]:
    """(k,) the stream that a synchronisation record names for each call, -1 for all."""
    awaited = np.full(len(syncs), NONE, np.int64)
    column = events.attrs.get("sync_stream")
    if column is None:
        return awaited
    records = column.rows[events.correlation[column.rows] > 0]
    known = {int(events.correlation[row]): column.get(int(row)) for row in records}
    whole_device = re.compile(r"(device|ctx|context)synchroni[sz]e", re.IGNORECASE)
    for place, row in enumerate(syncs):
        stream = known.get(int(events.correlation[row]))
        # Kineto writes the unsigned "no stream" marker as a huge number.
        if stream is not None and 0 <= stream < 2**31 and not whole_device.search(events.name_of(int(row))):
            awaited[place] = stream
    return awaited


def _device_is_idle(
    events: EventTable, device: NDArray[np.int32], launch: NDArray[np.int32], at_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(k,) whether everything launched before `at_ns` had ended by then."""
    launched_ns = np.where(launch[device] >= 0, events.start_ns[launch[device]], events.start_ns[device])
    begun = np.searchsorted(np.sort(launched_ns), at_ns, side="right")
    ended = np.searchsorted(np.sort(events.end_ns[device]), at_ns, side="right")
    return ended >= begun


@njit(cache=True)
def _last_ended_inside(
    call_start: Any, call_end: Any, awaited: Any, end_ns: Any, launched_ns: Any, stream: Any, slack: int
) -> Any:  # pragma: no cover - compiled
    found = np.full(len(call_start), -1, np.int64)
    for call in range(len(call_start)):
        place = np.searchsorted(end_ns, call_end[call] + slack, side="right") - 1
        while place >= 0 and end_ns[place] > call_start[call]:
            right_stream = awaited[call] < 0 or stream[place] == awaited[call]
            if right_stream and launched_ns[place] <= call_start[call]:
                found[call] = place
                break
            place -= 1
    return found


@njit(cache=True)
def _room_made(
    call_start: Any, call_end: Any, end_ns: Any, min_depth: int, full_share: float, slow_ns: int
) -> Any:  # pragma: no cover - compiled
    """For each launch in time order: the device event (place in end order) whose end let it go on, else -1."""
    count = len(call_start)
    depth = np.empty(count, np.int64)
    deepest = 0
    for call in range(count):
        depth[call] = call + 1 - np.searchsorted(end_ns, call_start[call], side="right")
        deepest = max(deepest, depth[call])
    found = np.full(count, -1, np.int64)
    if deepest < min_depth:
        return found
    for call in range(count):
        if call_end[call] - call_start[call] > slow_ns and depth[call] >= full_share * deepest:
            place = np.searchsorted(end_ns, call_end[call], side="right") - 1
            if place >= 0 and end_ns[place] > call_start[call]:
                found[call] = place
    return found


@njit(cache=True)
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


@njit(cache=True)
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
