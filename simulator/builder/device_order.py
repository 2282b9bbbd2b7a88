"""Device order: what each piece of device work waited for, so far as its trace tells.

A work item starts once its launch has reached the device, the work before it on its stream has ended, and what
its stream was told to wait for has ended. Each of these gives an edge with the usual lag. Where the work
started later than all of them explain, the rest stays as a *residual* edge: it replays rightly and says that the
trace does not know why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import EdgeKind, Evidence, Relation
from makespan.trace import EventKind, EventTable

JITTER_NS: Final = 3_000
"""Launch latencies and gaps between kernels scatter by about this much around their usual value."""
EVENT_REACH_NS: Final = 25_000
"""A wait for another stream ends within this time after the awaited work."""
EVENT_CANDIDATES: Final = 6
"""How many of the last ended works are looked at as what a stream waited for."""
ROOM_NS: Final = 10_000
"""A kernel that leaves no room has begun at most this long after the work beside it could have started."""
DEFAULT_LAUNCH_NS: Final = 5_000
DEFAULT_GAP_NS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """d device works in `rows` order: `lane` (d,) int32, 0 on the stream itself, more where works overlap on it.

    Edges lead to device work `target` (k,) from event `source` (k,) (a host call or device work), with `lag_ns`,
    `relation`, `kind`, `evidence` (k,). `source` is -1 where nothing was recorded before: the lag then counts
    from time zero. `launch_latency_ns`, `stream_gap_ns`: the usual values. `overlaps`, `early`: works that
    overlapped on their stream, and works that started before their launch.
    """

    rows: NDArray[np.int32]
    lane: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    lag_ns: NDArray[np.int64]
    relation: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    evidence: NDArray[np.uint8]
    launch_latency_ns: int
    stream_gap_ns: int
    overlaps: int
    early: int


def order_device_work(
    events: EventTable, device: NDArray[np.int32], launch: NDArray[np.int32], origin_ns: int
) -> DeviceOrder:
    """Edges to each of the `device` events from its `launch` (n,), its stream and other streams."""
    rows = device[np.lexsort((device, events.end_ns[device], events.start_ns[device], events.lane[device]))]
    start, end, stream = events.start_ns[rows], events.end_ns[rows], events.lane[rows]
    call = launch[rows]
    launched = call >= 0
    call_start = np.where(launched, events.start_ns[call], np.iinfo(np.int64).min)
    call_end = np.where(launched, events.end_ns[call], np.iinfo(np.int64).min)
    _, first, fan = np.unique(call, return_inverse=True, return_counts=True)
    fans_out = launched & (fan[first] > 1)
    before, reach = _previous_on_stream(start, end, stream)
    has_before = before >= 0
    before_end = np.where(has_before, end[before], np.iinfo(np.int64).min)

    found_idle = launched & (reach < call_start) & (start >= call_start)
    latency = _median(start[found_idle] - call_start[found_idle], DEFAULT_LAUNCH_NS)
    queued = has_before & launched & (call_end < before_end - 20_000) & (start >= before_end)
    gap = _median(start[queued] - before_end[queued], DEFAULT_GAP_NS)

    waited_for = _recorded_stream_waits(events, rows, call_start)
    by_end = np.argsort(end, kind="stable").astype(np.int64)
    fills = events.kind[rows] == EventKind.KERNEL
    beside = _running_beside(np.argsort(start, kind="stable"), start, end, stream, fills)
    columns = _explain(
        start, end, stream, launched, call_start, before, fans_out, waited_for, by_end, end[by_end], beside,
        latency, gap, origin_ns,
    )  # fmt: skip
    source_is_call, source, target, lag, relation, kind, evidence = columns
    source_row = np.where(source_is_call, call[source], rows[source])
    source_row[source < 0] = -1
    return DeviceOrder(
        rows=rows,
        lane=_overlap_lanes(start, end, stream),
        source=source_row.astype(np.int32),
        target=rows[target],
        lag_ns=lag,
        relation=relation,
        kind=kind,
        evidence=evidence,
        launch_latency_ns=latency,
        stream_gap_ns=gap,
        overlaps=int(np.count_nonzero(has_before & (start < before_end))),
        early=int(np.count_nonzero(launched & (start < call_start))),
    )


def _median(values: NDArray[np.int64], default: int) -> int:
    return int(np.median(values)) if len(values) else default


def _recorded_stream_waits(
    events: EventTable, rows: NDArray[np.int32], call_start: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(d,) for each work the place of the work that its stream was told to wait for, else -1.

    A stream-wait record names the stream that waits, the stream on which the event was recorded, and the
    correlation of the recording call: what the latter stream had been given by then is what is awaited, by the
    first work that the former is given afterwards.
    """
    waited = np.full(len(rows), -1, np.int64)
    records = events.attrs.get("wait_on_stream")
    waiting = events.attrs.get("sync_stream")
    recorded = events.attrs.get("wait_on_correlation")
    if records is None or waiting is None or recorded is None:
        return waited
    places = [(lane.device, lane.stream) for lane in events.lanes]
    works: dict[tuple[int, int], NDArray[np.int64]] = {}
    for lane, place in enumerate(places):
        mine = np.flatnonzero(events.lane[rows] == lane)
        if len(mine):
            mine = np.concatenate([works.get(place, np.empty(0, np.int64)), mine])
            works[place] = mine[np.argsort(call_start[mine], kind="stable")]
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation > 0))
    start_of_call = dict(zip(events.correlation[calls].tolist(), events.start_ns[calls].tolist(), strict=True))
    for row in records.rows.tolist():
        # The record lies on the waiting stream's device; streams of other devices are awaited through their own.
        device = places[events.lane[row]][0]
        awaited, waiter = works.get((device, records.get(row))), works.get((device, waiting.get(row)))
        recorded_ns = start_of_call.get(recorded.get(row))
        wait_ns = start_of_call.get(int(events.correlation[row]))
        if awaited is None or waiter is None or awaited is waiter or recorded_ns is None or wait_ns is None:
            continue
        given = int(np.searchsorted(call_start[awaited], recorded_ns))
        following = int(np.searchsorted(call_start[waiter], wait_ns))
        if given and following < len(waiter):
            # A stream runs in order: what it was given last ends last.
            waited[waiter[following]] = awaited[given - 1]
    return waited


@compiled()
def _previous_on_stream(start: Any, end: Any, stream: Any) -> Any:  # pragma: no cover - compiled
    """Place of the latest ended work among those that started before on the stream, and when it ended."""
    before = np.full(len(start), -1, np.int64)
    reach = np.full(len(start), np.iinfo(np.int64).min, np.int64)
    for place in range(1, len(start)):
        if stream[place] == stream[place - 1]:
            former = before[place - 1]
            latest = place - 1 if former < 0 or end[place - 1] >= end[former] else former
            before[place] = latest
            reach[place] = end[latest]
    return before, reach


@compiled()
def _running_beside(by_start: Any, start: Any, end: Any, stream: Any, fills: Any) -> Any:  # pragma: no cover - compiled
    """The kernel of another stream that had been running longest when a work started, -1 none."""
    beside = np.full(len(start), -1, np.int64)
    running = np.full(64, -1, np.int64)
    for work in by_start:
        for slot in range(len(running)):
            other = running[slot]
            if other < 0 or end[other] <= start[work]:
                running[slot] = -1
            elif stream[other] != stream[work] and start[other] < start[work]:
                beside[work] = other if beside[work] < 0 or start[other] < start[beside[work]] else beside[work]
        if fills[work]:
            for slot in range(len(running)):
                if running[slot] < 0:
                    running[slot] = work
                    break
    return beside


@compiled()
def _overlap_lanes(start: Any, end: Any, stream: Any) -> Any:  # pragma: no cover - compiled
    """First lane of its stream that is free when a work starts."""
    lane = np.zeros(len(start), np.int32)
    free_from = np.zeros(1024, np.int64)
    used = 0
    for place in range(len(start)):
        if place == 0 or stream[place] != stream[place - 1]:
            used = 0
        which = 0
        while which < used and free_from[which] > start[place]:
            which += 1
        which = min(which, len(free_from) - 1)
        used = max(used, which + 1)
        free_from[which] = end[place]
        lane[place] = which
    return lane


@compiled()
def _explain(
    start: Any, end: Any, stream: Any, launched: Any, call_start: Any, before: Any, fans_out: Any, waited_for: Any,
    by_end: Any, sorted_end: Any, beside: Any, latency: int, gap: int, origin: int,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    room = 4 * len(start) + 1
    is_call = np.zeros(room, np.bool_)
    source = np.empty(room, np.int64)
    target = np.empty(room, np.int64)
    lag = np.empty(room, np.int64)
    relation = np.zeros(room, np.uint8)
    kind = np.empty(room, np.uint8)
    evidence = np.zeros(room, np.uint8)
    made = 0
    for work in range(len(start)):
        explained = np.iinfo(np.int64).min
        binding = -1
        if launched[work]:
            delay = max(start[work] - call_start[work], 0)
            usual = delay if delay <= latency + JITTER_NS else latency
            is_call[made], source[made], target[made], lag[made] = True, work, work, usual
            relation[made] = Relation.START_START
            kind[made] = EdgeKind.GRAPH if fans_out[work] else EdgeKind.LAUNCH
            explained, binding = call_start[work] + usual, made
            made += 1
        former = before[work]
        if former >= 0:
            source[made], target[made], kind[made] = former, work, EdgeKind.STREAM
            if start[work] >= end[former]:
                delay = start[work] - end[former]
                lag[made] = delay if delay <= gap + gap // 2 + JITTER_NS else gap
                reached = end[former] + lag[made]
            else:
                # Overlap on one stream: all that is known is how long after the former's start it could begin.
                relation[made], evidence[made] = Relation.START_START, Evidence.INFERRED
                lag[made] = start[work] - start[former]
                reached = start[work]
            if reached >= explained:
                explained, binding = reached, made
            made += 1
        if waited_for[work] >= 0 and end[waited_for[work]] <= start[work]:
            other = waited_for[work]
            source[made], target[made], kind[made] = other, work, EdgeKind.EVENT
            delay = start[work] - end[other]
            lag[made] = delay if delay <= EVENT_REACH_NS else 0
            if end[other] + lag[made] >= explained:
                explained, binding = end[other] + lag[made], made
            made += 1
        rest = start[work] - explained if binding >= 0 else start[work] - origin
        if rest <= 0:
            continue
        if binding < 0:
            source[made], target[made], lag[made], kind[made] = -1, work, rest, EdgeKind.ORIGIN
            evidence[made] = Evidence.RESIDUAL
            made += 1
            continue
        # Work of another stream that ended just before the start is most likely what held this one up.
        awaited = np.int64(-1)
        if rest > JITTER_NS:
            place = np.searchsorted(sorted_end, start[work], side="right") - 1
            for back in range(EVENT_CANDIDATES):
                if place - back < 0 or start[work] - sorted_end[place - back] > EVENT_REACH_NS:
                    break
                other = by_end[place - back]
                if stream[other] != stream[work] and start[other] < start[work]:
                    awaited = other
                    break
        source[made], target[made] = source[binding], work
        neighbour = beside[work]
        if awaited >= 0:
            # What was launched later can't have been awaited: it only made room.
            came_first = call_start[awaited] <= call_start[work]
            source[made], lag[made] = awaited, start[work] - end[awaited]
            kind[made] = EdgeKind.EVENT if came_first else EdgeKind.ROOM
            evidence[made] = Evidence.INFERRED
        elif rest > JITTER_NS and neighbour >= 0 and start[neighbour] <= explained + ROOM_NS:
            source[made], lag[made], kind[made] = neighbour, start[work] - start[neighbour], EdgeKind.ROOM
            relation[made], evidence[made] = Relation.START_START, Evidence.INFERRED
        else:
            is_call[made], relation[made], kind[made] = is_call[binding], relation[binding], kind[binding]
            lag[made], evidence[made] = lag[binding] + rest, Evidence.RESIDUAL
        made += 1
    return (
        is_call[:made],
        source[:made],
        target[:made],
        lag[:made],
        relation[:made],
        kind[:made],
        evidence[:made],
    )
