"""Small event tables written by hand: times in microseconds, lanes by short names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from makespan.trace import Diagnostics, EventKind, EventTable, Lane, LaneKind, NameTable, RankTrace, SparseColumn, Trace


@dataclass(frozen=True)
class Row:
    """One event: `lane` "main", "autograd" ... is a host thread, "s7" stream 7 of device 0, "s1.7" of device 1."""

    kind: EventKind
    name: str
    lane: str
    start_us: float
    duration_us: float
    correlation: int = -1
    attrs: Mapping[str, int | str] | None = None


def lane_of(name: str) -> Lane:
    if name[0] == "s" and name[1:].replace(".", "").isdigit():
        device, _, stream = name[1:].rpartition(".")
        return Lane(LaneKind.DEVICE, "0", name, f"stream {name[1:]}", int(device or 0), int(stream))
    return Lane(LaneKind.HOST, "1", name)


def event_table(rows: Sequence[Row]) -> EventTable:
    names, lanes = NameTable(), {}
    attrs: dict[str, list[tuple[int, Any]]] = {}
    for number, row in enumerate(rows):
        for key, value in (row.attrs or {}).items():
            attrs.setdefault(key, []).append((number, value))
    columns: dict[str, SparseColumn] = {}
    for key, pairs in attrs.items():
        where = np.array([number for number, _ in pairs], np.int32)
        if isinstance(pairs[0][1], str):
            table = NameTable()
            codes = np.array([table.code(value) for _, value in pairs], np.int32)
            columns[key] = SparseColumn(where, codes, table.names())
        else:
            columns[key] = SparseColumn(where, np.array([value for _, value in pairs], np.int64))
    return EventTable(
        start_ns=np.array([round(row.start_us * 1000) for row in rows], np.int64),
        duration_ns=np.array([round(row.duration_us * 1000) for row in rows], np.int64),
        kind=np.array([row.kind for row in rows], np.uint8),
        name=np.array([names.code(row.name) for row in rows], np.int32),
        lane=np.array([lanes.setdefault(row.lane, len(lanes)) for row in rows], np.int32),
        correlation=np.array([row.correlation for row in rows], np.int64),
        external_id=np.full(len(rows), -1, np.int64),
        names=names.names(),
        lanes=tuple(lane_of(name) for name in lanes),
        attrs=columns,
    )


def trace_of(*ranks: Sequence[Row]) -> Trace:
    return Trace(
        tuple(
            RankTrace(rank, f"rank {rank}", "by hand", event_table(rows), Diagnostics())
            for rank, rows in enumerate(ranks)
        )
    )
