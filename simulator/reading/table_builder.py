"""An EventTable filled row by row: for formats whose files are small or whose rows need thought one at a time."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.trace import ATTRS, NONE, EventKind, EventTable, Lane, LaneKind, NameTable, SparseColumn

_WIDTH = 7


class TableBuilder:
    """Collects lanes, events and arrows; `table()` gives the EventTable.

    >>> rows = TableBuilder()
    >>> thread = rows.lane(LaneKind.HOST, "1", "main")
    >>> rows.add("step", EventKind.STEP, thread, 0, 1000)
    0
    >>> len(rows.table())
    1
    """

    def __init__(self) -> None:
        self._names = NameTable()
        self._lanes: dict[Lane, int] = {}
        self._cells = array("q")
        self._attrs: dict[str, tuple[list[int], list[int | float | str]]] = {}
        self._flows: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._cells) // _WIDTH

    def lane(
        self,
        kind: LaneKind,
        process: str,
        thread: str,
        label: str = "",
        device: int = NONE,
        stream: int = NONE,
    ) -> int:
        """The number of this lane, new or met before."""
        return self._lanes.setdefault(Lane(kind, process, thread, label, device, stream), len(self._lanes))

    def add(
        self,
        name: str,
        kind: EventKind,
        lane: int,
        start_ns: int,
        duration_ns: int,
        correlation: int = NONE,
        external_id: int = NONE,
        **attrs: int | float | str | None,
    ) -> int:
        """Append an event and return its row; `attrs` are those of `makespan.trace.ATTRS`, None is left out."""
        row = len(self)
        self._cells.extend((start_ns, duration_ns, kind, self._names.code(name), lane, correlation, external_id))
        for key, value in attrs.items():
            if value is not None:
                self.set_attr(row, key, value)
        return row

    def set_attr(self, row: int, key: str, value: int | float | str) -> None:
        """Give event `row` a value under `key`, once."""
        if key not in ATTRS:
            raise KeyError(f"attribute {key!r} is not in makespan.trace.ATTRS")
        rows, values = self._attrs.setdefault(key, ([], []))
        rows.append(row)
        values.append(value)

    def set_duration(self, row: int, duration_ns: int) -> None:
        """Set the duration of event `row`, for events whose end comes later in the file."""
        self._cells[row * _WIDTH + 1] = duration_ns

    def set_kind(self, row: int, kind: EventKind) -> None:
        """Set the kind of event `row`, for events whose nature shows later in the file."""
        self._cells[row * _WIDTH + 2] = kind

    def flow(self, source_row: int, target_row: int, kind: str) -> None:
        """An arrow of `kind` from one event to another."""
        self._flows.append((source_row, target_row, self._names.code(kind)))

    def table(self) -> EventTable:
        """Everything so far as an EventTable, rows in the order in which they were added."""
        columns = np.array(self._cells, np.int64).reshape(-1, _WIDTH)
        flows = np.array(self._flows, np.int32).reshape(-1, 3)
        return EventTable(
            start_ns=columns[:, 0].copy(),
            duration_ns=columns[:, 1].copy(),
            kind=columns[:, 2].astype(np.uint8),
            name=columns[:, 3].astype(np.int32),
            lane=columns[:, 4].astype(np.int32),
            correlation=columns[:, 5].copy(),
            external_id=columns[:, 6].copy(),
            names=self._names.names(),
            lanes=tuple(self._lanes),
            attrs={key: _sparse(rows, values) for key, (rows, values) in self._attrs.items()},
            flow_source=flows[:, 0].copy(),
            flow_target=flows[:, 1].copy(),
            flow_kind=flows[:, 2].copy(),
        )


def _sparse(rows: list[int], values: list[Any]) -> SparseColumn:
    order = np.argsort(np.array(rows, np.int32), kind="stable")
    sorted_rows = np.array(rows, np.int32)[order]
    if any(isinstance(value, str) for value in values):
        table = NameTable()
        codes = np.array([table.code(str(value)) for value in values], np.int32)
        return SparseColumn(sorted_rows, codes[order], table.names())
    dtype = np.float64 if any(isinstance(value, float) for value in values) else np.int64
    column: NDArray[Any] = np.array(values, dtype)
    return SparseColumn(sorted_rows, column[order])
