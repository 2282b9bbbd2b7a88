"""Horovod timelines: what the coordinator saw of each tensor's negotiation and reduction."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from makespan.simulator.chrome.reader import OWN_TIMELINE, ChromeEvent, ChromeReader
from makespan.simulator.reading.believable_events import believable
from makespan.simulator.reading.json_objects import as_integer
from makespan.simulator.reading.kineto_kinds import canonical_collective, element_bytes
from makespan.simulator.reading.sources import Source, report
from makespan.simulator.reading.table_builder import TableBuilder
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace
from makespan.units import NS_PER_US

TITLE = "Horovod timeline"

NO_BEGIN: Final = "end without a begin"
NO_END: Final = "begin without an end"
NO_TIME: Final = "event without a time"
OTHER_PHASE: Final = "event of a phase that is not used"

_NEGOTIATE: Final = "NEGOTIATE_"
_MARKS: Final = re.compile(rb'"NEGOTIATE_[A-Z]+"|"start_time_since_epoch_in_micros"\s*:\s*\d+\}\}|"CYCLE_START"')
_COORDINATOR: Final = 0
"""Horovod writes its timeline on rank 0 alone."""
_OPS: Final = (
    "ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "ADASUM", "BARRIER", "JOIN",
)  # fmt: skip
_TRANSFER: Final = re.compile(r"(?:NCCL|MPI|GLOO|CCL|MLSL|DDL|XLA|SYCL|ADASUM)_\w+")
_WAITS: Final = {"QUEUE": "queue", "WAIT_FOR_DATA": "wait for data", "WAIT_FOR_OTHER_TENSOR_DATA": "wait for data"}
_COPIES: Final = {"MEMCPY_IN": "copy in", "MEMCPY_OUT": "copy out"}
_DTYPES: Final = {"float": "float32", "double": "float64"}


def recognise(source: Source) -> int:
    """2 where the head holds a negotiation, a cycle mark or the start time that newer versions write first."""
    opens = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return 2 * bool(opens and _MARKS.search(source.head) and not OWN_TIMELINE.match(source.head))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace of rank 0, with a lane for each tensor.

    Negotiations and queues are WAIT, copies MEMCPY, transfers COLLECTIVE; the op around the activities of a tensor
    is OTHER, or the COLLECTIVE itself where the file shows nothing inside it. An INSTANT inside a negotiation tells
    by `ready_rank` when which rank was ready. Attributes: state, tensor, collective, parent, dtype, shapes, bytes.
    Times count from the start that newer versions state; the clock of older ones is unknown.
    """
    timeline = _Timeline(source, diagnostics, strict)
    for event in ChromeReader(source, diagnostics, strict):
        timeline.add(event)
    timeline.close()
    part = RankTrace(
        rank=_COORDINATOR,
        source=source.name,
        format=TITLE,
        events=timeline.rows.table(),
        diagnostics=diagnostics,
        clock="unix" if timeline.epoch_ns else "unknown",
        clock_base_ns=timeline.epoch_ns,
        world_size=timeline.last_rank + 1 if timeline.last_rank > 0 else NONE,
    )
    return [believable(part, strict)]


@dataclass(slots=True)
class _Open:
    """A span that has begun: its row, name and whether another one began inside."""

    row: int
    name: str
    start_ns: int
    holds_others: bool = False


@dataclass(slots=True)
class _Tensor:
    """A tensor's lane and open spans."""

    name: str
    lane: int
    spans: list[_Open] = field(default_factory=list[_Open])


class _Timeline:
    """Events in, rows out."""

    def __init__(self, source: Source, diagnostics: Diagnostics, strict: bool) -> None:
        self.rows = TableBuilder()
        self.epoch_ns = 0
        self.last_rank = NONE
        self._source, self._diagnostics, self._strict = source, diagnostics, strict
        self._names: dict[Any, str] = {}
        self._tensors: dict[Any, _Tensor] = {}
        self._count = 0

    def add(self, event: ChromeEvent) -> None:
        """Take over the next event of the file."""
        self._count += 1
        args = event.args or {}
        if event.ph == "M":
            self._add_metadata(event, args)
            return
        start_ns = event.start_ns
        if start_ns is None:
            self._tell(NO_TIME)
        elif event.ph in ("i", "I"):
            lane = self.rows.lane(LaneKind.OTHER, "horovod", "cycles")
            self.rows.add(str(event.name), EventKind.INSTANT, lane, start_ns, 0)
        elif event.ph == "B":
            self._begin(self._tensor(event), str(event.name), start_ns)
        elif event.ph == "E":
            self._end(self._tensor(event), start_ns, args)
        elif event.ph == "X":
            self._add_complete(self._tensor(event), str(event.name), start_ns, event.duration_ns)
        else:
            self._diagnostics.add(OTHER_PHASE, self._place())

    def _add_metadata(self, event: ChromeEvent, args: dict[str, Any]) -> None:
        if event.name != "process_name":
            return
        epoch_us = as_integer(args.get("start_time_since_epoch_in_micros"))
        if epoch_us is not None and 0 < epoch_us < 1 << 52:
            self.epoch_ns = epoch_us * NS_PER_US
        if "name" in args:
            self._names[str(event.pid)] = str(args["name"])

    def _tensor(self, event: ChromeEvent) -> _Tensor:
        key = str(event.pid)
        tensor = self._tensors.get(key)
        if tensor is None:
            name = self._names.get(key, f"tensor {key}")
            tensor = self._tensors[key] = _Tensor(name, self.rows.lane(LaneKind.OTHER, "horovod", name))
        return tensor

    def _begin(self, tensor: _Tensor, name: str, start_ns: int) -> None:
        kind, state = _nature(name)
        above = tensor.spans[-1] if tensor.spans else None
        if above is not None:
            above.holds_others = True
        row = self.rows.add(
            name,
            kind,
            tensor.lane,
            start_ns,
            0,
            state=state,
            tensor=tensor.name,
            collective=_collective(name),
            parent=None if above is None else above.row,
        )
        tensor.spans.append(_Open(row, name, start_ns))

    def _end(self, tensor: _Tensor, end_ns: int, args: dict[str, Any]) -> None:
        if not tensor.spans:
            self._tell(NO_BEGIN)
            return
        span = tensor.spans.pop()
        self.rows.set_duration(span.row, end_ns - span.start_ns)
        if span.name in _OPS and not span.holds_others:
            self.rows.set_kind(span.row, EventKind.COLLECTIVE)
        self._describe(span.row, args)

    def _describe(self, row: int, args: dict[str, Any]) -> None:
        """What the end of an op tells about its tensor."""
        dtype, shape = args.get("dtype"), args.get("shape")
        if isinstance(dtype, str):
            self.rows.set_attr(row, "dtype", _DTYPES.get(dtype, dtype))
        if isinstance(shape, str):
            dimensions = [int(number) for number in re.findall(r"\d{1,18}", shape)[:64]]
            self.rows.set_attr(row, "shapes", f"[{dimensions}]".replace(" ", ""))
            size_bytes = prod(dimensions) * element_bytes(_DTYPES.get(str(dtype), str(dtype)))
            if 0 < size_bytes < 1 << 62:
                self.rows.set_attr(row, "bytes", size_bytes)

    def _add_complete(self, tensor: _Tensor, name: str, start_ns: int, duration_ns: int | None) -> None:
        above = tensor.spans[-1] if tensor.spans else None
        parent = None if above is None else above.row
        if name.isdecimal() and len(name) < 8 and above is not None and above.name.startswith(_NEGOTIATE):
            rank = int(name)
            self.last_rank = max(self.last_rank, rank)
            self.rows.add(
                name, EventKind.INSTANT, tensor.lane, start_ns, 0,
                state="ready", tensor=tensor.name, ready_rank=rank, parent=parent,
            )  # fmt: skip
            return
        kind, state = _nature(name)
        self.rows.add(
            name, kind, tensor.lane, start_ns, duration_ns or 0, state=state, tensor=tensor.name, parent=parent
        )

    def close(self) -> None:
        """Report what was still open when the file ended."""
        for tensor in self._tensors.values():
            self._tell(NO_END, len(tensor.spans))

    def _place(self) -> str:
        return f"{self._source.name}:event {self._count - 1}"

    def _tell(self, reason: str, count: int = 1) -> None:
        report(self._diagnostics, self._strict, reason, self._place(), count)


def _nature(name: str) -> tuple[EventKind, str]:
    """What a span is, and the phase of the communication that it stands for."""
    if name.startswith(_NEGOTIATE):
        return EventKind.WAIT, "negotiate"
    if name in _WAITS:
        return EventKind.WAIT, _WAITS[name]
    for prefix, state in _COPIES.items():
        if name.startswith(prefix):
            return EventKind.MEMCPY, state
    if _TRANSFER.fullmatch(name):
        return EventKind.COLLECTIVE, "transfer"
    return EventKind.OTHER, "process" if name in _OPS else name.lower().replace("_", " ")


def _collective(name: str) -> str | None:
    bare = name.removeprefix(_NEGOTIATE)
    if bare in _OPS or _TRANSFER.fullmatch(name):
        return "allreduce" if bare == "ADASUM" else canonical_collective(bare)
    return None
