"""A rank's trace from a timeline whose importer says what each event's name and each process and thread stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.arrows import find_arrows
from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.chrome.table import assemble, rebased
from makespan.simulator.reading.crossing_lanes import spread_crossing
from makespan.simulator.reading.sources import Source
from makespan.trace import NONE, Diagnostics, EventKind, Lane, LaneKind, NameTable, RankTrace, SparseColumn

_SPANS, _INSTANTS, _COUNTER = b"XBbS", b"iIRnP", ord("C")


def kinds_by_name(columns: ChromeColumns, kind_of: Callable[[str], EventKind]) -> NDArray[np.uint8]:
    """(n,) the kind of each row by its name; of instants and counters by their phase."""
    kind = np.array([kind_of(name) for name in columns.names], np.uint8)[columns.name]
    kind[np.isin(columns.phase, list(_INSTANTS))] = EventKind.INSTANT
    kind[columns.phase == _COUNTER] = EventKind.COUNTER
    return kind


def coded_column(codes: NDArray[np.int32], values: Sequence[str | int | None]) -> SparseColumn:
    """The column of rows (n,) whose `codes` (n,) point into `values`; None is no value. All text, or all integers."""
    told = np.array([value is not None for value in values], np.bool_)[codes]
    rows = np.flatnonzero(told).astype(np.int32)
    if any(isinstance(value, str) for value in values):
        table = NameTable()
        entries = np.array([NONE if value is None else table.code(str(value)) for value in values], np.int32)
        return SparseColumn(rows, entries[codes[rows]], table.names())
    numbers = np.array([NONE if value is None else int(value) for value in values], np.int64)
    return SparseColumn(rows, numbers[codes[rows]])


def timeline_trace(
    columns: ChromeColumns,
    *,
    title: str,
    source: Source,
    diagnostics: Diagnostics,
    kind: NDArray[np.uint8],
    lane_of_place: Sequence[Lane],
    attrs: Mapping[str, SparseColumn],
) -> RankTrace:
    """The trace of one rank: `kind` (n,), and the lane of each of `columns.places`.

    Lanes that are neither a thread nor a device get further ones where their events cross. The rank is what the file
    states, NONE where it says nothing.
    """
    numbers: dict[Lane, int] = {}
    lane_of = np.zeros(len(columns.places), np.int32)
    for place in np.unique(columns.place).tolist():
        lane_of[place] = numbers.setdefault(lane_of_place[place], len(numbers))
    arrows = find_arrows(
        columns,
        np.arange(len(columns.flow_ns)),
        np.isin(columns.phase, list(_SPANS)),
        np.zeros(len(columns.places), np.int64),
    )
    diagnostics.add("arrow of which only one end is recorded", source.name, arrows.loose)
    start_ns, clock, clock_base_ns = rebased(columns)
    events = assemble(
        columns,
        start_ns=start_ns,
        kind=kind,
        lane=lane_of[columns.place],
        lanes=tuple(numbers),
        correlation=np.full(len(columns), NONE, np.int64),
        external_id=np.full(len(columns), NONE, np.int64),
        attrs={key: column for key, column in attrs.items() if len(column.rows)},
        arrows=arrows,
    )
    drawn = np.array([lane.kind == LaneKind.OTHER for lane in numbers], np.bool_)
    return RankTrace(
        rank=columns.rank,
        source=source.name,
        format=title,
        events=spread_crossing(events, drawn) if len(events) else events,
        diagnostics=diagnostics,
        clock=clock,
        clock_base_ns=clock_base_ns,
        metadata=dict(columns.metadata),
    )
