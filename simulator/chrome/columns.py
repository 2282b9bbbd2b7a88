"""Chrome events as columns: what an importer of large Chrome JSON starts from, before it says what is what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.times import MISSING, bulk_reach
from makespan.simulator.reading.sources import report
from makespan.trace import NONE, Diagnostics, SparseColumn

ROW_COLUMNS: Final = {
    "phase": np.uint8, "name": np.int32, "category": np.int32, "place": np.int32,
    "start_ns": np.int64, "duration_ns": np.int64, "number": np.int32,
}  # fmt: skip
FLOW_COLUMNS: Final = {
    "flow_phase": np.uint8, "flow_name": np.int32, "flow_category": np.int32, "flow_place": np.int32,
    "flow_ns": np.int64, "flow_id": np.int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ChromeColumns:
    """n events that are rows of the table, in file order, and f flow ends.

    `phase` (n,) uint8; `name`, `category`, `place` (n,) int32 into `names`, `categories` and `places` (process and
    thread as text); `start_ns`, `duration_ns` (n,) int64; `number` (n,) int32 of the event in its file; `args`
    sparse columns under the names of EventArgs. `flow_*` (f,): phase, category and name codes, id, place and time
    of each end of an arrow. `thread_names` and `process_names` are what the file calls a place or a process,
    `metadata` the members beside the events; `rank`, `world_size` (NONE where not stated) and `base_ns`, the time to
    which all others are relative (0 where not stated), are of these.
    """

    phase: NDArray[np.uint8]
    name: NDArray[np.int32]
    category: NDArray[np.int32]
    place: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    number: NDArray[np.int32]
    flow_phase: NDArray[np.uint8]
    flow_name: NDArray[np.int32]
    flow_category: NDArray[np.int32]
    flow_place: NDArray[np.int32]
    flow_ns: NDArray[np.int64]
    flow_id: NDArray[np.int64]
    names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    args: Mapping[str, SparseColumn] = field(default_factory=dict[str, SparseColumn])
    thread_names: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    process_names: Mapping[str, str] = field(default_factory=dict[str, str])
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rank: int = NONE
    world_size: int = NONE
    base_ns: int = 0

    def __len__(self) -> int:
        return len(self.phase)

    def integers(self, member: str) -> NDArray[np.int64]:
        """(n,) an integer member of args, MISSING where an event has none."""
        column = self.args.get(member)
        return np.full(len(self), MISSING, np.int64) if column is None else column.dense(len(self), MISSING)

    def ids(self, *members: str) -> NDArray[np.int64]:
        """(n,) the first of the members that an event carries; zero and below mean none."""
        found = np.full(len(self), NONE, np.int64)
        for member in reversed(members):
            column = self.args.get(member)
            if column is not None:
                found[column.rows] = np.where(column.values > 0, column.values, NONE)
        return found

    def has(self, member: str) -> NDArray[np.bool_]:
        """(n,) which events carry a member of args."""
        found = np.zeros(len(self), np.bool_)
        if member in self.args:
            found[self.args[member].rows] = True
        return found

    def select(self, kept: NDArray[np.bool_]) -> ChromeColumns:
        """The rows where `kept` (n,) is set."""
        if kept.all():
            return self
        new_row = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        args = {key: (column, kept[column.rows]) for key, column in self.args.items()}
        return replace(
            self,
            args={
                key: SparseColumn(new_row[column.rows[here]], column.values[here], column.table)
                for key, (column, here) in args.items()
            },
            **{key: getattr(self, key)[kept] for key in ROW_COLUMNS},
        )


def believable(columns: ChromeColumns, source: str, diagnostics: Diagnostics, strict: bool) -> ChromeColumns:
    """Without events far from the bulk of the trace, and with a zero where a duration can't be true."""

    def tell(reason: str, where: NDArray[np.bool_]) -> None:
        if where.any():
            place = f"{source}:event {int(columns.number[np.argmax(where)])}"
            report(diagnostics, strict, reason, place, int(np.count_nonzero(where)))

    earliest_ns, latest_ns = bulk_reach(columns.start_ns)
    early, late = columns.start_ns < earliest_ns, columns.start_ns > latest_ns
    tell("timestamp far in the past", early)
    tell("timestamp far in the future", late)
    duration_ns = columns.duration_ns
    missing, negative = duration_ns == MISSING, (duration_ns < 0) & (duration_ns != MISSING)
    endless = ~late & (duration_ns > latest_ns - columns.start_ns)
    tell("complete event without a duration", missing)
    tell("negative duration, taken as zero", negative)
    tell("duration absurdly long, taken as zero", endless)
    false = missing | negative | endless
    if false.any():
        columns = replace(columns, duration_ns=np.where(false, 0, duration_ns))
    return columns.select(~(early | late))
