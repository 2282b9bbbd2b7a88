"""Data dependencies of an execution trace: who wrote a tensor's storage last before somebody reads it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def storage_dependencies(
    numbers: Sequence[int],
    parents: Sequence[int],
    reads: Sequence[Sequence[int]],
    writes: Sequence[Sequence[int]],
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Writer and reader rows, (d,) int32 each, sorted by reader and without repetition.

    The n rows carry `numbers` in the order in which their events began, `parents` (a row that comes earlier in
    that order, -1 none) and the storages that they read and write. An event reads when it begins and writes when
    the last event inside it has begun; what an event inside it wrote already stays that one's, so that the
    innermost writer counts. A writer that encloses its reader is no dependency.
    """
    count = len(numbers)
    begin = np.empty(count, np.int64)
    order = np.argsort(np.asarray(numbers, np.int64), kind="stable")
    begin[order] = np.arange(count)
    last = begin.copy()
    for row in reversed(order.tolist()):
        if parents[row] >= 0:
            last[parents[row]] = max(last[parents[row]], last[row])
    # At the same moment an event reads before anything is written, and inner events write before outer ones.
    moments = [(int(begin[row]), 0, 0, row) for row in range(count) if reads[row]]
    moments += [(int(last[row]), 1, -int(begin[row]), row) for row in range(count) if writes[row]]
    moments.sort()
    writer: dict[int, int] = {}
    pairs: set[tuple[int, int]] = set()
    for _, writing, _, row in moments:
        if writing:
            for storage in writes[row]:
                before = writer.get(storage, -1)
                if before < 0 or begin[before] < begin[row]:
                    writer[storage] = row
        else:
            pairs.update((row, writer[storage]) for storage in reads[row] if storage in writer)
    found = np.array(sorted(pairs), np.int32).reshape(-1, 2)
    return found[:, 1].copy(), found[:, 0].copy()
