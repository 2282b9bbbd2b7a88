"""Cells: the configurations that the testbed measures and predicts: model, buckets, link rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makespan.bucket_plan import BYTES_PER_MIB
from makespan.optimizers.bucketing.search import Cut, capped_cut
from makespan.optimizers.tensor_fusion import DDP_CAPS

BUCKETS: Final[dict[str, str | float]] = {
    "default": "default", "1 MiB": 1.0, "5 MiB": 5.0, "25 MiB": 25.0, "one bucket": 1000.0, "one tensor each": 1e-6,
}  # fmt: skip
"""By name: what the worker is told; caps in MiB."""
STEPS: Final = {"100mbit": 4, "300mbit": 6, "1gbit": 8, "2gbit": 8, "none": 8}
PROBE_SIZES: Final = {
    "100mbit": (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23),
    "300mbit": (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24),
}
PROBE_SIZES_ELSE: Final = (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 25)
CAPTURED_STEPS: Final = 16
"""Watched, and as many unwatched: this machine's speed comes and goes."""
STEADY: Final = 0.03
"""A machine whose sentinel moves by less is as fast as it was."""
SMALL: Final = "one bucket"
"""What is captured: with a single bucket nothing is reduced during backward."""


def cut_of(name: str, sizes: Sequence[int]) -> Cut:
    """The cut that DDP makes under the named configuration of gradients of `sizes` bytes, in order of readiness."""
    told = BUCKETS[name]
    if isinstance(told, str):
        return capped_cut(sizes, DDP_CAPS)
    return capped_cut(sizes, [max(int(told * BYTES_PER_MIB), 1)])


def distinct(sizes: Sequence[int]) -> list[str]:
    """Names of the configurations that cut `sizes` differently; of equal ones the first."""
    seen: dict[Cut, str] = {}
    for name in BUCKETS:
        seen.setdefault(cut_of(name, sizes), name)
    return list(seen.values())
