"""Measured curve: what a network was measured to take, between and somewhat beyond the measured sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from makespan.cluster import Cluster
from makespan.communication_table import CommunicationTable, check_table, load_table
from makespan.errors import PredictionError
from makespan.predictors.curves import REACH, SizeCurve, monotone_curve
from makespan.predictors.measurements import MIN_SHARE, BySize, chosen_dtype, collectives_in, host_work_in
from makespan.predictors.requests import check_sizes, check_transfer, find_host_work, refuse_beyond, whole_ns
from makespan.units import format_bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Contended:
    """Time beside computing, and what a message takes of it: `per_message_ns` and `per_byte_ns`."""

    curve: SizeCurve
    per_message_ns: float
    per_byte_ns: float

    @classmethod
    def of(cls, sizes: BySize) -> _Contended:
        """Nearest to the measured shares of all sizes: a single one is the difference of two noisy times."""
        curve = monotone_curve({size: samples.contended_ns for size, samples in sizes.items()})
        took = np.maximum(curve.time_ns, 1.0)
        lost = np.array([1.0 - median(sizes[size].share_left) for size in sorted(sizes)], np.float64)
        if len(sizes) == 1:
            return cls(curve, float(lost[0] * took[0]), 0.0)
        terms = np.stack([np.ones(len(took)), curve.size_bytes], axis=1) / took[:, None]
        scale = terms.max(axis=0)
        factors = nnls(terms / np.where(scale > 0, scale, 1.0), lost)[0] / np.where(scale > 0, scale, 1.0)
        return cls(curve, float(factors[0]), float(factors[1]))

    def share_left(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """(k,) of messages of `sizes` (k,) bytes."""
        taken = self.per_message_ns + self.per_byte_ns * sizes
        return np.clip(1.0 - taken / np.maximum(self.curve.at(sizes), 1.0), MIN_SHARE, 1.0)


class MeasuredCurve:
    """Piecewise linear curves through the medians of a table's repeats, one for each collective and number of ranks.

    They never fall with size, are flat below the smallest size and go on with their last slope up to 4 times the
    largest (see `curves`). Beside computing a transfer follows the curve of its contended times, held at the ratio of
    the last size at which these were measured, and takes from the computing what is nearest to all shares measured: so
    much for each message and each byte. Where that was not measured, nothing hinders anything. Numbers of ranks that
    were not measured raise PredictionError: `AlphaBeta` scales. The cluster is not asked.

    Host work: where the table has "launch" or "copy", the one that it lacks takes no time; where it has neither, it
    doesn't tell, and `host_ns` raises PredictionError. Measured in another dtype only, it counts for this one too;
    measured at 0 bytes only, it is what a call takes, whatever its size.
    """

    def __init__(self, table: CommunicationTable, dtype: str | None = None) -> None:
        """Curves of `dtype`, by default that of most rows; raises PredictionError for a table that can't be."""
        check_table(table, table.network)
        self._table = table
        self._dtype = chosen_dtype(table, dtype)
        self._alone: dict[tuple[str, int], SizeCurve] = {}
        self._contended: dict[tuple[str, int], _Contended] = {}
        for key, sizes in collectives_in(table, self._dtype).items():
            self._alone[key] = _alone_curve(sizes)
            hindered = {size: samples for size, samples in sizes.items() if samples.contended_ns}
            if hindered:
                self._contended[key] = _Contended.of(hindered)
        self._host = {work: _alone_curve(sizes) for work, sizes in host_work_in(table, self._dtype).items()}

    @classmethod
    def load(cls, path: str | Path, dtype: str | None = None) -> MeasuredCurve:
        """The model of the table in a file; raises PredictionError where it is none."""
        return cls(load_table(path), dtype)

    @property
    def dtype(self) -> str:
        """The type of the elements that are sent."""
        return self._dtype

    def for_dtype(self, dtype: str) -> MeasuredCurve:
        """The model of the same table for another type; raises PredictionError where that was not measured."""
        return MeasuredCurve(self._table, dtype)

    @property
    def validity(self) -> str:
        """What was measured, in which type, on which network, and how far it reaches."""
        curves = [
            f"{collective} among {count} ranks up to {format_bytes(curve.limit_bytes)}"
            for (collective, count), curve in sorted(self._alone.items())
        ]
        known = ", ".join([*curves, *sorted(self._host)])
        return f"{self._dtype} on {self._table.network}: {known} (at most {REACH} times the largest size measured)"

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds; raises PredictionError outside the range. `cluster` is not used."""
        curve, sizes = self._in_range(collective, size_bytes, ranks)
        return whole_ns(collective, curve.at(sizes))

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(k,) stretch and (k,) share left; all ones where not measured. Raises as `transfer_ns` does."""
        curve, sizes = self._in_range(collective, size_bytes, ranks)
        found = self._contended.get((collective, len(ranks)))
        if found is None:
            return np.ones(sizes.shape), np.ones(sizes.shape)
        known = np.clip(sizes, found.curve.size_bytes[0], found.curve.size_bytes[-1])
        # A clock may tell 0 ns of what is next to nothing, which has no ratio.
        stretch = found.curve.at(known) / np.maximum(curve.at(known), 1.0)
        return np.maximum(stretch, 1.0), found.share_left(known)

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds; zeros for the one of "launch" and "copy" that alone was not measured."""
        curve = find_host_work(work, self._host, self._table.network)
        sizes = check_sizes(work, size_bytes)
        if curve is None:
            return np.zeros(sizes.shape, np.int64)
        if curve.size_bytes[-1] > 0:
            refuse_beyond(work, sizes, curve.limit_bytes, self._table.network)
        return whole_ns(work, curve.at(sizes))

    def _in_range(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int]
    ) -> tuple[SizeCurve, NDArray[np.float64]]:
        sizes = check_transfer(collective, size_bytes, ranks)
        curve = self._alone.get((collective, len(ranks)))
        if curve is None:
            known = ", ".join(f"{name} among {count}" for name, count in sorted(self._alone)) or "no collective"
            raise PredictionError(
                f"{self._table.network}: {collective} among {len(ranks)} ranks was not measured in {self._dtype}; "
                f"there is {known}"
            )
        refuse_beyond(f"{collective} among {len(ranks)} ranks", sizes, curve.limit_bytes, self._table.network)
        return curve, sizes


def _alone_curve(sizes: BySize) -> SizeCurve:
    return monotone_curve({size: samples.alone_ns for size, samples in sizes.items()})
