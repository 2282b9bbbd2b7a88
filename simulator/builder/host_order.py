"""Host order: the nested events of each host thread, cut into the segments that really ran one after another.

Instants, not intervals, are what a thread's order consists of: each event contributes the moment it begins and
the moment it ends, and what lies between two neighbouring moments is one op, owned by the innermost event
open there (its self time), or think time where none is open. Spans that users or profilers lay over a thread
need not nest with its events; steps only mark where segments are cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled

THINK: Final = -1
"""Owner of a segment in which no event is open."""


@dataclass(frozen=True, slots=True)
class HostSegments:
    """s segments in lane order then time order.

    `lane`, `start_ns`, `duration_ns`, `owner` (event row or THINK), `outer` (outermost open event or THINK),
    `is_wait` (what a waiting call does after its wait), `after_idle` (not bound to the segment before it:
    first of its lane, or woken by another thread): all (s,). `first_segment`, `last_segment`,
    `wait_segment` (n,) int32 by event row, -1 none: the segments at which an event begins and ends, and the
    one after its wait. `boundary_segment` (b,) the segment that a step boundary begins or ends with.
    `clipped`: events that outlived the event around them and were cut to its end.
    """

    lane: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    owner: NDArray[np.int32]
    outer: NDArray[np.int32]
    is_wait: NDArray[np.bool_]
    after_idle: NDArray[np.bool_]
    first_segment: NDArray[np.int32]
    last_segment: NDArray[np.int32]
    wait_segment: NDArray[np.int32]
    boundary_segment: NDArray[np.int32]
    clipped: int


@dataclass(frozen=True, slots=True)
class IdleSpans:
    """Spans of h host threads in which nothing ran: `lane`, `from_ns`, `until_ns` (h,), sorted by lane then time.

    `caller` (h,) is the waiting call that holds the span, or -1 where another thread's work ended it.
    """

    lane: NDArray[np.int32]
    from_ns: NDArray[np.int64]
    until_ns: NDArray[np.int64]
    caller: NDArray[np.int32]

    @staticmethod
    def of(
        lane: NDArray[np.int32],
        from_ns: NDArray[np.int64],
        until_ns: NDArray[np.int64],
        caller: NDArray[np.int32],
    ) -> IdleSpans:
        """The spans in the order that cutting needs."""
        order = np.lexsort((until_ns, from_ns, lane))
        return IdleSpans(lane[order], from_ns[order], until_ns[order], caller[order])


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Moments at which steps begin and end on host threads: `lane`, `at_ns`, `is_end` (b,)."""

    lane: NDArray[np.int32]
    at_ns: NDArray[np.int64]
    is_end: NDArray[np.bool_]


def cut_segments(
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    lane: NDArray[np.int32],
    rows: NDArray[np.int32],
    is_frame: NDArray[np.bool_],
    idle: IdleSpans,
    boundaries: Boundaries,
) -> HostSegments:
    """Cut the host events `rows` of a table (columns (n,)) into segments; `is_frame` (n,) marks interpreter frames."""
    order = rows[np.lexsort((rows, -end_ns[rows], start_ns[rows], lane[rows]))]
    by_lane = np.lexsort((boundaries.is_end, boundaries.at_ns, boundaries.lane))
    count = 3 * len(order) + 2 * len(by_lane) + 2 * len(idle.lane) + 1
    segments = HostSegments(
        lane=np.empty(count, np.int32),
        start_ns=np.empty(count, np.int64),
        duration_ns=np.empty(count, np.int64),
        owner=np.empty(count, np.int32),
        outer=np.empty(count, np.int32),
        is_wait=np.zeros(count, np.bool_),
        after_idle=np.zeros(count, np.bool_),
        first_segment=np.full(len(start_ns), -1, np.int32),
        last_segment=np.full(len(start_ns), -1, np.int32),
        wait_segment=np.full(len(start_ns), -1, np.int32),
        boundary_segment=np.full(len(by_lane), -1, np.int32),
        clipped=0,
    )
    time_ns, event, is_end, clipped = _tour(order, start_ns, end_ns, lane)
    at_boundary = np.full(len(by_lane), -1, np.int32)
    made = _emit(
        time_ns, event, is_end, lane, is_frame,
        idle.lane, idle.from_ns, idle.until_ns, idle.caller,
        boundaries.lane[by_lane], boundaries.at_ns[by_lane], boundaries.is_end[by_lane],
        (segments.lane, segments.start_ns, segments.duration_ns, segments.owner, segments.outer),
        segments.is_wait, segments.after_idle,
        segments.first_segment, segments.last_segment, segments.wait_segment, at_boundary,
    )  # fmt: skip
    segments.boundary_segment[by_lane] = at_boundary
    per_segment = ("lane", "start_ns", "duration_ns", "owner", "outer", "is_wait", "after_idle")
    trimmed = {name: getattr(segments, name)[:made] for name in per_segment}
    return replace(segments, clipped=int(clipped), **trimmed)


@compiled()
def _tour(order: Any, start_ns: Any, end_ns: Any, lane: Any) -> Any:  # pragma: no cover - compiled
    """Begin and end instants of nested events, lane by lane, in time order; children are clipped to parents."""
    count = len(order)
    time_ns = np.empty(2 * count, np.int64)
    event = np.empty(2 * count, np.int32)
    is_end = np.zeros(2 * count, np.bool_)
    open_event = np.empty(count + 1, np.int32)
    open_until = np.empty(count + 1, np.int64)
    depth = 0
    made = 0
    clipped = 0
    for place in range(count + 1):
        new_lane = place == count or (place > 0 and lane[order[place - 1]] != lane[order[place]])
        while depth > 0 and (new_lane or open_until[depth - 1] <= start_ns[order[place]]):
            depth -= 1
            time_ns[made], event[made], is_end[made] = open_until[depth], open_event[depth], True
            made += 1
        if place == count:
            break
        row = order[place]
        until = end_ns[row]
        if depth > 0 and until > open_until[depth - 1]:
            until = open_until[depth - 1]
            clipped += 1
        time_ns[made], event[made] = start_ns[row], row
        made += 1
        open_event[depth], open_until[depth] = row, until
        depth += 1
    return time_ns, event, is_end, clipped


@compiled()
def _emit(
    time_ns: Any, event: Any, is_end: Any, lane: Any, is_frame: Any,
    idle_lane: Any, idle_from: Any, idle_until: Any, idle_caller: Any,
    boundary_lane: Any, boundary_ns: Any, boundary_is_end: Any,
    out: Any, is_wait: Any, after_idle: Any,
    first: Any, last: Any, wait: Any, at_boundary: Any,
) -> int:  # fmt: skip  # pragma: no cover - compiled
    """Walk the instants and boundaries of all lanes in order and write the segments between them."""
    out_lane, out_start, out_duration, out_owner, out_outer = out
    opened = np.empty(len(time_ns) // 2 + 1, np.int32)
    begun = np.empty(len(time_ns) // 2 + 1, np.int32)  # began since the last segment: they begin with the next
    depth, begun_count, made = 0, 0, 0
    outer_depth = -1
    place, boundary, told_boundary, span = 0, 0, 0, 0
    current = np.int32(-1)
    here = np.int64(0)
    woken = True
    returning = np.int32(-1)  # the call whose wait is over and that has not written its return yet
    while place < len(time_ns) or boundary < len(boundary_ns):
        at_mark = place == len(time_ns)
        if not at_mark and boundary < len(boundary_ns):
            its_lane = lane[event[place]]
            if boundary_lane[boundary] != its_lane:
                at_mark = boundary_lane[boundary] < its_lane
            elif boundary_is_end[boundary]:
                at_mark = boundary_ns[boundary] < time_ns[place]
            else:
                at_mark = boundary_ns[boundary] <= time_ns[place]
        moment = boundary_ns[boundary] if at_mark else time_ns[place]
        moment_lane = boundary_lane[boundary] if at_mark else lane[event[place]]
        if moment_lane != current:
            current, here, woken, returning = moment_lane, moment, True, np.int32(-1)
            told_boundary = boundary
            while span < len(idle_lane) and idle_lane[span] < current:
                span += 1
        owner = opened[depth - 1] if depth > 0 else np.int32(-1)
        closing = np.int32(-1) if at_mark or not is_end[place] else event[place]
        while True:
            while span < len(idle_lane) and idle_lane[span] == current and idle_until[span] <= here:
                if idle_caller[span] < 0:
                    woken = True
                elif wait[idle_caller[span]] < 0:
                    returning = idle_caller[span]
                span += 1
            if here < moment:
                stop = moment
                if span < len(idle_lane) and idle_lane[span] == current and idle_from[span] < moment:
                    if idle_from[span] <= here:
                        here = min(moment, idle_until[span])
                        continue
                    stop = idle_from[span]
            elif closing >= 0 and (first[closing] < 0 or returning == closing):
                stop = here  # an event that would leave no trace, or a wait to the call's very end
            elif woken and at_mark and boundary_is_end[boundary] and made > 0 and out_lane[made - 1] == current:
                stop = here  # a step that ends at the moment of waking
            else:
                break
            out_lane[made], out_start[made], out_duration[made] = current, here, stop - here
            out_owner[made] = owner
            out_outer[made] = opened[outer_depth] if outer_depth >= 0 else owner
            after_idle[made] = woken
            if returning >= 0:
                is_wait[made] = True
                wait[returning] = made
                returning = np.int32(-1)
            for which in range(begun_count):
                first[begun[which]] = made
            for which in range(told_boundary, boundary):
                if not boundary_is_end[which]:
                    at_boundary[which] = made
            begun_count, told_boundary, woken = 0, boundary, False
            here = stop
            made += 1
        if at_mark:
            if boundary_is_end[boundary] and made > 0 and out_lane[made - 1] == current:
                at_boundary[boundary] = made - 1
            boundary += 1
        elif closing >= 0:
            last[closing] = made - 1
            depth -= 1
            if depth == outer_depth:
                outer_depth = -1
            place += 1
        else:
            opened[depth] = event[place]
            if outer_depth < 0 and not is_frame[event[place]]:
                outer_depth = depth
            begun[begun_count] = event[place]
            begun_count += 1
            depth += 1
            place += 1
    return made
