"""Chrome columns, once an importer knows what each row is, to an event table: lanes, names, arrows, attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.arrows import Arrows
from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.chrome.times import MISSING
from makespan.trace import NONE, EventTable, Lane, LaneKind, SparseColumn
from makespan.units import NS_PER_S, NS_PER_US

_FIRST_EPOCH_US, _LAST_EPOCH_US = 10**15, 4 * 10**15
"""Microseconds since 1970 of the years 2001 and 2096: stamps between them are wall-clock time."""
_LAST_NUMBER = re.compile(r"(\d+)\D*$")


def trailing_number(text: str) -> int:
    """The last number in a process's or thread's name ("stream 7" is 7), NONE where there is none."""
    found = _LAST_NUMBER.search(text)
    return int(found[1]) if found and len(found[1]) < 19 else NONE


def lanes_of(
    columns: ChromeColumns, kind: NDArray[np.uint8], device: NDArray[np.int64], stream: NDArray[np.int64]
) -> tuple[NDArray[np.int32], tuple[Lane, ...]]:
    """The lane of each row (n,) and all lanes, in the order of their first events.

    `kind` (n,) LaneKind; `device`, `stream` (n,) count on device lanes only, where MISSING means: as the process
    and the thread are called.
    """
    key = columns.place.astype(np.int64) * len(LaneKind) + kind
    rows = np.flatnonzero(kind == LaneKind.DEVICE)
    many = len(columns.places) * len(LaneKind)
    if len(rows):
        ids = key[rows]
        for column in (device, stream):
            distinct, code = np.unique(column[rows], return_inverse=True)
            ids = ids * len(distinct) + code
        distinct, code = np.unique(ids, return_inverse=True)
        key[rows] = many + code
        many += len(distinct)
    count = len(columns)
    first = np.full(many, count, np.int64)
    first[key[::-1]] = np.arange(count - 1, -1, -1)  # of several writes to one place the last one stays
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < count)]
    lane_of_key = np.zeros(many, np.int32)
    lane_of_key[order] = np.arange(len(order), dtype=np.int32)
    lanes: list[Lane] = []
    for row in first[order].tolist():
        process, thread = columns.places[columns.place[row]]
        lane_kind = LaneKind(kind[row])
        label = columns.thread_names.get((process, thread), "")
        device_id = stream_id = NONE
        if lane_kind is LaneKind.DEVICE:
            device_id = int(device[row]) if device[row] != MISSING else trailing_number(process)
            stream_id = int(stream[row]) if stream[row] != MISSING else trailing_number(thread)
        lanes.append(Lane(lane_kind, process, thread, label, device_id, stream_id))
    return lane_of_key[key], tuple(lanes)


def rebased(columns: ChromeColumns) -> tuple[NDArray[np.int64], str, int]:
    """Start times (n,) against a clock, the clock's name, and what to add to them for it.

    Times relative to a stated base and times since 1970 come out alike: nanoseconds since the whole second
    before the first event. Any other clock is unknown and left as it is.
    """
    start_ns = columns.start_ns
    clock, clock_base_ns = clock_of(int(start_ns.min()) if len(start_ns) else 0, columns.base_ns)
    return (start_ns - (clock_base_ns - columns.base_ns) if clock_base_ns else start_ns), clock, clock_base_ns


def clock_of(first_ns: int, base_ns: int = 0) -> tuple[str, int]:
    """The clock of times whose first is `first_ns`, counted from `base_ns`, and the whole second before it there."""
    if not base_ns and not _FIRST_EPOCH_US * NS_PER_US <= first_ns < _LAST_EPOCH_US * NS_PER_US:
        return "unknown", 0
    return "unix", (first_ns + base_ns) // NS_PER_S * NS_PER_S


def assemble(
    columns: ChromeColumns,
    *,
    start_ns: NDArray[np.int64],
    kind: NDArray[np.uint8],
    lane: NDArray[np.int32],
    lanes: tuple[Lane, ...],
    correlation: NDArray[np.int64],
    external_id: NDArray[np.int64],
    attrs: Mapping[str, SparseColumn],
    arrows: Arrows,
) -> EventTable:
    """The event table; names that no row uses are left out."""
    used = np.zeros(len(columns.names), np.bool_)
    used[columns.name] = True
    names = [name for name, is_used in zip(columns.names, used, strict=True) if is_used]
    known = {name: code for code, name in enumerate(names)}
    flow_code = np.zeros(len(columns.categories), np.int32)
    for category in np.unique(arrows.category).tolist():
        flow_code[category] = known.setdefault(columns.categories[category], len(known))
    return EventTable(
        start_ns=start_ns,
        duration_ns=columns.duration_ns,
        kind=kind,
        name=(np.cumsum(used, dtype=np.int32) - np.int32(1))[columns.name],
        lane=lane,
        correlation=correlation,
        external_id=external_id,
        names=tuple(known),
        lanes=lanes,
        attrs=attrs,
        flow_source=arrows.source,
        flow_target=arrows.target,
        flow_kind=flow_code[arrows.category],
    )
