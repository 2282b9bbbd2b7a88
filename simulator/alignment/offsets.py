"""Offsets: a robust joint fit of every clock's offset and drift to the ends of collectives and to clock readings.

All ranks leave a collective in which everybody waits for everybody at nearly the same moment T, so its end reads
T + offset + drift * t on each clock. T is eliminated; what remains is a small least-squares problem, solved again
and again with Huber's weights, so that a rank that left late now and then moves nothing. Clocks that never met the
reference's, not even through others, keep their own time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

HUBER: Final = 1.345
"""Residuals beyond this many spreads count less; 95 % as efficient as least squares where there are no outliers."""
ROUNDS: Final = 40
MIN_SPREAD_NS: Final = 1.0
MAD: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
DRIFT_SIGNIFICANCE: Final = 4.0
"""A drift counts where it is this many standard errors from none, and moves a clock by more than the spread."""
MIN_ENDS_FOR_DRIFT: Final = 10
MAX_DRIFT: Final = 1e-3
"""Quartz clocks are off by 100 ppm at most; more than 1000 is a wrong match."""


@dataclass(frozen=True, slots=True)
class Observations:
    """What is known of c clocks, in ns, each on its own clock.

    Collectives: clock `clock` (k,) left collective `meeting` (k,) at `end_ns` (k,) int64. Readings: clock `read`
    (r,) said `local_ns` (r,) while clock `against` (r,) said `other_ns` (r,), known to within `error_ns` (r,).
    """

    clock: NDArray[np.int64]
    meeting: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    read: NDArray[np.int64]
    against: NDArray[np.int64]
    local_ns: NDArray[np.int64]
    other_ns: NDArray[np.int64]
    error_ns: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Clock i is ahead of its component's reference by `ahead_ns` (c,) int64, and by `drift` (c,) more for each ns
    that it is past `anchor_ns` (c,) int64 (its own time). `component` (c,): clocks that can be compared have the
    same; its reference is the clock `reference` (c,). `residual_ns` (k,): how much later than the others a rank left
    a collective once clocks are aligned. `spread_ns`: their usual size. `error_ns` (c,) standard error of `ahead_ns`.
    """

    anchor_ns: NDArray[np.int64]
    ahead_ns: NDArray[np.int64]
    drift: NDArray[np.float64]
    component: NDArray[np.int64]
    reference: NDArray[np.int64]
    residual_ns: NDArray[np.float64]
    spread_ns: float
    error_ns: NDArray[np.float64]


def fit_clocks(count: int, seen: Observations) -> Fit:
    """Offsets and drifts of `count` clocks; the lowest clock of each component is its reference.

    A clock gets a drift only where its span and its residuals support one.
    """
    component = _components(count, seen)
    reference = np.array([int(np.argmax(component == own)) for own in component], np.int64)
    owner = np.concatenate([seen.clock, seen.read, seen.against])
    times = np.concatenate([seen.end_ns, seen.local_ns, seen.other_ns])
    # Offset and drift are independent where the offset is told in the middle of what was seen.
    anchor_ns = np.array([_middle(times[owner == clock]) for clock in range(count)], np.int64)
    free = np.arange(count) != reference
    enough = np.bincount(seen.clock, minlength=count) + np.bincount(seen.read, minlength=count) >= MIN_ENDS_FOR_DRIFT
    solver = _Solver(count, seen, anchor_ns)
    solved = solver.solve(free, free & enough)
    drifts = free & enough & solver.support(solved)
    if not np.array_equal(drifts, free & enough):
        solved = solver.solve(free, drifts)
    return Fit(
        anchor_ns=anchor_ns,
        ahead_ns=np.rint(solved.offset).astype(np.int64) + anchor_ns - anchor_ns[reference],
        drift=solved.drift,
        component=component,
        reference=reference,
        residual_ns=solved.residual,
        spread_ns=solved.spread,
        error_ns=solved.offset_error,
    )


@dataclass(frozen=True, slots=True)
class _Solved:
    offset: NDArray[np.float64]
    drift: NDArray[np.float64]
    offset_error: NDArray[np.float64]
    drift_error: NDArray[np.float64]
    residual: NDArray[np.float64]
    spread: float


class _Solver:
    """The normal equations of `seen`, counted from each clock's anchor."""

    def __init__(self, count: int, seen: Observations, anchor_ns: NDArray[np.int64]) -> None:
        self._count = count
        self._seen = seen
        self._end = (seen.end_ns - anchor_ns[seen.clock]).astype(np.float64)
        self._local = (seen.local_ns - anchor_ns[seen.read]).astype(np.float64)
        self._other = (seen.other_ns - anchor_ns[seen.against]).astype(np.float64)
        self._met, self._meeting = np.unique(seen.meeting, return_inverse=True)
        self._size = np.bincount(self._meeting)
        times = np.concatenate([self._end, self._local, self._other])
        owner = np.concatenate([seen.clock, seen.read, seen.against])
        self._span = np.zeros(count)
        np.maximum.at(self._span, owner, np.abs(times))

    def solve(self, free: NDArray[np.bool_], drifting: NDArray[np.bool_]) -> _Solved:
        """Offsets of the `free` clocks (c,), drifts of the `drifting` ones (c,), all others zero."""
        seen, count = self._seen, self._count
        column = np.full(2 * count, -1)
        column[np.flatnonzero(np.concatenate([free, drifting]))] = np.arange(int(free.sum() + drifting.sum()))
        ends = self._design([(seen.clock, self._end, 1.0)], column)
        readings = self._design([(seen.read, self._local, 1.0), (seen.against, self._other, -1.0)], column)
        difference = self._local - self._other
        gather: Any = csr_array(
            (np.ones(len(self._end)), (self._meeting, np.arange(len(self._end)))),
            shape=(len(self._met), len(self._end)),
        )
        unbiased = np.sqrt(self._size / np.maximum(self._size - 1, 1))[self._meeting]
        weight, reading_weight = np.ones(len(self._end)), 1.0 / seen.error_ns**2
        residual, spread = np.zeros(len(self._end)), 1.0
        found = np.zeros(ends.shape[1])
        normal = np.eye(ends.shape[1])
        for turn in range(ROUNDS):
            in_meeting = np.maximum(gather @ weight, 1e-300)
            weighted = ends.multiply(weight[:, None]).tocsr()
            shares = (gather @ weighted).toarray()
            normal = (ends.T @ weighted).toarray() - shares.T @ (shares / in_meeting[:, None])
            right = weighted.T @ self._end - shares.T @ ((gather @ (weight * self._end)) / in_meeting)
            normal = normal + (readings.T @ readings.multiply(reading_weight[:, None]).tocsr()).toarray()
            right = right + readings.T @ (reading_weight * difference)
            before, found = found, _solve(normal, right)
            own = self._end - ends @ found
            residual = own - ((gather @ (weight * own)) / in_meeting)[self._meeting]
            # Collectives that a rank was alone in say nothing.
            several = self._size[self._meeting] > 1
            size = np.abs(residual) * unbiased
            spread = max(MAD * float(np.median(size[several])), MIN_SPREAD_NS) if np.any(several) else MIN_SPREAD_NS
            weight = _huber(size / spread) / spread**2
            off = np.abs(difference - readings @ found) / seen.error_ns
            reading_weight = _huber(off) / seen.error_ns**2
            if turn > 1 and np.max(np.abs(found - before), initial=0.0) < 0.1:
                break
        error = np.sqrt(np.maximum(np.diag(np.linalg.pinv(normal, hermitian=True)), 0.0))
        values, errors = np.zeros(2 * count), np.zeros(2 * count)
        values[column >= 0], errors[column >= 0] = found, error
        scale = np.maximum(self._span, 1.0)
        return _Solved(values[:count], values[count:] / scale, errors[:count], errors[count:] / scale, residual, spread)

    def support(self, solved: _Solved) -> NDArray[np.bool_]:
        """(c,) clocks whose drift stands out of the spread and is one that a clock can have."""
        moved = np.abs(solved.drift)
        stands_out = (moved > DRIFT_SIGNIFICANCE * solved.drift_error) & (moved * self._span > solved.spread)
        return stands_out & (moved < MAX_DRIFT)

    def _design(
        self, parts: list[tuple[NDArray[np.int64], NDArray[np.float64], float]], column: NDArray[np.int64]
    ) -> Any:
        """What each free offset and drift (in spans) adds to each observation."""
        rows: list[NDArray[np.int64]] = []
        columns: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float64]] = []
        for clock, at, sign in parts:
            for own, value in (
                (column[clock], np.full(len(clock), sign)),
                (column[clock + self._count], sign * at / np.maximum(self._span[clock], 1.0)),
            ):
                there = np.flatnonzero(own >= 0)
                rows.append(there)
                columns.append(own[there])
                values.append(value[there])
        shape = (len(parts[0][0]), int(column.max(initial=-1)) + 1)
        return coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape).tocsr()


def _components(count: int, seen: Observations) -> NDArray[np.int64]:
    """(c,) which clocks can be compared, directly or through others."""
    meetings = int(seen.meeting.max(initial=-1)) + 1
    source = np.concatenate([seen.clock, seen.read])
    target = np.concatenate([seen.meeting + count, seen.against])
    size = count + meetings
    links = coo_array((np.ones(len(source)), (source, target)), shape=(size, size))
    return connected_components(links, directed=False)[1][:count].astype(np.int64)


def _middle(times: NDArray[np.int64]) -> int:
    """The time in the middle of those seen; 0 where there are none."""
    return int(np.sort(times)[len(times) // 2]) if len(times) else 0


def _solve(normal: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest solution: what the observations don't say stays zero."""
    return np.linalg.lstsq(normal, right, rcond=None)[0].astype(np.float64) if len(right) else right


def _huber(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """(k,) Huber's weights of residuals of `size` (k,) spreads."""
    return np.minimum(1.0, HUBER / np.maximum(size, HUBER))
