"""Ranges: which of the spans that a user laid over a thread was open at a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.trace import EventKind, EventTable


def innermost_ranges(events: EventTable, lane: NDArray[np.int32], at_ns: NDArray[np.int64]) -> NDArray[np.int32]:
    """(k,) int32 event row of the innermost annotation open on `lane` (k,) at `at_ns` (k,), -1 none.

    Ranges may straddle each other; the one that began last counts.
    """
    rows = np.flatnonzero(events.kind == EventKind.ANNOTATION).astype(np.int32)
    found = np.full(len(lane), -1, np.int32)
    if not len(rows):
        return found
    rows = rows[np.lexsort((-events.end_ns[rows], events.start_ns[rows], events.lane[rows]))]
    order = np.lexsort((at_ns, lane))
    found[order] = _sweep(
        rows, events.lane[rows], events.start_ns[rows], events.end_ns[rows], lane[order], at_ns[order]
    )
    return found


@compiled()
def _sweep(rows: Any, range_lane: Any, start: Any, end: Any, lane: Any, at_ns: Any) -> Any:  # pragma: no cover
    found = np.full(len(lane), -1, np.int32)
    opened = np.empty(len(rows), np.int64)
    depth = 0
    following = 0
    current = -1
    for query in range(len(lane)):
        if lane[query] != current:
            current = lane[query]
            depth = 0
            while following < len(rows) and range_lane[following] < current:
                following += 1
        while following < len(rows) and range_lane[following] == current and start[following] <= at_ns[query]:
            while depth > 0 and end[opened[depth - 1]] <= start[following]:
                depth -= 1
            opened[depth] = following
            depth += 1
            following += 1
        while depth > 0 and end[opened[depth - 1]] <= at_ns[query]:
            depth -= 1
        if depth > 0:
            found[query] = rows[opened[depth - 1]]
    return found
