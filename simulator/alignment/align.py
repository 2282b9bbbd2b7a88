"""Align: every rank's times on the clock of one of them, how well that fits, and what it doesn't explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.errors import TraceError
from makespan.simulator.alignment.collectives import Meets
from makespan.simulator.alignment.matching import Matched, match_collectives
from makespan.simulator.alignment.offsets import MAD, Fit, Observations, fit_clocks
from makespan.trace import ClockReading, RankTrace, Trace

CLOCK_NOISE_NS: Final = 50_000
"""Device stamps are put on a host's clock to within some tens of microseconds: that much says nothing of clocks."""
SIGNIFICANT: Final = 3.0
"""Shifts and violations of fewer spreads than this are no reason to touch a clock."""
MIN_SEEN: Final = 3
"""Collectives and readings of a rank below which its ends say nothing about how far they spread."""
MIN_READING_ERROR_NS: Final = 1_000.0
GENERIC_CLOCKS: Final = ("unknown", "unix")
"""Names that clocks of several hosts share; any other name stands for one clock."""


@dataclass(frozen=True, slots=True)
class RankClock:
    """How the clock of `rank` relates to the reference's: ahead by `ahead_ns` when it reads `anchor_ns`, and by
    `drift_ppm` more from there on.

    `aligned` is False where nothing ties it to the reference; then it keeps its own time. `collectives` and `readings`
    that were used; how much later than the others the rank left a collective, once aligned: median, 95th percentile
    and worst of the absolute value, NaN where it left none.
    """

    rank: int
    aligned: bool
    anchor_ns: int
    ahead_ns: int
    drift_ppm: float
    collectives: int
    readings: int
    residual_median_ns: float
    residual_p95_ns: float
    residual_worst_ns: float

    @property
    def is_moved(self) -> bool:
        """Whether aligning changes this rank's times."""
        return self.aligned and (self.ahead_ns != 0 or self.drift_ppm != 0)

    def to_reference(self, local_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Readings (k,) of this clock as the reference's, exact to the nanosecond and in the same order."""
        if not self.is_moved:
            return local_ns
        gained = np.rint((local_ns - self.anchor_ns) * (self.drift_ppm * 1e-6)).astype(np.int64)
        return local_ns - self.ahead_ns - gained


@dataclass(frozen=True, slots=True)
class Violation:
    """Rank `left` ended its part of a collective (event `row` of its table) `early_ns` before rank `came` began."""

    what: str
    left: int
    row: int
    came: int
    early_ns: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """The `clocks` of all ranks against that of rank `reference`, by `method`.

    `spread_ns`: the usual distance between ends of one collective on aligned clocks. `violations`: collectives that
    a rank ended before the last one came although clocks are aligned.
    """

    reference: int
    clocks: tuple[RankClock, ...]
    spread_ns: float
    violations: tuple[Violation, ...]
    method: str

    @property
    def moved(self) -> tuple[int, ...]:
        """Ranks whose times aligning changes."""
        return tuple(clock.rank for clock in self.clocks if clock.is_moved)

    def of(self, rank: int) -> RankClock:
        """The clock of `rank`. Raises TraceError where it isn't there."""
        for clock in self.clocks:
            if clock.rank == rank:
                return clock
        raise TraceError(f"rank {rank} has no aligned clock; the alignment is of ranks {self._told()}")

    def apply(self, trace: Trace) -> Trace:
        """`trace` with the times of all aligned ranks on the reference's clock, in whole nanoseconds.

        Raises TraceError where it is not a trace of the ranks that were aligned.
        """
        by_rank = {part.rank: part for part in trace}
        if self.reference not in by_rank:
            raise TraceError(f"the trace holds no rank {self.reference}, the alignment's reference ({self._told()})")
        reference = by_rank[self.reference]
        known = {clock.rank for clock in self.clocks}
        return Trace(tuple(self._moved(part, reference) if part.rank in known else part for part in trace))

    def to_frame(self) -> pd.DataFrame:
        """One row for each rank, in the units of RankClock."""
        columns = list(RankClock.__dataclass_fields__)
        return pd.DataFrame([{name: getattr(clock, name) for name in columns} for clock in self.clocks])

    def _told(self) -> str:
        return ", ".join(str(clock.rank) for clock in self.clocks)

    def _moved(self, part: RankTrace, reference: RankTrace) -> RankTrace:
        clock = self.of(part.rank)
        if not clock.is_moved:
            return part
        base_ns = part.clock_base_ns
        start_ns = clock.to_reference(part.events.start_ns + base_ns)
        end_ns = clock.to_reference(part.events.end_ns + base_ns)
        at = clock.to_reference(np.array([reading.local_ns for reading in part.clock_readings], np.int64))
        readings = [
            ClockReading(local_ns, reading.reference_ns, reading.round_trip_ns)
            for local_ns, reading in zip(at.tolist(), part.clock_readings, strict=True)
        ]
        events = replace(part.events, start_ns=start_ns - reference.clock_base_ns, duration_ns=end_ns - start_ns)
        return replace(
            part,
            events=events,
            clock=reference.clock,
            clock_base_ns=reference.clock_base_ns,
            clock_readings=tuple(readings),
        )


def align(trace: Trace, reference: int | None = None) -> Alignment:
    """How the clocks of the ranks in `trace` relate, from ends of their collectives and from clock readings.

    `reference`: the rank whose clock the others are put on, the lowest unless given. Raises TraceError where that
    rank is not there or nothing in the trace has times.
    """
    timed = [part for part in trace if part.timed and len(part.events)]
    ranks = [part.rank for part in timed]
    if not timed or (reference is not None and reference not in ranks):
        raise TraceError(
            f"there is no clock of rank {reference if timed else 'any'} to align with; "
            f"ranks with times: {', '.join(map(str, ranks)) or 'none'}"
        )
    place = ranks.index(reference) if reference is not None else 0
    return align_ranks(timed, match_collectives(timed), place)


def align_ranks(ranks: Sequence[RankTrace], matched: Matched, place: int = 0) -> Alignment:
    """`align` for ranks whose collectives are matched already; the reference is the rank at `place`."""
    ends = Ends.of(ranks, matched)
    # A clock of its own for each rank first; then those that say they read one clock share it, if they agree.
    own = np.arange(len(ranks))
    own[[0, place]] = own[[place, 0]]
    fit = fit_clocks(len(ranks), _observations(ranks, ends, own))
    clock = _shared_clocks(ranks, fit, own)
    if not np.array_equal(clock, own):
        fit = fit_clocks(int(clock.max()) + 1, _observations(ranks, ends, clock))
    told = [_told(part, at, int(clock[at]), fit, ends, int(clock[place])) for at, part in enumerate(ranks)]
    found = Alignment(ranks[place].rank, tuple(told), fit.spread_ns, (), "robust line fit to ends of collectives")
    return replace(found, violations=find_violations(ranks, matched, ends, found.clocks))


def needed_alignment(ranks: Sequence[RankTrace], matched: Matched, comparable: bool) -> tuple[Alignment, bool]:
    """The alignment of `ranks`, and whether it should be applied.

    Not where clocks are `comparable` as they are and no rank is off by more than the spread of its ends, or than
    what stamps are good for; and where some are, only those move, if that leaves no more violations.
    """
    full = align_ranks(ranks, matched)
    if not comparable:
        return full, any(clock.aligned for clock in full.clocks[1:])
    ends = Ends.of(ranks, matched)
    limit_ns = SIGNIFICANT * full.spread_ns

    def wrong(clocks: Sequence[RankClock]) -> int:
        return sum(each.early_ns > limit_ns for each in find_violations(ranks, matched, ends, clocks))

    known = [_unmoved(clock) if clock.collectives + clock.readings < MIN_SEEN else clock for clock in full.clocks]
    off = [clock if _is_off(part, clock) else _unmoved(clock) for part, clock in zip(ranks, known, strict=True)]
    clocks = tuple(off if wrong(off) <= wrong(known) else known)
    chosen = replace(full, clocks=clocks, violations=find_violations(ranks, matched, ends, clocks))
    return chosen, bool(chosen.moved)


@dataclass(frozen=True, slots=True)
class Ends:
    """The matched collectives as columns (k,), one row for each rank's part.

    `place`, `meeting`; `start_ns`, `end_ns` int64 as read on the rank's own clock; `awaits`: ended after the last
    of those that are `awaited` began; `leaves`: ended when all the others did.
    """

    place: NDArray[np.int64]
    meeting: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    awaits: NDArray[np.bool_]
    awaited: NDArray[np.bool_]
    leaves: NDArray[np.bool_]

    @staticmethod
    def of(ranks: Sequence[RankTrace], matched: Matched) -> Ends:
        """The ends of what was `matched` over `ranks`."""
        rows: list[tuple[int, int, int, int, bool, bool, bool]] = []
        for number, meeting in enumerate(matched.meetings):
            awaited, awaiting = meeting.roles()
            for place, part in meeting.parts.items():
                base_ns = ranks[place].clock_base_ns
                rows.append(
                    (place, number, part.start_ns + base_ns, part.end_ns + base_ns, place in awaiting,
                     place in awaited, meeting.meets == Meets.ALL)
                )  # fmt: skip
        table = np.array(rows, np.int64).reshape(-1, 7)
        numbers: Any = (table[:, column].copy() for column in range(4))
        flags: Any = (table[:, column].astype(np.bool_) for column in range(4, 7))
        return Ends(*numbers, *flags)


def find_violations(
    ranks: Sequence[RankTrace], matched: Matched, ends: Ends, clocks: Sequence[RankClock]
) -> tuple[Violation, ...]:
    """Parts of collectives that ended, on `clocks`, before those began whom they had to wait for."""
    start_ns, end_ns = ends.start_ns.copy(), ends.end_ns.copy()
    for place, clock in enumerate(clocks):
        mine = ends.place == place
        start_ns[mine], end_ns[mine] = clock.to_reference(start_ns[mine]), clock.to_reference(end_ns[mine])
    count = len(matched.meetings)
    last_ns = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last_ns, ends.meeting[ends.awaited], start_ns[ends.awaited])
    early = np.flatnonzero(ends.awaits & (end_ns < last_ns[ends.meeting]))
    last = np.flatnonzero(ends.awaited & (start_ns == last_ns[ends.meeting]))
    came = dict(zip(ends.meeting[last].tolist(), ends.place[last].tolist(), strict=True))
    found: list[Violation] = []
    for at in early.tolist():
        place, number = int(ends.place[at]), int(ends.meeting[at])
        meeting = matched.meetings[number]
        early_ns = int(last_ns[number] - end_ns[at])
        row = meeting.parts[place].row
        found.append(Violation(meeting.what, ranks[place].rank, row, ranks[came[number]].rank, early_ns))
    return tuple(found)


def _observations(ranks: Sequence[RankTrace], ends: Ends, clock: NDArray[np.int64]) -> Observations:
    rows: list[tuple[int, int, int, int, float]] = []
    zero = next((place for place, part in enumerate(ranks) if part.rank == 0), None)
    if zero is not None:
        for place, part in enumerate(ranks):
            for reading in part.clock_readings if clock[place] != clock[zero] else ():
                error_ns = max(reading.round_trip_ns / 4, MIN_READING_ERROR_NS)
                rows.append((int(clock[place]), int(clock[zero]), reading.local_ns, reading.reference_ns, error_ns))
    read, against, local_ns, other_ns, error_ns = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    chosen = ends.leaves
    return Observations(
        clock=clock[ends.place[chosen]],
        meeting=ends.meeting[chosen],
        end_ns=ends.end_ns[chosen],
        read=np.array(read, np.int64),
        against=np.array(against, np.int64),
        local_ns=np.array(local_ns, np.int64),
        other_ns=np.array(other_ns, np.int64),
        error_ns=np.array(error_ns, np.float64),
    )


def _shared_clocks(ranks: Sequence[RankTrace], fit: Fit, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """(r,) the clock that each rank reads: of ranks that name the same one and agree, the first one's."""
    clock = own.copy()
    first: dict[tuple[str, str], int] = {}
    for place in np.argsort(own).tolist():
        name = _clock_name(ranks[place])
        if name is None:
            continue
        other = first.setdefault(name, place)
        a, b = own[place], own[other]
        apart_ns = abs(int(fit.ahead_ns[a] - fit.ahead_ns[b]))
        tolerance_ns = max(CLOCK_NOISE_NS, SIGNIFICANT * fit.spread_ns)
        if fit.component[a] != fit.component[b] or apart_ns <= tolerance_ns:
            clock[place] = clock[other]
    return np.unique(clock, return_inverse=True)[1].astype(np.int64)


def _clock_name(part: RankTrace) -> tuple[str, str] | None:
    """What names the one clock that a rank reads; None where ranks of several hosts could say the same."""
    host = part.metadata.get("host") or part.metadata.get("hostname")
    if part.clock not in GENERIC_CLOCKS:
        return part.clock, ""
    return (part.clock, str(host)) if host and part.clock == "unix" else None


def _told(part: RankTrace, place: int, clock: int, fit: Fit, ends: Ends, reference: int) -> RankClock:
    off = np.abs(fit.residual_ns[ends.place[ends.leaves] == place])
    median_ns, p95_ns, worst_ns = map(float, np.quantile(off, (0.5, 0.95, 1.0))) if len(off) else (nan, nan, nan)
    return RankClock(
        rank=part.rank,
        aligned=bool(fit.component[clock] == fit.component[reference]),
        anchor_ns=int(fit.anchor_ns[clock]),
        ahead_ns=int(fit.ahead_ns[clock]),
        drift_ppm=float(fit.drift[clock] * 1e6),
        collectives=len(off),
        readings=len(part.clock_readings),
        residual_median_ns=median_ns,
        residual_p95_ns=p95_ns,
        residual_worst_ns=worst_ns,
    )


def _unmoved(clock: RankClock) -> RankClock:
    return replace(clock, ahead_ns=0, drift_ppm=0.0)


def _is_off(part: RankTrace, clock: RankClock) -> bool:
    """Whether a rank's clock is off, somewhere in its trace, by more than its ends spread or stamps are good for."""
    bounds = np.array([part.events.start_ns.min(), part.events.end_ns.max()], np.int64) + part.clock_base_ns
    shift_ns = float(np.abs(clock.to_reference(bounds) - bounds).max())
    usual_ns = 0.0 if np.isnan(clock.residual_median_ns) else MAD * clock.residual_median_ns
    return shift_ns > max(CLOCK_NOISE_NS, SIGNIFICANT * usual_ns)
