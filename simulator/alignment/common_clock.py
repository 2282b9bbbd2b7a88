"""Common clock: which ranks can be put on one time axis, whether their times must move for it, and where zero lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from makespan.errors import TraceError
from makespan.simulator.alignment.align import MIN_SEEN, Alignment, align_ranks, needed_alignment
from makespan.simulator.alignment.matching import Matched
from makespan.trace import EventKind, RankTrace, Trace
from makespan.units import format_duration

NO_WORK: Final = (
    EventKind.ANNOTATION, EventKind.DEVICE_ANNOTATION, EventKind.SYNC_RECORD, EventKind.OVERHEAD, EventKind.INSTANT,
    EventKind.COUNTER,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommonClock:
    """`ranks` with their times as they are to be used; `origins`: time zero in the numbers of each one's table.

    `together`: places of the ranks whose times compare; all others start at a time zero of their own. `notes`: what
    was done or found, reason -> ranks.
    """

    ranks: list[RankTrace]
    origins: list[int]
    together: frozenset[int]
    notes: dict[str, int] = field(default_factory=dict[str, int])


def on_common_clock(ranks: Sequence[RankTrace], matched: Matched, align: bool | Alignment | None) -> CommonClock:
    """Put `ranks`, whose collectives are `matched`, on one clock as far as that can be done.

    `align` None: where clocks can't be compared, or are off by more than the ends of collectives spread; True: always;
    False: never; or an Alignment to apply. Raises TraceError where True is asked for and nothing ties the ranks.
    """
    ranks = list(ranks)
    notes: dict[str, int] = {}
    comparable = _compare(ranks)
    together = set(range(len(ranks))) if comparable else set[int]()
    # Files that hold durations and no times have nothing to align.
    stamped = all(len(part.events) < 2 or np.ptp(part.events.start_ns) > 0 for part in ranks)
    found, applies = None, False
    if isinstance(align, Alignment):
        found, applies = align, True
    elif len(ranks) > 1 and (align or (align is None and stamped)):
        found, applies = needed_alignment(ranks, matched, comparable)
        if align:
            found, applies = _full(ranks, matched), True
    if found is not None and applies:
        moved = list(found.apply(Trace(tuple(ranks))))
        if found.moved:
            notes[_told_moved(ranks, moved, found)] = len(found.moved)
        ranks = moved
        tied = {clock.rank for clock in found.clocks if clock.aligned}
        together = {place for place, part in enumerate(ranks) if part.rank in tied or _compare(ranks)}
    elif found is not None and together and max(clock.collectives for clock in found.clocks) >= MIN_SEEN:
        spread = format_duration(found.spread_ns)
        notes[f"ranks whose clocks agree as recorded: collectives end within {spread}, usually"] = len(ranks)
    alone = [place for place in range(len(ranks)) if place not in together] if len(ranks) > 1 else []
    if alone:
        notes["ranks on clocks of their own, each starts at time zero"] = len(alone)
    return CommonClock(ranks, _origins(ranks, together), frozenset(together), notes)


def _full(ranks: Sequence[RankTrace], matched: Matched) -> Alignment:
    found = align_ranks(ranks, matched)
    untied = [clock.rank for clock in found.clocks if not clock.aligned]
    if untied:
        raise TraceError(
            f"ranks {', '.join(map(str, untied))} can't be aligned with rank {found.reference}: they have neither "
            "collective nor clock reading in common; leave align out to let each start at a time zero of its own"
        )
    return found


def _told_moved(before: Sequence[RankTrace], after: Sequence[RankTrace], found: Alignment) -> str:
    shifts = [
        abs(int(new.events.start_ns[0]) + new.clock_base_ns - int(old.events.start_ns[0]) - old.clock_base_ns)
        for old, new in zip(before, after, strict=True)
    ]
    one_clock = len({part.clock for part in before}) == 1
    by = f", moved by up to {format_duration(max(shifts))}" if one_clock else ""
    told = f"ranks put on the clock of rank {found.reference}{by}"
    return f"{told}: collectives then end within {format_duration(found.spread_ns)}, usually"


def _compare(ranks: Sequence[RankTrace]) -> bool:
    """Whether all ranks name one clock and worked at the same time on it."""
    starts = [_first_work_ns(part) + part.clock_base_ns for part in ranks]
    ends = [int(part.events.end_ns.max()) + part.clock_base_ns for part in ranks]
    return len({part.clock for part in ranks}) == 1 and max(starts) < min(ends)


def _origins(ranks: Sequence[RankTrace], together: set[int]) -> list[int]:
    first = [_first_work_ns(part) for part in ranks]
    shared = [first[place] + ranks[place].clock_base_ns for place in together]
    return [min(shared) - part.clock_base_ns if place in together else first[place] for place, part in enumerate(ranks)]


def _first_work_ns(part: RankTrace) -> int:
    """Start of the first event that stands for work, or of the first at all where there is none."""
    events = part.events
    works = ~np.isin(events.kind, NO_WORK)
    return int(events.start_ns[works].min() if np.any(works) else events.start_ns.min())
