"""Events whose times can't be true, taken out of a finished table with everything that refers to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.times import bulk_reach
from makespan.simulator.reading.sources import report
from makespan.trace import EventTable, RankTrace, SparseColumn


def believable(part: RankTrace, strict: bool) -> RankTrace:
    """`part` without events far from the bulk of the trace, and with a zero where a duration can't be true.

    Each is counted in the part's diagnostics, or raises TraceError where reading is strict.
    """
    events = part.events

    def tell(reason: str, where: NDArray[np.bool_]) -> None:
        if where.any():
            place = f"{part.source}:row {int(np.argmax(where))}"
            report(part.diagnostics, strict, reason, place, int(np.count_nonzero(where)))

    earliest_ns, latest_ns = bulk_reach(events.start_ns)
    early, late = events.start_ns < earliest_ns, events.start_ns > latest_ns
    negative = events.duration_ns < 0
    endless = ~late & (events.duration_ns > latest_ns - np.where(late, 0, events.start_ns))
    tell("timestamp far in the past", early)
    tell("timestamp far in the future", late)
    tell("negative duration, taken as zero", negative)
    tell("duration absurdly long, taken as zero", endless)
    if (negative | endless).any():
        events = replace(events, duration_ns=np.where(negative | endless, 0, events.duration_ns))
    kept = ~(early | late)
    if kept.all():
        return replace(part, events=events)
    new_row = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    source, target = new_row[part.dependency_source], new_row[part.dependency_target]
    both = (source >= 0) & (target >= 0)
    return replace(
        part, events=_select(events, kept, new_row), dependency_source=source[both], dependency_target=target[both]
    )


def _select(events: EventTable, kept: NDArray[np.bool_], new_row: NDArray[np.int32]) -> EventTable:
    attrs = {key: _select_column(column, new_row) for key, column in events.attrs.items()}
    if "parent" in attrs:
        parent = attrs["parent"]
        above = new_row[parent.values]
        attrs["parent"] = SparseColumn(parent.rows[above >= 0], above[above >= 0].astype(np.int64))
    source, target = new_row[events.flow_source], new_row[events.flow_target]
    both = (source >= 0) & (target >= 0)
    return EventTable(
        start_ns=events.start_ns[kept],
        duration_ns=events.duration_ns[kept],
        kind=events.kind[kept],
        name=events.name[kept],
        lane=events.lane[kept],
        correlation=events.correlation[kept],
        external_id=events.external_id[kept],
        names=events.names,
        lanes=events.lanes,
        attrs=attrs,
        flow_source=source[both],
        flow_target=target[both],
        flow_kind=events.flow_kind[both],
    )


def _select_column(column: SparseColumn, new_row: NDArray[np.int32]) -> SparseColumn:
    rows = new_row[column.rows]
    return SparseColumn(rows[rows >= 0], column.values[rows >= 0], column.table)
