"""Alpha-beta: latency by round and time by byte, fitted or stated, scaled by closed forms over ranks and links."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from makespan.cluster import Cluster
from makespan.communication_table import COLLECTIVES, CommunicationTable, check_table, load_table
from makespan.errors import PredictionError
from makespan.predictors.algorithms import check_algorithm, closed_form
from makespan.predictors.curves import REACH
from makespan.predictors.measurements import MIN_SHARE, BySize, chosen_dtype, collectives_in, host_work_in
from makespan.predictors.requests import check_sizes, check_transfer, find_host_work, refuse_beyond, whole_ns
from makespan.units import NS_PER_S, format_bytes


@dataclass(frozen=True, slots=True)
class AffineCost:
    """`call_ns` once, `latency_ns` (α) each round, `ns_per_byte` (β) of what a link carries; up to `limit_bytes`.

    Beside computing `stretch` times as long, at `share_left` of its speed. `ranks`: those it was fitted to, with a
    median relative error of `fit_error`; empty where it was stated.
    """

    latency_ns: float
    ns_per_byte: float
    call_ns: float = 0.0
    limit_bytes: float = math.inf
    stretch: float = 1.0
    share_left: float = 1.0
    ranks: tuple[int, ...] = ()
    fit_error: float = 0.0

    def __post_init__(self) -> None:
        """Raise PredictionError for a cost below 0, a stretch below 1, or a share that is none."""
        if not all(0 <= cost < math.inf for cost in (self.latency_ns, self.ns_per_byte, self.call_ns)):
            raise PredictionError(
                f"latency {self.latency_ns} ns, {self.ns_per_byte} ns a byte, {self.call_ns} ns a call: expected none "
                f"below 0"
            )
        if not (self.stretch >= 1 and 0 < self.share_left <= 1):
            raise PredictionError(
                f"stretch {self.stretch} and share left {self.share_left}: expected at least 1, and above 0 up to 1"
            )


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """call + rounds(N) · α + sent(N) · bytes · β for each collective: Hockney's model under an algorithm.

    Rounds and what a rank sends follow from the algorithm (`makespan.predictors.algorithms`), so that any number of
    ranks is an answer: the ring's all-reduce takes 2(N - 1) · α + 2(N - 1)/N · bytes · β. Links are taken as equal
    and unshared; where more ranks bring slower links, use `Links` or measure. `costs` are by operation, host work
    ("launch", "copy", "cast": call + bytes · β) among them. The cluster is not asked.

    Where α and β depend on size (NCCL's protocols, packets, caches), one line can't follow: `MeasuredCurve` does.
    """

    costs: Mapping[str, AffineCost]
    algorithm: str = "ring"
    network: str = "the network stated"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Raise PredictionError for an unknown algorithm."""
        check_algorithm(self.algorithm)

    @classmethod
    def fit(cls, table: CommunicationTable, dtype: str | None = None, algorithm: str = "ring") -> AlphaBeta:
        """The model nearest to the medians of a table's repeats in `dtype`, by default that of most rows.

        Least squares of *relative* errors under α, β and call ≥ 0, since times span decades. The call is fitted only
        where numbers of ranks with unlike rounds tell it apart. Contention: the median over all sizes. A collective
        measured at one size, which is no line, is left out. Raises PredictionError for a table that can't be, and for a
        collective that the algorithm doesn't carry out.
        """
        check_table(table, table.network)
        check_algorithm(algorithm)
        dtype = chosen_dtype(table, dtype)
        by_collective: dict[str, dict[int, BySize]] = {}
        for (collective, count), sizes in collectives_in(table, dtype).items():
            by_collective.setdefault(collective, {})[count] = sizes
        costs = {
            collective: _fit_collective(algorithm, collective, by_count)
            for collective, by_count in by_collective.items()
            if len({size for sizes in by_count.values() for size in sizes}) > 1
        }
        costs |= {work: _fit_host_work(sizes) for work, sizes in host_work_in(table, dtype).items()}
        return cls(costs, algorithm, table.network, dtype)

    @classmethod
    def load(cls, path: str | Path, dtype: str | None = None, algorithm: str = "ring") -> AlphaBeta:
        """The model fitted to the table in a file; raises PredictionError as `fit` does."""
        return cls.fit(load_table(path), dtype, algorithm)

    def what_if(self, *, bandwidth: float | None = None, latency: float | None = None) -> AlphaBeta:
        """The model on links that carry `bandwidth` bytes per second, with `latency` nanoseconds each round.

        Both as all collectives see them: payload, with whatever summing it takes. What is not given stays, as do
        calls, host work and contention. Raises PredictionError for a bandwidth of 0 or less, or a latency below 0.
        """
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            raise PredictionError(f"bandwidth {bandwidth}: expected more than 0 bytes per second")
        if latency is not None and not 0 <= latency < math.inf:
            raise PredictionError(f"latency {latency}: expected 0 or more nanoseconds")
        changed = dict(self.costs)
        for operation in changed.keys() & set(COLLECTIVES):
            cost = changed[operation]
            changed[operation] = replace(
                cost,
                latency_ns=cost.latency_ns if latency is None else latency,
                ns_per_byte=cost.ns_per_byte if bandwidth is None else NS_PER_S / bandwidth,
                ranks=(),
            )
        return replace(self, costs=changed, network=f"{self.network}, changed")

    @property
    def validity(self) -> str:
        """Which operations, fitted to what and how well, and how far they reach."""
        told: list[str] = []
        for operation, cost in sorted(self.costs.items()):
            reach = "of any size" if math.isinf(cost.limit_bytes) else f"up to {format_bytes(cost.limit_bytes)}"
            ranks = ", ".join(map(str, cost.ranks))
            fitted = f" (fitted to {ranks} ranks, median error {100 * cost.fit_error:.0f} %)" if ranks else ""
            told.append(f"{operation} {reach}{fitted}")
        known = "; ".join(told) or "nothing"
        return f"{self.dtype} on {self.network}, {self.algorithm}, any number of equally linked ranks: {known}"

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds; raises PredictionError outside the range. `cluster` is not used."""
        cost, sizes = self._in_range(collective, size_bytes, ranks)
        rounds, sent = closed_form(self.algorithm, collective, len(ranks))
        return whole_ns(collective, cost.call_ns + rounds * cost.latency_ns + sent * cost.ns_per_byte * sizes)

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(k,) stretch and (k,) share left, the same for every size. Raises as `transfer_ns` does."""
        cost, sizes = self._in_range(collective, size_bytes, ranks)
        return np.full(sizes.shape, cost.stretch), np.full(sizes.shape, cost.share_left)

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds; zeros for the one of "launch" and "copy" that alone is not known."""
        cost = find_host_work(work, self.costs, self.network)
        sizes = check_sizes(work, size_bytes)
        if cost is None:
            return np.zeros(sizes.shape, np.int64)
        refuse_beyond(work, sizes, cost.limit_bytes, self.network)
        return whole_ns(work, cost.call_ns + cost.ns_per_byte * sizes)

    def _in_range(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int]
    ) -> tuple[AffineCost, NDArray[np.float64]]:
        sizes = check_transfer(collective, size_bytes, ranks)
        if collective not in self.costs:
            known = ", ".join(sorted(self.costs)) or "nothing"
            raise PredictionError(f"{self.network}: no cost of {collective} is known in {self.dtype}; there is {known}")
        cost = self.costs[collective]
        refuse_beyond(collective, sizes, cost.limit_bytes, self.network)
        return cost, sizes


def _fit_collective(algorithm: str, collective: str, by_count: Mapping[int, BySize]) -> AffineCost:
    forms = {count: closed_form(algorithm, collective, count) for count in by_count}
    has_call = len({rounds for rounds, _ in forms.values()}) > 1
    terms: list[tuple[float, float, float]] = []
    times: list[float] = []
    largest = 0
    hindered: list[tuple[float, float]] = []
    for count, sizes in by_count.items():
        rounds, sent = forms[count]
        for size, samples in sizes.items():
            typical = max(median(samples.alone_ns), 1.0)
            terms.append((float(has_call), rounds, sent * size))
            times.append(typical)
            if samples.contended_ns:
                hindered.append((median(samples.contended_ns) / typical, median(samples.share_left)))
        largest = max(largest, *sizes)
    (call_ns, latency_ns, ns_per_byte), error = _nearest(terms, times)
    return AffineCost(
        latency_ns,
        ns_per_byte,
        call_ns,
        REACH * largest,
        stretch=max(1.0, median(ratio for ratio, _ in hindered)) if hindered else 1.0,
        share_left=max(MIN_SHARE, median(share for _, share in hindered)) if hindered else 1.0,
        ranks=tuple(sorted(by_count)),
        fit_error=error,
    )


def _fit_host_work(sizes: BySize) -> AffineCost:
    """One size alone is no slope: its time is that of a call, of any size if it was measured at 0 bytes."""
    largest = max(sizes)
    alone = len(sizes) == 1
    terms = [(1.0, 0.0 if alone else float(size)) for size in sizes]
    (call_ns, ns_per_byte), _ = _nearest(terms, [max(median(samples.alone_ns), 1.0) for samples in sizes.values()])
    limit = (largest if alone else REACH * largest) if largest else math.inf
    return AffineCost(0.0, ns_per_byte, call_ns, limit)


def _nearest(terms: Sequence[Sequence[float]], times: Sequence[float]) -> tuple[list[float], float]:
    """Factors ≥ 0 of `terms` (m, n) whose sum is nearest to `times` (m,) relatively, and the median error left."""
    relative = np.array(terms, np.float64) / np.array(times, np.float64)[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    factors, _ = nnls(relative / scale, np.ones(len(times)))
    found = factors / scale
    return [float(factor) for factor in found], float(np.median(np.abs(relative @ found - 1)))
