"""Measurements: the rows of a communication table in one data type, repeats pooled by operation, ranks and size."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from makespan.communication_table import COLLECTIVES, HOST_WORK, CommunicationTable
from makespan.errors import PredictionError
from makespan.resolve import did_you_mean

PREFERRED_DTYPE: Final = "float32"
MIN_SHARE: Final = 0.01
"""Shares left are taken as at least this: with none left computing would never end, which no measurement can tell."""


@dataclass(slots=True)
class Samples:
    """All repeats of one operation at one size: nanoseconds alone and beside computing, and shares left then."""

    alone_ns: list[int] = field(default_factory=list[int])
    contended_ns: list[int] = field(default_factory=list[int])
    share_left: list[float] = field(default_factory=list[float])


BySize = dict[int, Samples]
"""Size in bytes → its repeats."""


def chosen_dtype(table: CommunicationTable, dtype: str | None) -> str:
    """`dtype`, or where it is None that of most rows (float32 among equals).

    Raises PredictionError where the table has no row of it.
    """
    counts = Counter(entry.dtype for entry in table.measured)
    if dtype is None:
        return min(counts, key=lambda name: (-counts[name], name != PREFERRED_DTYPE, name))
    if dtype not in counts:
        raise PredictionError(f"{table.network}: nothing was measured in {dtype!r}{did_you_mean(dtype, counts)}")
    return dtype


def collectives_in(table: CommunicationTable, dtype: str) -> dict[tuple[str, int], BySize]:
    """(collective, number of ranks) → its repeats in `dtype`."""
    found: dict[tuple[str, int], BySize] = defaultdict(dict)
    for entry in table.measured:
        if entry.operation in COLLECTIVES and entry.dtype == dtype:
            samples = found[entry.operation, entry.ranks].setdefault(entry.size_bytes, Samples())
            samples.alone_ns += entry.alone_ns
            samples.contended_ns += entry.contended_ns
            samples.share_left += entry.share_left
    return dict(found)


def host_work_in(table: CommunicationTable, dtype: str) -> dict[str, BySize]:
    """Host work → its repeats in `dtype`; in any type where it wasn't measured in this one, since bytes are bytes."""
    found: dict[str, BySize] = {}
    for work in HOST_WORK:
        entries = [entry for entry in table.measured if entry.operation == work]
        sizes: BySize = {}
        for entry in [entry for entry in entries if entry.dtype == dtype] or entries:
            sizes.setdefault(entry.size_bytes, Samples()).alone_ns += entry.alone_ns
        if sizes:
            found[work] = sizes
    return found
