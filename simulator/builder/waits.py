"""Waits: which host calls waited, and for what.

All rules work on times and correlations. A call that shares a correlation with device work is a launch; only
for calls that *wait* is a word of the name needed, since nothing else in a trace marks them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.trace import NONE, EventKind, EventTable

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
    places = np.array([(lane.device, lane.stream) for lane in events.lanes], np.int64).reshape(-1, 2)
    place = places[events.lane[by_end]]

    waits_by_name = np.fromiter((_SYNCHRONISES.search(name) is not None for name in events.names), np.bool_)
    frees_by_name = np.fromiter((_FREES.match(name) is not None for name in events.names), np.bool_)
    runtime = host[events.kind[host] == EventKind.RUNTIME]
    syncs = runtime[waits_by_name[events.name[runtime]]]
    awaited = np.stack(_awaited_place(events, syncs), axis=1)
    found = _last_ended_inside(
        events.start_ns[syncs], events.end_ns[syncs], awaited, end_ns, launched_ns, place, CLOCK_SLACK_NS
    )
    target[syncs] = np.where(found >= 0, by_end[found], NONE)

    frees = runtime[frees_by_name[events.name[runtime]] & (events.duration_ns[runtime] > BLOCKING_COPY_NS)]
    anywhere = np.full((len(frees), 2), NONE, np.int64)
    found = _last_ended_inside(events.start_ns[frees], events.end_ns[frees], anywhere, end_ns, launched_ns, place, 0)
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


def _awaited_place(events: EventTable, syncs: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(k,), (k,) the device and the stream that a synchronisation record names for each call, -1 for any."""
    device, stream = np.full(len(syncs), NONE, np.int64), np.full(len(syncs), NONE, np.int64)
    column = events.attrs.get("sync_stream")
    if column is None:
        return device, stream
    records = {int(events.correlation[row]): int(row) for row in column.rows if events.correlation[row] > 0}
    whole_device = re.compile(r"(device|ctx|context)synchroni[sz]e", re.IGNORECASE)
    for place, row in enumerate(syncs):
        record = records.get(int(events.correlation[row]))
        if record is None:
            continue
        device[place] = events.lanes[events.lane[record]].device
        named = column.get(record)
        # Kineto writes the unsigned "no stream" marker as a huge number.
        if 0 <= named < 2**31 and not whole_device.search(events.name_of(int(row))):
            stream[place] = named
    return device, stream


def _device_is_idle(
    events: EventTable, device: NDArray[np.int32], launch: NDArray[np.int32], at_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(k,) whether everything launched before `at_ns` had ended by then."""
    launched_ns = np.where(launch[device] >= 0, events.start_ns[launch[device]], events.start_ns[device])
    begun = np.searchsorted(np.sort(launched_ns), at_ns, side="right")
    ended = np.searchsorted(np.sort(events.end_ns[device]), at_ns, side="right")
    return ended >= begun


@compiled()
def _last_ended_inside(
    call_start: Any, call_end: Any, awaited: Any, end_ns: Any, launched_ns: Any, place_of: Any, slack: int
) -> Any:  # pragma: no cover - compiled
    found = np.full(len(call_start), -1, np.int64)
    for call in range(len(call_start)):
        place = np.searchsorted(end_ns, call_end[call] + slack, side="right") - 1
        while place >= 0 and end_ns[place] > call_start[call]:
            right_device = awaited[call, 0] < 0 or place_of[place, 0] == awaited[call, 0]
            right_stream = awaited[call, 1] < 0 or place_of[place, 1] == awaited[call, 1]
            if right_device and right_stream and launched_ns[place] <= call_start[call]:
                found[call] = place
                break
            place -= 1
    return found


@compiled()
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
