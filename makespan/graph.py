"""Graph: the global dataflow graph as immutable columns, numbered so that every edge goes forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.errors import GraphError
from makespan.topology import find_cycle, topological_order

NONE: Final = -1


class OpKind(IntEnum):
    """What an op is. The order is the file format's; append, never renumber."""

    ORIGIN = 0  # zero time, at time zero: what starts without a known cause hangs on it
    HOST = 1  # self time of a framework op on a host thread
    PYTHON = 2  # self time of interpreter frames
    RUNTIME = 3  # host call into a device runtime (launch, copy, synchronise)
    THINK = 4  # host time between recorded events
    WAIT = 5  # what a waiting host call still does once the awaited work has ended
    COMPUTE = 6  # device kernel
    MEMCPY = 7
    MEMSET = 8
    COLLECTIVE = 9
    SEND = 10
    RECV = 11
    BARRIER = 12  # zero time: a meeting point of several ranks
    MARK = 13  # zero time: a named instant
    OTHER = 14


COMMUNICATION: Final = (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV)


class StreamKind(IntEnum):
    """What an ordered queue stands for; a SHARED link serves its ops at once, each at a fair share of its rate."""

    HOST = 0
    DEVICE = 1
    LINK = 2
    SHARED = 3


class Relation(IntEnum):
    """Which instant of the predecessor binds which instant of the op, after the lag.

    Bit 0 is set where the predecessor's start counts, bit 1 where the op's end is bound.
    """

    FINISH_START = 0
    START_START = 1
    FINISH_FINISH = 2
    START_FINISH = 3


class EdgeKind(IntEnum):
    """Why an op depends on another."""

    DATA = 0  # stated by the file or by a recipe
    THREAD = 1  # program order of a host thread
    LAUNCH = 2  # host call -> its device work
    STREAM = 3  # order of a device stream
    GRAPH = 4  # one launch -> the device works of a captured graph
    SYNC = 5  # device work -> host call that awaits it
    QUEUE = 6  # device work -> launch that found the queue full
    HANDOFF = 7  # host thread -> host thread
    EVENT = 8  # device stream -> device stream
    COLLECTIVE = 9  # last arrival -> transfer
    ORIGIN = 10  # time zero -> work whose cause was not recorded
    ROOM = 11  # kernel that filled the device -> work of another stream that found no room beside it


class Evidence(IntEnum):
    """How far an edge's lag can be trusted."""

    MEASURED = 0  # both ends recorded as related
    INFERRED = 1  # concluded from times
    RESIDUAL = 2  # wait that nothing recorded explains


@dataclass(frozen=True, slots=True)
class Stream:
    """An ordered queue that runs one op at a time: a host thread, a device stream or a link."""

    rank: int
    name: str
    kind: StreamKind
    device: int = NONE


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of a rank: from the start of `begin_op` to the end of `end_op`; measured times where known."""

    name: str
    rank: int
    begin_op: int
    end_op: int
    measured_start_ns: int = NONE
    measured_end_ns: int = NONE

    @property
    def measured_ns(self) -> int:
        """Length as recorded, -1 where it was not."""
        return NONE if self.measured_end_ns == NONE else self.measured_end_ns - self.measured_start_ns


OP_COLUMNS: Final = {
    "kind": np.uint8, "rank": np.int32, "stream": np.int32, "duration_ns": np.int64, "size_bytes": np.int64,
    "name": np.int32, "priority": np.int32, "step": np.int32, "group": np.int32,
}  # fmt: skip
EDGE_COLUMNS: Final = {
    "pred": np.int32, "lag_ns": np.int64, "relation": np.uint8, "edge_kind": np.uint8, "evidence": np.uint8,
}  # fmt: skip
NAME_ATTRS: Final = ("outer", "user_range", "parameter")
"""Attributes that hold numbers of names, -1 none."""
WHOLE_ATTRS: Final = (*NAME_ATTRS, "event", "measured_start_ns", "bucket")
"""Attributes that hold whole numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """n ops, m edges, read-only columns.

    Ops are numbered so that every edge goes from a lower to a higher number, and so that the ops of a stream
    stand in their recorded order. `kind` (n,) uint8 OpKind; `rank` (n,) int32; `stream` (n,) int32 into
    `streams`; `duration_ns`, `size_bytes` (n,) int64; `name` (n,) int32 into `names`; `priority` (n,) int32,
    lower first; `step` (n,) int32 into `step_names`, -1 none; `group` (n,) int32 collective, -1 none.
    The predecessors of op i are `pred[pred_ptr[i]:pred_ptr[i + 1]]` (int32), with `lag_ns` (m,) int64 >= 0,
    `relation`, `edge_kind` and `evidence` (m,) uint8 beside them. `sync` (n,) uint8 or None: over which
    replicas an op waits. `attrs`: further (n,) columns (`measured_start_ns`, `event`, `flops`, ...).
    `origin_ns` is time zero on the trace's clock. `notes`: what was found or assumed while the graph was built,
    reason -> count.
    """

    kind: NDArray[np.uint8]
    rank: NDArray[np.int32]
    stream: NDArray[np.int32]
    duration_ns: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    name: NDArray[np.int32]
    priority: NDArray[np.int32]
    step: NDArray[np.int32]
    group: NDArray[np.int32]
    pred_ptr: NDArray[np.int64]
    pred: NDArray[np.int32]
    lag_ns: NDArray[np.int64]
    relation: NDArray[np.uint8]
    edge_kind: NDArray[np.uint8]
    evidence: NDArray[np.uint8]
    names: tuple[str, ...]
    streams: tuple[Stream, ...]
    step_names: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    sync: NDArray[np.uint8] | None = None
    attrs: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    origin_ns: int = 0
    notes: Mapping[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        for name, column in self.attrs.items():
            if not isinstance(column, np.ndarray):
                raise GraphError(f"attribute {name} is a {type(column).__name__}, expected a numpy array")
        for column in self.columns().values():
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return f"Graph({len(self):,} ops, {self.edge_count:,} edges, {len(self.streams)} streams)"

    @property
    def edge_count(self) -> int:
        """m"""
        return len(self.pred)

    @property
    def nbytes(self) -> int:
        """Bytes held by all columns."""
        return sum(column.nbytes for column in self.columns().values())

    def columns(self) -> dict[str, NDArray[Any]]:
        """All array columns by name; attrs as "attrs.NAME"."""
        found: dict[str, NDArray[Any]] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                found[item.name] = value
        found.update({f"attrs.{name}": column for name, column in self.attrs.items()})
        return found

    def replace(self, **changes: Any) -> Graph:
        """A graph with some fields exchanged, sharing the rest."""
        return replace(self, **changes)

    def with_attrs(self, **columns: NDArray[Any]) -> Graph:
        """A graph with more (or other) (n,) attribute columns."""
        return replace(self, attrs={**self.attrs, **columns})

    def name_of(self, op: int) -> str:
        """The name of `op`."""
        return self.names[self.name[op]]

    def edges(self) -> Edges:
        """All edges as parallel columns (m,), in the order of `pred`."""
        return Edges(self.pred, self.edge_targets(), self.lag_ns, self.relation, self.edge_kind, self.evidence)

    def edge_targets(self) -> NDArray[np.int32]:
        """(m,) int32: the op that each edge leads to."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.pred_ptr))

    def successors(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """CSR of the other direction: `succ_ptr` (n+1,), `succ` (m,) ops and `edge` (m,) edge numbers."""
        edge = np.argsort(self.pred, kind="stable")
        pointer = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.bincount(self.pred, minlength=len(self)), out=pointer[1:])
        return pointer, self.edge_targets()[edge], edge

    def on_streams(self, *kinds: StreamKind) -> NDArray[np.bool_]:
        """(n,) bool: ops whose stream is of one of `kinds`."""
        chosen = np.fromiter((stream.kind in kinds for stream in self.streams), np.bool_, len(self.streams))
        return chosen[self.stream]

    def verify(self) -> None:
        """Raise GraphError naming the first broken invariant and its ops."""
        count, edge_count = _length("kind", self.kind), _length("pred", self.pred)
        for name, dtype in OP_COLUMNS.items():
            _expect_column(name, getattr(self, name), dtype, count)
        for name, dtype in EDGE_COLUMNS.items():
            _expect_column(name, getattr(self, name), dtype, edge_count)
        _expect_column("pred_ptr", self.pred_ptr, np.int64, count + 1)
        if self.sync is not None:
            _expect_column("sync", self.sync, np.uint8, count)
        pointer = self.pred_ptr
        if pointer[0] != 0 or pointer[-1] != edge_count or np.any(pointer[1:] < pointer[:-1]):
            raise GraphError(f"pred_ptr doesn't cut {edge_count} edges into {count} runs")
        self._expect("durations are never negative", self.duration_ns < 0)
        self._expect("sizes are never negative", self.size_bytes < 0)
        self._expect("every kind is an OpKind", self.kind > max(OpKind))
        self._expect("every stream exists", (self.stream < 0) | (self.stream >= len(self.streams)))
        self._expect("every name exists", (self.name < 0) | (self.name >= len(self.names)))
        self._expect("every step exists", (self.step < NONE) | (self.step >= len(self.step_names)))
        for stream in self.streams:
            if not 0 <= stream.rank < 2**31:
                raise GraphError(f"stream {stream.name!r} is of rank {stream.rank}, expected one from 0 to 2**31 - 1")
        ranks = np.fromiter((stream.rank for stream in self.streams), np.int32, len(self.streams))
        self._expect("an op is of its stream's rank", ranks[self.stream] != self.rank)
        target = self.edge_targets()
        self._expect_edges("every predecessor exists", (self.pred < 0) | (self.pred >= count), target)
        backward = self.pred >= target
        if np.any(backward):
            cycle = find_cycle(pointer, self.pred)
            if len(cycle):
                raise GraphError("the graph waits on itself: " + self.describe_cycle(cycle))
            self._expect_edges("every edge goes from a lower to a higher op number", backward, target)
        self._expect_edges("lags are never negative", self.lag_ns < 0, target)
        self._expect_edges("every relation is a Relation", self.relation > max(Relation), target)
        self._expect_edges("every edge kind is an EdgeKind", self.edge_kind > max(EdgeKind), target)
        self._expect_edges("all evidence is an Evidence", self.evidence > max(Evidence), target)
        self._verify_attrs()
        self._verify_steps()

    def _verify_attrs(self) -> None:
        for name, column in self.attrs.items():
            if column.shape != (len(self),):
                held = f"{len(column)} values" if column.ndim == 1 else f"the shape {list(column.shape)}"
                raise GraphError(f"attribute {name} has {held}, expected {len(self)}, one for each op")
            if column.dtype.kind not in ("iu" if name in WHOLE_ATTRS else "biuf"):
                wanted = "whole numbers" if name in WHOLE_ATTRS else "plain numbers"
                raise GraphError(f"attribute {name} holds {column.dtype}, expected {wanted}")
            if name in NAME_ATTRS:
                self._expect(f"every {name} is a name or -1", (column < NONE) | (column >= len(self.names)))

    def _verify_steps(self) -> None:
        count = len(self)
        for step in self.steps:
            told = f"step {step.name} of rank {step.rank}"
            if not (0 <= step.begin_op < count and 0 <= step.end_op < count):
                raise GraphError(f"{told} begins or ends outside the {count} ops")
            if step.begin_op > step.end_op:
                raise GraphError(f"{told} ends with op {step.end_op}, before op {step.begin_op} that begins it")
            if step.measured_end_ns != NONE and step.measured_ns < 0:
                raise GraphError(
                    f"{told} was measured to end at {step.measured_end_ns} ns, before its start at "
                    f"{step.measured_start_ns} ns"
                )

    def describe_cycle(self, cycle: Sequence[int] | NDArray[np.int32]) -> str:
        """The ops of a wait cycle as one line."""
        told = [self._label(int(op)) for op in cycle[:12]]
        if len(cycle) > 12:
            told.append(f"... {len(cycle) - 12} more")
        return " -> ".join([*told, self._label(int(cycle[0]))])

    def _label(self, op: int) -> str:
        stream = self.streams[self.stream[op]]
        return f"op {op} {self.name_of(op)!r} (rank {stream.rank}, {stream.name})"

    def _expect(self, invariant: str, broken: NDArray[np.bool_]) -> None:
        if np.any(broken):
            ops = np.flatnonzero(broken)
            told = ", ".join(str(op) for op in ops[:5])
            raise GraphError(f"broken invariant: {invariant}; {len(ops)} op(s), the first: {told}")

    def _expect_edges(self, invariant: str, broken: NDArray[np.bool_], target: NDArray[np.int32]) -> None:
        if np.any(broken):
            edges = np.flatnonzero(broken)
            told = ", ".join(f"{self.pred[edge]} -> {target[edge]}" for edge in edges[:5])
            raise GraphError(f"broken invariant: {invariant}; {len(edges)} edge(s), the first: {told}")


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Edges as parallel columns (m,), before they are sorted into a graph."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    lag_ns: NDArray[np.int64]
    relation: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    evidence: NDArray[np.uint8]

    @staticmethod
    def of(
        source: ArrayLike,
        target: ArrayLike,
        lag_ns: ArrayLike = 0,
        relation: ArrayLike = Relation.FINISH_START,
        kind: ArrayLike = EdgeKind.DATA,
        evidence: ArrayLike = Evidence.MEASURED,
    ) -> Edges:
        """Edges from arrays or scalars, broadcast to one length."""
        columns = np.broadcast_arrays(*map(np.atleast_1d, (source, target, lag_ns, relation, kind, evidence)))
        dtypes: tuple[Any, ...] = (np.int32, np.int32, np.int64, np.uint8, np.uint8, np.uint8)
        return Edges(*(column.astype(dtype) for column, dtype in zip(columns, dtypes, strict=True)))

    @staticmethod
    def concatenate(parts: Sequence[Edges]) -> Edges:
        """All edges of `parts`, in order."""
        if not parts:
            return Edges.of(np.empty(0), np.empty(0))
        return Edges(*(np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Edges)))

    def take(self, chosen: NDArray[Any]) -> Edges:
        """The edges that `chosen` names: numbers, or a (m,) bool mask."""
        return Edges(*(getattr(self, item.name)[chosen] for item in fields(Edges)))

    def __len__(self) -> int:
        return len(self.source)


def assemble(
    *,
    kind: ArrayLike,
    stream: ArrayLike,
    duration_ns: ArrayLike,
    streams: Sequence[Stream],
    name: ArrayLike,
    names: Sequence[str],
    edges: Edges,
    order_ns: ArrayLike | None = None,
    size_bytes: ArrayLike = 0,
    priority: ArrayLike = 0,
    step: ArrayLike = NONE,
    group: ArrayLike = NONE,
    step_names: Sequence[str] = (),
    steps: Sequence[Step] = (),
    sync: NDArray[np.uint8] | None = None,
    attrs: Mapping[str, NDArray[Any]] | None = None,
    origin_ns: int = 0,
    notes: Mapping[str, int] | None = None,
) -> tuple[Graph, NDArray[np.int32]]:
    """Number ops topologically and build the graph; returns it with the new number of each given op, (n,) int32.

    Among ops that are free to come next, the one with the smallest `order_ns` (n,) comes first, then the one
    given first: with recorded start times this keeps every stream in its recorded order. Columns are (n,) or
    scalars; `steps` name ops by their given numbers. Raises GraphError, printing the ops, on a cycle.
    """
    count = len(np.atleast_1d(kind))
    given = {
        "kind": kind, "stream": stream, "duration_ns": duration_ns, "size_bytes": size_bytes, "name": name,
        "priority": priority, "step": step, "group": group,
    }  # fmt: skip
    columns: dict[str, NDArray[Any]] = {
        key: np.broadcast_to(np.asarray(value, OP_COLUMNS[key]), (count,)) for key, value in given.items()
    }
    key_ns = np.arange(count, dtype=np.int64) if order_ns is None else np.asarray(order_ns, np.int64)
    for label, end in (("source", edges.source), ("target", edges.target)):
        outside = np.flatnonzero((end < 0) | (end >= count))
        if len(outside):
            raise GraphError(f"edge {outside[0]} has {label} {end[outside[0]]}, expected an op from 0 to {count - 1}")
    order = topological_order(count, edges.source, edges.target, key_ns)
    number = np.empty(count, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    # On a cycle the graph keeps its given numbers, so that verify() can name the ops that wait on each other.
    acyclic = len(order) == count
    if not acyclic:
        order = np.arange(count, dtype=np.int32)
        number = order.copy()
    source, target = number[edges.source], number[edges.target]
    by_target = np.argsort(target, kind="stable")
    pointer = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=count), out=pointer[1:])
    ranks = np.fromiter((item.rank for item in streams), np.int32, len(streams))
    graph = Graph(
        **{key: np.ascontiguousarray(column[order]) for key, column in columns.items()},
        rank=ranks[columns["stream"][order]] if count else np.empty(0, np.int32),
        pred_ptr=pointer,
        pred=source[by_target],
        lag_ns=edges.lag_ns[by_target],
        relation=edges.relation[by_target],
        edge_kind=edges.kind[by_target],
        evidence=edges.evidence[by_target],
        names=tuple(names),
        streams=tuple(streams),
        step_names=tuple(step_names),
        steps=tuple(_renumbered(step, number) for step in steps),
        sync=None if sync is None else sync[order],
        attrs={key: column[order] for key, column in (attrs or {}).items()},
        origin_ns=origin_ns,
        notes=notes or {},
    )
    if not acyclic:
        graph.verify()
    return graph, number


def _renumbered(step: Step, number: NDArray[np.int32]) -> Step:
    """`step` by new numbers; of ops that began at one instant the one that the edges put first begins it."""
    begin, end = sorted((int(number[step.begin_op]), int(number[step.end_op])))
    return replace(step, begin_op=begin, end_op=end)


def _length(name: str, column: Any) -> int:
    if not isinstance(column, np.ndarray) or column.ndim != 1:
        raise GraphError(
            f"column {name} is {type(column).__name__}{list(np.shape(column))}, expected one row of numbers"
        )
    return len(column)


def _expect_column(name: str, column: NDArray[Any], dtype: Any, length: int) -> None:
    if _length(name, column) != length or column.dtype != dtype:
        raise GraphError(f"column {name} is {column.dtype}{list(column.shape)}, expected {np.dtype(dtype)}[{length}]")
