"""Rank graph: the ops and edges of one rank, in the rank's own numbering, before ranks are put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import NONE, Edges, OpKind, Relation, Step, Stream, StreamKind
from makespan.simulator.builder.device_order import DeviceOrder, order_device_work
from makespan.simulator.builder.handoffs import Handoffs, find_handoffs
from makespan.simulator.builder.host_order import Boundaries, HostSegments, IdleSpans, cut_segments
from makespan.simulator.builder.ranges import innermost_ranges
from makespan.simulator.builder.rank_edges import (
    device_edges,
    first_segments,
    handoff_edges,
    thread_edges,
    wait_edges,
)
from makespan.simulator.builder.waits import HostWaits, find_host_waits, find_launches
from makespan.trace import EventKind, EventTable, LaneKind, RankTrace

WHOLE_TRACE: Final = "whole trace"
"""Name of the only step of a rank in which no step was marked."""
ISSUE_NS: Final = 3_000
"""What a waiting call does before it waits: about the length of one that finds nothing to wait for."""

_HOST_WORK: Final = (
    EventKind.CPU_OP, EventKind.RUNTIME, EventKind.PYTHON, EventKind.WAIT, EventKind.COLLECTIVE, EventKind.SEND,
    EventKind.RECV, EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.OTHER,
)  # fmt: skip
_DEVICE_WORK: Final = (
    EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV,
    EventKind.CPU_OP, EventKind.OTHER,
)  # fmt: skip
OP_KIND: Final = {
    EventKind.CPU_OP: OpKind.HOST, EventKind.RUNTIME: OpKind.RUNTIME, EventKind.PYTHON: OpKind.PYTHON,
    EventKind.WAIT: OpKind.WAIT, EventKind.KERNEL: OpKind.COMPUTE, EventKind.MEMCPY: OpKind.MEMCPY,
    EventKind.MEMSET: OpKind.MEMSET, EventKind.COLLECTIVE: OpKind.COLLECTIVE, EventKind.SEND: OpKind.SEND,
    EventKind.RECV: OpKind.RECV,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankGraph:
    """One rank's ops (n,) and `edges` in its own numbering; an edge from op -1 starts at the trace's origin.

    `start_ns` (n,) int64 as recorded; `outer` (n,) int32 the outermost event around a host op; `user_range` (n,)
    int32 the innermost annotation around a host op or the launch of device work; `event` (n,) int32;
    `name` (n,) int32 into `names`. `notes`: what was found on the way, by reason.
    """

    streams: tuple[Stream, ...]
    stream: NDArray[np.int32]
    kind: NDArray[np.uint8]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    event: NDArray[np.int32]
    outer: NDArray[np.int32]
    user_range: NDArray[np.int32]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    step: NDArray[np.int32]
    step_names: tuple[str, ...]
    steps: tuple[Step, ...]
    edges: Edges
    notes: dict[str, int]


def build_rank_graph(part: RankTrace, origin_ns: int) -> RankGraph:
    """The graph of one rank from instants; `origin_ns` is time zero on the rank's own clock."""
    events = part.events
    on_device = np.fromiter((lane.kind == LaneKind.DEVICE for lane in events.lanes), np.bool_, len(events.lanes))
    at_device = on_device[events.lane]
    host = np.flatnonzero(~at_device & np.isin(events.kind, _HOST_WORK)).astype(np.int32)
    device = np.flatnonzero(at_device & np.isin(events.kind, _DEVICE_WORK)).astype(np.int32)
    marks = np.flatnonzero(~at_device & (events.kind == EventKind.STEP)).astype(np.int32)

    launch = find_launches(events, host, device)
    waits = find_host_waits(events, host, device, launch)
    handoffs = find_handoffs(events, host)
    segments = _cut(events, host, marks, waits, handoffs)
    order = order_device_work(events, device, launch, origin_ns)
    return _join(part, segments, order, waits, handoffs, launch, marks, origin_ns)


def mark_whole_trace(graph: RankGraph, rank: int, origin_ns: int) -> RankGraph:
    """The graph with one step from the origin to a meeting point of everything that nothing else waits for.

    Its measured length is 0, which stands for none, where durations are recorded but no starts.
    """
    count = len(graph.kind)
    # An op that only its start was waited for may itself end last.
    by_end = (graph.edges.relation & Relation.START_START) == 0
    last = np.setdiff1d(np.arange(count), graph.edges.source[by_end])
    end_ns = int((graph.start_ns + graph.duration_ns).max()) if count else origin_ns
    timed = count < 2 or bool(np.any(graph.start_ns != graph.start_ns[0]))
    columns = {
        "stream": len(graph.streams), "kind": OpKind.BARRIER, "start_ns": end_ns, "duration_ns": 0, "size_bytes": 0,
        "event": NONE, "outer": NONE, "user_range": NONE, "name": len(graph.names),
    }  # fmt: skip
    grown = {
        key: np.concatenate([getattr(graph, key), np.array([value], getattr(graph, key).dtype)])
        for key, value in columns.items()
    }
    return replace(
        graph,
        **grown,
        streams=(*graph.streams, Stream(rank, "trace end", StreamKind.HOST)),
        names=(*graph.names, "trace end"),
        step=np.zeros(count + 1, np.int32),
        step_names=(WHOLE_TRACE,),
        steps=(Step(WHOLE_TRACE, rank, NONE, count, origin_ns, end_ns if timed else origin_ns),),
        edges=Edges.concatenate([graph.edges, Edges.of(last, np.full(len(last), count))]),
    )


def _cut(
    events: EventTable,
    host: NDArray[np.int32],
    marks: NDArray[np.int32],
    waits: HostWaits,
    handoffs: Handoffs,
) -> HostSegments:
    start, end = events.start_ns, events.end_ns
    callers = np.flatnonzero(waits.target >= 0).astype(np.int32)
    until = np.clip(end[waits.target[callers]], start[callers], end[callers])
    idle = IdleSpans.of(
        np.concatenate([events.lane[callers], handoffs.lane]),
        np.concatenate([np.minimum(start[callers] + ISSUE_NS, until), handoffs.idle_from_ns]),
        np.concatenate([until, handoffs.woken_ns]),
        np.concatenate([callers, np.full(len(handoffs.lane), NONE, np.int32)]),
    )
    boundaries = Boundaries(
        np.tile(_lanes_of_marks(events, host, marks), 2),
        np.concatenate([start[marks], end[marks]]),
        np.repeat([False, True], len(marks)),
    )
    return cut_segments(start, end, events.lane, host, events.kind == EventKind.PYTHON, idle, boundaries)


def _lanes_of_marks(events: EventTable, host: NDArray[np.int32], marks: NDArray[np.int32]) -> NDArray[np.int32]:
    """(k,) the lane that each mark is about: its own or, where nothing runs there, the one that its start sets off.

    Exported timelines draw steps on a lane of their own. The work of a step begins with it, on its main thread.
    """
    own = events.lane[marks]
    alone = ~np.isin(own, events.lane[host])
    if not np.any(alone) or not len(host):
        return own
    begins = events.start_ns[marks[alone]]
    delays: dict[int, float] = {}
    for lane in np.unique(events.lane[host]).tolist():
        starts = np.sort(events.start_ns[host[events.lane[host] == lane]])
        place = np.searchsorted(starts, begins)
        delay = starts[np.minimum(place, len(starts) - 1)] - begins
        delays[lane] = float(np.median(np.where(place < len(starts), delay, np.inf)))
    return np.where(alone, min(delays, key=lambda lane: delays[lane]), own).astype(np.int32)


def _join(
    part: RankTrace,
    segments: HostSegments,
    order: DeviceOrder,
    waits: HostWaits,
    handoffs: Handoffs,
    launch: NDArray[np.int32],
    marks: NDArray[np.int32],
    origin_ns: int,
) -> RankGraph:
    events = part.events
    hosts, works = len(segments.lane), len(order.rows)
    work_op = np.full(len(events), NONE, np.int32)
    work_op[order.rows] = np.arange(hosts, hosts + works, dtype=np.int32)

    op_kind = np.full(max(EventKind) + 1, OpKind.OTHER, np.uint8)
    for event_kind, kind in OP_KIND.items():
        op_kind[event_kind] = kind
    host_kind = np.where(segments.owner >= 0, op_kind[events.kind[segments.owner]], OpKind.THINK)
    host_kind[segments.is_wait] = OpKind.WAIT
    device_kind = op_kind[events.kind[order.rows]]
    device_kind[device_kind == OpKind.HOST] = OpKind.COMPUTE

    streams, host_stream, device_stream = _name_streams(part, segments, order)
    names = (*events.names, "think time")
    host_name = np.where(segments.owner >= 0, events.name[segments.owner], len(names) - 1)
    event = np.concatenate([segments.owner, order.rows])
    sizes = events.attrs.get("bytes")
    size = np.zeros(hosts + works, np.int64)
    if sizes is not None and len(events):
        known = sizes.dense(len(events), 0).astype(np.int64)
        # A host event's segments share one payload: only its first carries it.
        carries = np.concatenate([segments.first_segment[segments.owner] == np.arange(hosts), np.ones(works, np.bool_)])
        size = np.where((event >= 0) & carries, np.maximum(known[event], 0), 0)
    start_ns = np.concatenate([segments.start_ns, events.start_ns[order.rows]])

    woken = first_segments(segments, handoffs.lane, handoffs.woken_ns)
    edges = Edges.concatenate(
        [
            thread_edges(segments, woken, origin_ns),
            handoff_edges(events, segments, handoffs, woken),
            wait_edges(segments, waits, work_op),
            device_edges(segments, order, work_op),
        ]
    )
    step, step_names, steps = _find_steps(part, segments, order, launch, marks)
    notes = {
        "host events cut to the end of the event around them": segments.clipped,
        "device work without a recorded launch": int(np.count_nonzero(launch[order.rows] < 0)),
        "device work that overlaps on its stream": order.overlaps,
        "device work that starts before its launch": order.early,
        "host calls that waited for device work": int(np.count_nonzero((waits.target >= 0) & ~waits.blocked_launch)),
        "launches blocked by a full queue": int(np.count_nonzero(waits.blocked_launch)),
        "threads woken by another": len(handoffs.lane),
    }
    return RankGraph(
        streams=streams,
        stream=np.concatenate([host_stream, device_stream]),
        kind=np.concatenate([host_kind, device_kind]).astype(np.uint8),
        start_ns=start_ns,
        duration_ns=np.concatenate([segments.duration_ns, events.duration_ns[order.rows]]),
        size_bytes=size,
        event=event,
        outer=np.concatenate([segments.outer, np.full(works, NONE, np.int32)]),
        user_range=_find_ranges(events, segments, order, launch),
        name=np.concatenate([host_name, events.name[order.rows]]).astype(np.int32),
        names=names,
        step=step,
        step_names=step_names,
        steps=steps,
        edges=edges,
        notes={reason: count for reason, count in notes.items() if count},
    )


def _name_streams(
    part: RankTrace, segments: HostSegments, order: DeviceOrder
) -> tuple[tuple[Stream, ...], NDArray[np.int32], NDArray[np.int32]]:
    """Streams in use, and the stream of each host segment and of each device work."""
    lanes = part.events.lanes
    streams: dict[tuple[int, int], Stream] = {}
    number: dict[tuple[int, int], int] = {}

    def stream_of(lane: int, extra: int) -> int:
        key = (lane, extra)
        if key not in number:
            place = lanes[lane]
            kind = StreamKind.DEVICE if place.kind == LaneKind.DEVICE else StreamKind.HOST
            name = place.label or place.thread
            if extra:
                name = f"{name} (overlap {extra})"
            number[key] = len(streams)
            # Damaged traces name devices of any number.
            device = place.device if 0 <= place.device < 2**31 else NONE
            streams[key] = Stream(part.rank, name.strip(), kind, device)
        return number[key]

    host = np.zeros(len(segments.lane), np.int32)
    for lane in np.unique(segments.lane):
        host[segments.lane == lane] = stream_of(int(lane), 0)
    pair = part.events.lane[order.rows].astype(np.int64) << 32 | order.lane
    device = np.zeros(len(order.rows), np.int32)
    for value in np.unique(pair):
        device[pair == value] = stream_of(int(value >> 32), int(value & 0xFFFFFFFF))
    return tuple(streams.values()), host, device


def _find_ranges(
    events: EventTable, segments: HostSegments, order: DeviceOrder, launch: NDArray[np.int32]
) -> NDArray[np.int32]:
    """The innermost user range around each host segment, and around the launch of each device work."""
    call = launch[order.rows]
    lane = np.concatenate([segments.lane, np.where(call >= 0, events.lane[call], NONE).astype(np.int32)])
    return innermost_ranges(events, lane, np.concatenate([segments.start_ns, events.start_ns[call]]))


def _find_steps(
    part: RankTrace,
    segments: HostSegments,
    order: DeviceOrder,
    launch: NDArray[np.int32],
    marks: NDArray[np.int32],
) -> tuple[NDArray[np.int32], tuple[str, ...], tuple[Step, ...]]:
    """Which step each op belongs to (device work: by its launch), and where each step begins and ends."""
    events = part.events
    by_start = np.argsort(events.start_ns[marks], kind="stable")
    begin = segments.boundary_segment[: len(marks)][by_start]
    end = segments.boundary_segment[len(marks) :][by_start]
    kept = (begin >= 0) & (end >= begin)
    marked = marks[by_start][kept]
    names: dict[str, int] = {}
    steps: list[Step] = []
    for row, first, last in zip(marked, begin[kept], end[kept], strict=True):
        name = events.name_of(int(row))
        again = 2
        while name in names:
            name, again = f"{events.name_of(int(row))} ({again})", again + 1
        names[name] = len(names)
        start_ns = int(events.start_ns[row])
        steps.append(Step(name, part.rank, int(first), int(last), start_ns, start_ns + int(events.duration_ns[row])))
    launched = launch[order.rows]
    known_ns = np.where(launched >= 0, events.start_ns[launched], events.start_ns[order.rows])
    at_ns = np.concatenate([segments.start_ns, known_ns])
    place = np.searchsorted(events.start_ns[marked], at_ns, side="right") - 1
    inside = place >= 0
    inside[inside] = at_ns[inside] < events.end_ns[marked[place[inside]]]
    return np.where(inside, place, NONE).astype(np.int32), tuple(names), tuple(steps)
