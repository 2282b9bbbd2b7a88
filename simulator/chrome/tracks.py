"""Tracks: where each op of a schedule is drawn, so that nothing on a track overlaps without enclosing.

A stream is one track; ops that run at once on it (shared links, overlapping kernels) take further ones. Host
ops are segments of events that enclose each other: with the trace's event table at hand an event is drawn once,
over all of its segments and those of the events inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import NONE, Graph, StreamKind
from makespan.trace import EventTable, LaneKind, RankTrace, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """t tracks: `stream` and `lane` (t,) int32, lane 0 first; `of_op` (n,) int32 the track of each op."""

    stream: NDArray[np.int32]
    lane: NDArray[np.int32]
    of_op: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class HostSpans:
    """s host events, rebuilt from the ops that they were cut into.

    `row` (s,) int32 in the event table of `rank` (s,); `first_op`, `last_op` (s,) int32: where the event begins
    and ends, ops of the events inside included. Its own ops are `own[pointer[i]:pointer[i + 1]]` (int32).
    """

    rank: NDArray[np.int32]
    row: NDArray[np.int32]
    first_op: NDArray[np.int32]
    last_op: NDArray[np.int32]
    pointer: NDArray[np.int64]
    own: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.row)


def lay_out(stream: NDArray[np.int32], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> Tracks:
    """Tracks for ops (n,) on streams: of each stream the first track that is free when an op starts."""
    order = np.lexsort((end_ns, start_ns, stream))
    lane = np.empty(len(stream), np.int32)
    lane[order] = _first_free(stream[order], start_ns[order], end_ns[order])
    pairs, of_op = np.unique(stream.astype(np.int64) << 32 | lane, return_inverse=True)
    return Tracks((pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32), of_op.astype(np.int32))


def rebuild_host_events(graph: Graph, trace: Trace) -> HostSpans:
    """The host events of `trace` that ops of `graph` are segments of; ops of ranks not in `trace` have none."""
    event = graph.attrs.get("event", np.full(len(graph), NONE, np.int32))
    parts: list[HostSpans] = []
    for part in trace:
        on_host = graph.on_streams(StreamKind.HOST) & (graph.rank == part.rank) & (event >= 0)
        ops = np.flatnonzero(on_host)
        if len(ops) and int(event[ops].max()) < len(part.events):
            parts.append(_rebuild_rank(part, ops[np.argsort(graph.stream[ops], kind="stable")], event))
    if not parts:
        nothing = np.empty(0, np.int32)
        return HostSpans(nothing, nothing, nothing, nothing, np.zeros(1, np.int64), nothing)
    offsets = np.cumsum([0, *(len(part.own) for part in parts)])
    pointers = [part.pointer[:-1] + offset for part, offset in zip(parts, offsets[:-1], strict=True)]
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("rank", "row", "first_op", "last_op", "own")
    }
    return HostSpans(pointer=np.concatenate([*pointers, offsets[-1:]]), **joined)


def _rebuild_rank(part: RankTrace, ops: NDArray[np.int64], event: NDArray[np.int32]) -> HostSpans:
    """Spans of one rank from its host `ops`, which are in order of stream and time."""
    events = part.events
    parent = _enclosing_events(events, np.unique(events.kind[event[ops]]))
    first, last = _reach(event[ops], ops, parent)
    rows = np.flatnonzero(first >= 0).astype(np.int32)
    by_owner = ops[np.argsort(event[ops], kind="stable")].astype(np.int32)
    counts = np.bincount(event[ops], minlength=len(events))[rows]
    return HostSpans(
        rank=np.full(len(rows), part.rank, np.int32),
        row=rows,
        first_op=first[rows],
        last_op=last[rows],
        pointer=np.concatenate([[0], np.cumsum(counts)]),
        own=by_owner,
    )


def _enclosing_events(events: EventTable, kinds: NDArray[np.uint8]) -> NDArray[np.int32]:
    """(n,) int32: the innermost event of `kinds` around each of them on its host lane, NONE for the outermost."""
    on_host = np.fromiter((lane.kind != LaneKind.DEVICE for lane in events.lanes), np.bool_, len(events.lanes))
    rows = np.flatnonzero(on_host[events.lane] & np.isin(events.kind, kinds))
    order = rows[np.lexsort((rows, -events.end_ns[rows], events.start_ns[rows], events.lane[rows]))]
    return _nest(order, events.start_ns, events.end_ns, events.lane)


@compiled()
def _first_free(stream: Any, start: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The first lane of its stream that is free when an op starts, ops by stream and start."""
    lane = np.empty(len(stream), np.int32)
    free_from = np.zeros(16, np.int64)
    used = 0
    for place in range(len(stream)):
        if place == 0 or stream[place] != stream[place - 1]:
            used = 0
        which = 0
        while which < used and free_from[which] > start[place]:
            which += 1
        if which == used:
            if used == len(free_from):
                free_from = np.concatenate((free_from, np.zeros(used, np.int64)))
            used += 1
        free_from[which] = end[place]
        lane[place] = which
    return lane


@compiled()
def _nest(order: Any, start: Any, end: Any, lane: Any) -> Any:  # pragma: no cover - compiled
    """Parents by a stack; an event that outlives the one around it is cut to its end, as the builder does."""
    parent = np.full(len(start), NONE, np.int32)
    open_row = np.empty(len(order) + 1, np.int64)
    open_end = np.empty(len(order) + 1, np.int64)
    depth = 0
    for row in order:
        while depth > 0 and (lane[open_row[depth - 1]] != lane[row] or open_end[depth - 1] <= start[row]):
            depth -= 1
        if depth > 0:
            parent[row] = open_row[depth - 1]
        open_row[depth] = row
        open_end[depth] = min(end[row], open_end[depth - 1]) if depth > 0 else end[row]
        depth += 1
    return parent


@compiled()
def _reach(owner: Any, ops: Any, parent: Any) -> Any:  # pragma: no cover - compiled
    """The first and the last op of each event and of those inside it."""
    first = np.full(len(parent), NONE, np.int32)
    last = np.full(len(parent), NONE, np.int32)
    for place in range(len(ops)):
        row = owner[place]
        while row >= 0:
            if first[row] < 0:
                first[row] = ops[place]
            last[row] = ops[place]
            row = parent[row]
    return first, last
