"""Rank edges: what was found about threads, waits, hand-offs and devices, as edges between a rank's ops."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import NONE, EdgeKind, Edges, Evidence, Relation
from makespan.simulator.builder.device_order import DeviceOrder
from makespan.simulator.builder.handoffs import Handoffs
from makespan.simulator.builder.host_order import HostSegments
from makespan.simulator.builder.waits import HostWaits
from makespan.trace import EventTable

ENQUEUE_JITTER_NS: Final = 100_000
"""A worker thread comes to a collective about this much earlier or later than usual."""


def thread_edges(segments: HostSegments, woken: NDArray[np.int64], origin_ns: int) -> Edges:
    """Program order; a thread whose first segment is not among the `woken` ones starts when it was first seen."""
    following = np.arange(1, len(segments.lane))
    same = segments.lane[1:] == segments.lane[:-1]
    order = Edges.of(following[same] - 1, following[same], kind=EdgeKind.THREAD)
    first = np.flatnonzero(np.concatenate([[True], ~same])) if len(segments.lane) else np.empty(0, np.int64)
    first = np.setdiff1d(first, woken)
    start = Edges.of(
        np.full(len(first), NONE), first, segments.start_ns[first] - origin_ns,
        kind=EdgeKind.ORIGIN, evidence=Evidence.RESIDUAL,
    )  # fmt: skip
    return Edges.concatenate([order, start])


def first_segments(segments: HostSegments, lane: NDArray[np.int32], at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """(k,) the first segment of each `lane` (k,) that starts at `at_ns` (k,) or later, NONE where there is none."""
    found = np.empty(len(lane), np.int64)
    for one in np.unique(lane):
        first, last = np.searchsorted(segments.lane, (one, one + 1))
        place = first + np.searchsorted(segments.start_ns[first:last], at_ns[lane == one])
        found[lane == one] = np.where(place < last, place, NONE)
    return found


def handoff_edges(events: EventTable, segments: HostSegments, handoffs: Handoffs, woken: NDArray[np.int64]) -> Edges:
    """From what set a thread to work to the segment `woken` (k,) that it began with, -1 none."""
    works = woken >= 0  # a lane that holds nothing but ranges has no segment to wake
    by_end = ~handoffs.enqueued & works
    source, at_ns = handoffs.source[by_end], handoffs.woken_ns[by_end]
    # A span that its worker closed late had let the waiting thread go before: after a part of its run.
    late = events.end_ns[source] > at_ns
    woke = Edges.of(
        np.where(late, segments.first_segment[source], segments.last_segment[source]),
        woken[by_end],
        at_ns - np.where(late, events.start_ns[source], events.end_ns[source]),
        np.where(late, Relation.START_START, Relation.FINISH_START),
        EdgeKind.HANDOFF,
        Evidence.INFERRED,
    )
    on_call = handoffs.enqueued & works
    source, spans = handoffs.source[on_call], woken[on_call]
    calls = segments.first_segment[source]
    idle_from, called = handoffs.idle_from_ns[on_call], events.start_ns[source]
    delay = handoffs.woken_ns[on_call] - called
    # A worker that is still busy with the collective before comes to this one when that is done; only what a
    # free worker takes to come is the lag of the call.
    busy = idle_from > called
    gap = handoffs.woken_ns[on_call] - np.maximum(idle_from, called)
    usual = int(np.median(delay[~busy])) if not np.all(busy) else 0
    late = gap > 2 * usual + ENQUEUE_JITTER_NS
    lag = np.where(busy | late, np.minimum(delay, usual), delay)
    started = Edges.of(calls, spans, lag, Relation.START_START, EdgeKind.LAUNCH, Evidence.INFERRED)
    went_on = Edges.of(
        spans[busy & ~late] - 1, spans[busy & ~late], gap[busy & ~late],
        kind=EdgeKind.STREAM, evidence=Evidence.INFERRED,
    )  # fmt: skip
    # A worker that came to its work later than usual was held up by something the trace doesn't show.
    held_up = Edges.of(calls[late], spans[late], delay[late], Relation.START_START, EdgeKind.LAUNCH, Evidence.RESIDUAL)
    return Edges.concatenate([woke, started, went_on, held_up])


def wait_edges(segments: HostSegments, waits: HostWaits, work_op: NDArray[np.int32]) -> Edges:
    """From awaited device work to what its caller did afterwards; `work_op` (n,) is the op of each device event."""
    callers = np.flatnonzero((waits.target >= 0) & (segments.wait_segment >= 0))
    kind = np.where(waits.blocked_launch[callers], EdgeKind.QUEUE, EdgeKind.SYNC)
    return Edges.of(
        work_op[waits.target[callers]], segments.wait_segment[callers], 0, kind=kind, evidence=Evidence.INFERRED
    )


def device_edges(segments: HostSegments, order: DeviceOrder, work_op: NDArray[np.int32]) -> Edges:
    """What each device work waited for; a source of -1 is the trace's origin."""
    from_host = (order.source >= 0) & (work_op[order.source] < 0)
    source = np.where(from_host, segments.first_segment[order.source], work_op[order.source])
    source[order.source < 0] = NONE
    return Edges(
        source.astype(np.int32),
        work_op[order.target],
        order.lag_ns,
        order.relation,
        order.kind,
        order.evidence,
    )
