"""Flow events to arrows between rows: which ends belong together, and which event each end touches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.columns import ChromeColumns
from makespan.trace import NONE


@dataclass(frozen=True, slots=True, eq=False)
class Arrows:
    """(k,) rows `source` and `target` joined by an arrow of a `category` (code); `loose` ends are part of none."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    category: NDArray[np.int32]
    loose: int


def find_arrows(
    columns: ChromeColumns,
    ends: NDArray[np.int64],
    touchable: NDArray[np.bool_],
    process: NDArray[np.int64],
) -> Arrows:
    """Arrows among the flow events `ends` (e,), each of which touches one of the rows where `touchable` (n,) is set.

    Ends of equal category, name and id belong together in the order of their times: start, steps, end.
    `process` (p,) numbers the processes of `columns.places`: ids that several processes use are kept apart.
    """
    of_process = process[columns.flow_place[ends]]
    kind = columns.flow_category[ends].astype(np.int64) * len(columns.names) + columns.flow_name[ends]
    kind = kind * (int(process.max(initial=0)) + 1) + of_process
    phase, flow_id = columns.flow_phase[ends], columns.flow_id[ends]
    # At equal times a start comes before a step, a step before an end: the reverse of the letters s, t, f but for s.
    is_end = phase == ord("f")
    order = np.lexsort((is_end, columns.flow_ns[ends], flow_id, kind))
    kind, flow_id, is_end, is_start = kind[order], flow_id[order], is_end[order], phase[order] == ord("s")
    group = np.cumsum(np.r_[True, (kind[1:] != kind[:-1]) | (flow_id[1:] != flow_id[:-1])]) if len(ends) else kind
    # An end or a step follows the latest start or step before it; where clocks put all starts after it, the first one.
    position = np.arange(len(ends))
    latest = np.r_[-1, np.maximum.accumulate(np.where(is_end, -1, position))[:-1]] if len(ends) else position
    following = np.minimum.accumulate(np.where(is_end, len(ends), position)[::-1])[::-1]
    after_start = (latest >= 0) & (group[latest] == group)
    before_start = is_end & ~after_start & (following < len(ends))
    before_start &= group[np.minimum(following, len(ends) - 1)] == group
    partner = np.where(after_start, latest, following)
    paired = np.flatnonzero(~is_start & (after_start | before_start))
    rows = _touched(columns, ends[order], touchable)
    source, target = rows[partner[paired]], rows[paired]
    whole = (source != NONE) & (target != NONE)
    touching = np.zeros(len(ends), np.bool_)
    touching[paired[whole]] = touching[partner[paired[whole]]] = True
    category = columns.flow_category[ends[order[paired[whole]]]]
    return Arrows(source[whole], target[whole], category, len(ends) - int(np.count_nonzero(touching)))


def _touched(columns: ChromeColumns, ends: NDArray[np.int64], touchable: NDArray[np.bool_]) -> NDArray[np.int32]:
    """(e,) for each flow event the row on its thread that began last, if it still covers the time; NONE otherwise."""
    rows = np.flatnonzero(touchable)
    if not len(rows):
        return np.full(len(ends), NONE, np.int32)
    begin_ns, end_ns = int(columns.start_ns[rows].min()), int(columns.start_ns[rows].max())
    width = end_ns - begin_ns + 1
    if width > np.iinfo(np.int64).max // (len(columns.places) + 1):
        return np.full(len(ends), NONE, np.int32)
    keys = columns.place[rows].astype(np.int64) * width + (columns.start_ns[rows] - begin_ns)
    by_key = np.argsort(keys, kind="stable")
    rows, keys = rows[by_key], keys[by_key]
    at_ns = columns.flow_ns[ends]
    wanted = columns.flow_place[ends].astype(np.int64) * width + np.clip(at_ns - begin_ns, -1, width - 1)
    found = np.searchsorted(keys, wanted, side="right") - 1
    row = rows[np.maximum(found, 0)]
    covers = (found >= 0) & (columns.place[row] == columns.flow_place[ends])
    covers &= (columns.start_ns[row] <= at_ns) & (at_ns <= columns.start_ns[row] + columns.duration_ns[row])
    return np.where(covers, row, NONE).astype(np.int32)
