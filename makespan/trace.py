"""Trace: one columnar table of timed events for each rank, and what was skipped or repaired on the way in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from makespan.errors import TraceError

NONE: Final = -1
"""Stands for "not recorded" in every id column."""


class EventKind(IntEnum):
    """What a row of a trace is. The order is the file format's; append, never renumber."""

    CPU_OP = 0  # framework operator on a host thread
    RUNTIME = 1  # host call into a device runtime or driver (launch, copy, synchronise)
    PYTHON = 2  # interpreter frame
    ANNOTATION = 3  # user range on a host thread; need not nest with the rest
    STEP = 4  # user range that marks one training or inference step
    WAIT = 5  # explicit span in which a host thread waits
    KERNEL = 6  # device compute
    MEMCPY = 7
    MEMSET = 8
    COLLECTIVE = 9  # communication among ranks, on a device stream or a host worker thread
    SEND = 10
    RECV = 11
    SYNC_RECORD = 12  # the profiler's own record of a synchronisation; no work
    DEVICE_ANNOTATION = 13  # user range projected on a device; no work
    OVERHEAD = 14  # the profiler's own cost
    INSTANT = 15  # a point in time
    COUNTER = 16
    OTHER = 17


DEVICE_KINDS: Final = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
COMMUNICATION_KINDS: Final = (EventKind.COLLECTIVE, EventKind.SEND, EventKind.RECV)


class LaneKind(IntEnum):
    """What runs on a lane: host code, device work, or neither (counters, tensors of a timeline)."""

    HOST = 0
    DEVICE = 1
    OTHER = 2


@dataclass(frozen=True, slots=True)
class Lane:
    """A host thread or device stream of one process: where events are drawn, and in which order they run."""

    kind: LaneKind
    process: str
    thread: str
    label: str = ""
    device: int = NONE
    stream: int = NONE


@dataclass(frozen=True, slots=True, eq=False)
class SparseColumn:
    """Values that only some events carry.

    `rows` (k,) int32, ascending event rows; `values` (k,) int64, float64, or int32 codes into `table` where
    the values are text.
    """

    rows: NDArray[np.int32]
    values: NDArray[Any]
    table: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _freeze(self.rows, self.values)

    def dense(self, length: int, fill: int = NONE) -> NDArray[Any]:
        """(length,) array with `fill` where an event carries no value."""
        column = np.full(length, fill, self.values.dtype)
        column[self.rows] = self.values
        return column

    def get(self, row: int) -> Any:
        """The value of event `row`, or None."""
        place = int(np.searchsorted(self.rows, row))
        if place == len(self.rows) or self.rows[place] != row:
            return None
        value = self.values[place]
        return self.table[int(value)] if self.table is not None else value.item()


@dataclass(frozen=True, slots=True, eq=False)
class EventTable:
    """The events of one rank, n rows in file order, as read-only columns.

    `start_ns`, `duration_ns` (n,) int64; `kind` (n,) uint8 EventKind; `name` (n,) int32 into `names`;
    `lane` (n,) int32 into `lanes`; `correlation` (n,) int64 ties a launch to its device work, `external_id`
    (n,) int64 ties device work to a framework op (two separate number spaces; -1 = none). `attrs` holds what
    only some events carry, under the names of `makespan.trace.ATTRS`. `flow_source`, `flow_target` (f,)
    int32 event rows joined by a recorded arrow of kind `flow_kind` (f,) int32 into `names`.
    """

    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    kind: NDArray[np.uint8]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    correlation: NDArray[np.int64]
    external_id: NDArray[np.int64]
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    attrs: Mapping[str, SparseColumn] = field(default_factory=dict[str, SparseColumn])
    flow_source: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    flow_target: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    flow_kind: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        columns = (
            self.start_ns, self.duration_ns, self.kind, self.name, self.lane, self.correlation, self.external_id,
        )  # fmt: skip
        if len({len(column) for column in columns}) > 1:
            raise ValueError("event columns differ in length")
        _freeze(*columns, self.flow_source, self.flow_target, self.flow_kind)

    def __len__(self) -> int:
        return len(self.start_ns)

    def __repr__(self) -> str:
        return f"EventTable({len(self):,} events, {len(self.lanes)} lanes)"

    @property
    def end_ns(self) -> NDArray[np.int64]:
        """(n,) int64"""
        return self.start_ns + self.duration_ns

    def name_of(self, row: int) -> str:
        """The name of event `row`."""
        return self.names[self.name[row]]


ATTRS: Final[Mapping[str, str]] = {
    "sequence": "autograd sequence number, shared by a forward op and its backward op",
    "forward_thread": "thread of the forward op, on a backward op",
    "record_id": "record-function id, shared with an execution trace's rf_id",
    "bytes": "bytes moved (copies), allocated (memory instants) or sent (collectives)",
    "total_allocated_bytes": "allocator's total after a memory instant",
    "device": "device index of a memory instant or a host event",
    "shapes": "input shapes as JSON text",
    "types": "input types as JSON text",
    "collective": "collective's name (allreduce, allgather, ...)",
    "dtype": "element type of a collective",
    "group_name": "process group's name",
    "group_ranks": "process group's ranks as JSON text",
    "group_size": "number of ranks in the process group",
    "group_sequence": "number of the collective within its process group",
    "input_elements": "elements put into a collective by this rank",
    "output_elements": "elements got from a collective by this rank",
    "sync_stream": "stream awaited by a synchronisation record (-1 = whole device)",
    "wait_on_stream": "stream on which the awaited event was recorded",
    "wait_on_correlation": "correlation of the awaited event's record call",
    "module": "module or scope the event belongs to",
    "flops": "floating-point operations, where the profiler counted them",
    "parent": "row of the event that encloses this one by the file's own word",
    "peer": "rank at the other end of a send or receive",
    "root": "root of a broadcast, scatter, reduce or gather, as its place in the process group",
    "value": "value of a counter",
    "tag": "number that tells apart sends to the same peer",
    "dimensions": "which dimensions of the network a collective spans, as JSON text",
    "tensor": "tensor that a timeline's communication moves",
    "parameter": "parameter whose gradient is complete when the event ends",
    "bucket": "gradient bucket that a collective reduces, or that a gradient goes into",
    "ready_rank": "rank that became ready for a collective at an instant of the coordinator's timeline",
    "state": "phase inside a communication (negotiate, queue, copy in, ...)",
}
"""Names that `EventTable.attrs` may use, and what they mean."""


@dataclass(slots=True)
class Diagnostics:
    """Everything an importer repaired, set aside or skipped: reason -> how often, and the first places.

    Reasons are short and fixed ("timestamp far in the future"), places are "file:event 17" and the like.
    """

    counts: dict[str, int] = field(default_factory=dict[str, int])
    places: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    PLACES_KEPT: ClassVar[int] = 3

    def add(self, reason: str, place: str = "", count: int = 1) -> None:
        """Count `count` more cases of `reason`, the first of them at `place`."""
        if count == 0:
            return
        self.counts[reason] = self.counts.get(reason, 0) + count
        kept = self.places.setdefault(reason, [])
        if place and len(kept) < self.PLACES_KEPT:
            kept.append(place)

    def merge(self, other: Diagnostics) -> None:
        """Take over everything that `other` counted."""
        for reason, count in other.counts.items():
            self.add(reason, "", count)
            kept = self.places[reason]
            kept.extend(other.places.get(reason, [])[: self.PLACES_KEPT - len(kept)])

    def raise_if_any(self, source: str) -> None:
        """For strict reading: the first reason becomes a TraceError."""
        for reason, count in self.counts.items():
            first = self.places.get(reason)
            where = f" (first at {first[0]})" if first else ""
            raise TraceError(f"{source}: {reason}, {count} time(s){where}; read it without strict to recover")

    def __bool__(self) -> bool:
        return bool(self.counts)


class ClockReading(NamedTuple):
    """A rank's clock read at `local_ns` while rank 0's read `reference_ns`, known to half the round trip."""

    local_ns: int
    reference_ns: int
    round_trip_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class RankTrace:
    """What one rank recorded.

    `clock_base_ns` is what to add to `events.start_ns` for the clock that `clock` names (0 where unknown).
    `timed` is False for files that hold structure but no times (execution traces before linking).
    `dependency_source`, `dependency_target` (d,) int32 event rows: dependencies that the file itself states
    (execution traces, captures), in place of those that a graph builder would infer from times; a source of -1 says
    that the event begins at its recorded time, without a known cause.
    """

    rank: int
    source: str
    format: str
    events: EventTable
    diagnostics: Diagnostics
    clock: str = "unknown"
    clock_base_ns: int = 0
    timed: bool = True
    world_size: int = NONE
    dependency_source: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    dependency_target: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    clock_readings: tuple[ClockReading, ...] = ()

    def __post_init__(self) -> None:
        _freeze(self.dependency_source, self.dependency_target)

    def __repr__(self) -> str:
        return f"RankTrace(rank {self.rank}, {self.format}, {len(self.events):,} events, {self.source!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One or many ranks, in rank order, each rank once."""

    ranks: tuple[RankTrace, ...]

    def __post_init__(self) -> None:
        seen: dict[int, str] = {}
        for part in self.ranks:
            if part.rank in seen:
                raise TraceError(
                    f"rank {part.rank} is claimed by two files, {seen[part.rank]} and {part.source}; "
                    "name the files of one run only, or give each its rank"
                )
            seen[part.rank] = part.source

    def __len__(self) -> int:
        return sum(len(part.events) for part in self.ranks)

    def __iter__(self) -> Iterator[RankTrace]:
        return iter(self.ranks)

    @property
    def diagnostics(self) -> Diagnostics:
        """All ranks' diagnostics in one."""
        merged = Diagnostics()
        for part in self.ranks:
            merged.merge(part.diagnostics)
        return merged


class NameTable:
    """Interns text while a table is being filled: each distinct name gets the next code."""

    __slots__ = ("_codes",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._codes: dict[str, int] = {}
        for name in names:
            self.code(name)

    def code(self, name: str) -> int:
        """The code of `name`."""
        return self._codes.setdefault(name, len(self._codes))

    def names(self) -> tuple[str, ...]:
        """All names, in the order of their codes."""
        return tuple(self._codes)


def _freeze(*arrays: NDArray[Any]) -> None:
    for array in arrays:
        array.setflags(write=False)
