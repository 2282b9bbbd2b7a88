"""Curves: time over size through measurements, made monotone, straight between sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

REACH = 4
"""A curve is trusted up to this many times its largest size: far enough for a bucket plan that merges what was
measured, and the last slope is then still that of bandwidth."""


@dataclass(frozen=True, slots=True, eq=False)
class SizeCurve:
    """`time_ns` (k,) float64, never falling, at `size_bytes` (k,) float64, rising.

    Straight between sizes; below the smallest its time, which is overhead; above the largest the slope of the upper
    half of the sizes, so that two neighbours a hair apart don't set it.
    """

    size_bytes: NDArray[np.float64]
    time_ns: NDArray[np.float64]

    @property
    def limit_bytes(self) -> float:
        """The largest size that the curve tells of: REACH times the largest measured, if there are two or more."""
        return float(self.size_bytes[-1]) * (REACH if len(self.size_bytes) > 1 else 1)

    def at(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """(k,) float64 nanoseconds at the (k,) `sizes`, which lie in the range."""
        times = np.interp(sizes, self.size_bytes, self.time_ns)
        if len(self.size_bytes) > 1:
            largest = self.size_bytes[-1]
            base = max(self.size_bytes[0], largest / 2)
            rise = self.time_ns[-1] - np.interp(base, self.size_bytes, self.time_ns)
            times += np.maximum(sizes - largest, 0) * rise / (largest - base)
        return times


def monotone_curve(repeats: Mapping[int, Sequence[float]]) -> SizeCurve:
    """The curve through the median of each size's repeats, where those rise with size.

    Neighbouring sizes whose medians fall are pooled, as often as needed, and take the median of all that was
    measured at them. This is isotonic regression under absolute error (pool adjacent violators with medians; Robertson
    and Waltman, Ann. Math. Stat. 1968): unlike that under squared error, one outlier among the sizes leaves it be.
    """
    sizes = sorted(repeats)
    pools: list[tuple[list[float], int]] = []
    for size in sizes:
        values, count = list(repeats[size]), 1
        while pools and median(pools[-1][0]) > median(values):
            earlier, more = pools.pop()
            values, count = earlier + values, count + more
        pools.append((values, count))
    times = np.repeat([median(values) for values, _ in pools], [count for _, count in pools])
    return SizeCurve(np.array(sizes, np.float64), times.astype(np.float64))
