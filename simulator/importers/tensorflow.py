"""TensorFlow timelines: ops by the device whose executor ran them, and device streams where they were traced."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from makespan.simulator.chrome.reader import OWN_TIMELINE, ChromeEvent, ChromeReader
from makespan.simulator.chrome.table import clock_of
from makespan.simulator.reading.believable_events import believable
from makespan.simulator.reading.crossing_lanes import spread_crossing
from makespan.simulator.reading.json_objects import as_integer
from makespan.simulator.reading.kineto_kinds import canonical_collective
from makespan.simulator.reading.sources import Source, report
from makespan.simulator.reading.table_builder import TableBuilder
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace

TITLE = "TensorFlow timeline"

NO_TIME: Final = "event without a time"
NO_DURATION: Final = "complete event without a duration"
LOOSE_ARROW: Final = "arrow of which only one end is recorded"
NO_LAUNCH: Final = "device event without its launch"
ABSENT_INPUT: Final = "input whose op is not in the file"
DRAWN_TWICE: Final = "device event drawn a second time"
OTHER_PHASE: Final = "event of a phase that is not used"

_MARKS: Final = re.compile(
    rb'"(?:/job:[^"]*/task:\d+[^"]*|/(?:device:)?[cg]pu:\d+[^"]*) (?:Compute|Tensors)"|"cat"\s*:\s*"DataFlow"',
    re.IGNORECASE,
)
_ROW: Final = re.compile(r"(.*?[a-z]pu:(\d{1,6}))(?:/(stream:(\w+)|memcpy)\S*)?( Compute| Tensors)?", re.IGNORECASE)
_COLLECTIVE: Final = re.compile(r"nccl|collective|horovod|byteps", re.IGNORECASE)
_DATA_FLOW: Final = "DataFlow"


@dataclass(slots=True)
class _Row:
    """A row of the drawing: a device's executor, one of its streams, or a copy of all streams' events."""

    name: str
    device: str = ""
    number: int = NONE
    is_stream: bool = False
    is_copy: bool = False
    stream: int = NONE


@dataclass(slots=True)
class _Span:
    """An op as drawn: `op` its type, `node` its name in the graph, `inputs` the nodes whose output it takes."""

    row: str
    lane: str
    op: str
    node: str
    start_ns: int
    duration_ns: int
    inputs: list[str] = field(default_factory=list[str])


def recognise(source: Source) -> int:
    """2 where a row is called after a task's or a device's ops, or an arrow is of category DataFlow."""
    opens = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return 2 * bool(opens and _MARKS.search(source.head) and not OWN_TIMELINE.match(source.head))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace for all devices of the timeline.

    With stream rows an executor's ops are host events, whose lanes are taken for threads, and share a correlation
    with the device events of their node. Without them the lanes say nothing about order, and the ops depend on the
    ops that their inputs name. Rows that show all streams together are DEVICE_ANNOTATION beside the streams' own.
    Arrows are of kind DataFlow. Attributes: module (the node's name), collective, value (of counters).
    """
    drawing = _Drawing(source, diagnostics, strict)
    for event in ChromeReader(source, diagnostics, strict):
        drawing.add(event)
    part = believable(drawing.trace(), strict)
    clock, clock_base_ns = clock_of(int(part.events.start_ns.min()) if len(part.events) else 0)
    events = replace(part.events, start_ns=part.events.start_ns - clock_base_ns)
    drawn = np.array([lane.kind == LaneKind.OTHER for lane in events.lanes], np.bool_)
    return [
        replace(
            part,
            events=spread_crossing(events, drawn, nesting=False) if len(events) else events,
            clock=clock,
            clock_base_ns=clock_base_ns,
        )
    ]


class _Drawing:
    """Events in, rows, arrows and dependencies out."""

    def __init__(self, source: Source, diagnostics: Diagnostics, strict: bool) -> None:
        self._source, self._diagnostics, self._strict = source, diagnostics, strict
        self._rows: dict[str, _Row] = {}
        self._spans: list[_Span] = []
        self._counters: list[tuple[str, int, float]] = []
        self._flows: dict[Any, list[tuple[int, str, tuple[str, str]]]] = {}
        self._count = 0

    def add(self, event: ChromeEvent) -> None:
        """Take over the next event of the file."""
        self._count += 1
        args = event.args or {}
        row = str(event.pid)
        if event.ph == "M":
            if event.name == "process_name" and "name" in args:
                self._rows[row] = _row(str(args["name"]))
            return
        start_ns = event.start_ns
        if start_ns is None:
            self._tell(NO_TIME)
        elif event.ph == "X":
            self._add_span(event, row, start_ns, args)
        elif event.ph == "C":
            self._counters.append((str(event.name), start_ns, float(sum(_numbers(args.values())))))
        elif event.ph in ("s", "t", "f"):
            ends = self._flows.setdefault(str(event.id), [])
            ends.append((start_ns, str(event.ph), (row, str(event.tid))))
        else:
            self._diagnostics.add(OTHER_PHASE, self._place())

    def _add_span(self, event: ChromeEvent, row: str, start_ns: int, args: dict[str, Any]) -> None:
        duration_ns = event.duration_ns
        if duration_ns is None:
            self._tell(NO_DURATION)
        inputs = [str(value) for key, value in args.items() if key.startswith("input") and key[5:].isdecimal()]
        self._spans.append(
            _Span(row, str(event.tid), str(event.name), str(args.get("name", "")), start_ns, duration_ns or 0, inputs)
        )

    def trace(self) -> RankTrace:
        """Everything so far as the trace of one rank."""
        for span in self._spans:
            self._rows.setdefault(span.row, _Row(span.row, span.row))
        numbered = {row.number for row in self._rows.values() if row.is_stream and not row.is_copy}
        streamed = any(self._rows[span.row].is_stream for span in self._spans)
        rows = TableBuilder()
        launches = self._launches() if streamed else {}
        table_row: list[int] = []
        for number, span in enumerate(self._spans):
            row = self._rows[span.row]
            copied = row.is_copy and row.number in numbered
            kind = EventKind.DEVICE_ANNOTATION if copied else _device_kind(span.op) if row.is_stream else _op_kind(span)
            launch = launches.get(number, NONE)
            table_row.append(
                rows.add(
                    span.op,
                    kind,
                    _lane(rows, row, span, copied, streamed),
                    span.start_ns,
                    span.duration_ns,
                    correlation=launch + 1 if launch >= 0 and not copied else NONE,
                    module=span.node or None,
                    collective=canonical_collective(span.op) if kind == EventKind.COLLECTIVE else None,
                )
            )
        copies = sum(self._rows[span.row].is_copy and self._rows[span.row].number in numbered for span in self._spans)
        self._diagnostics.add(DRAWN_TWICE, self._source.name, copies)
        for name, start_ns, value in self._counters:
            lane = rows.lane(LaneKind.OTHER, "Allocators", name)
            rows.add(name, EventKind.COUNTER, lane, start_ns, 0, value=value)
        self._add_arrows(rows)
        dependencies = [] if streamed else self._dependencies()
        pairs = np.array(dependencies, np.int32).reshape(-1, 2)
        return RankTrace(
            rank=NONE,
            source=self._source.name,
            format=TITLE,
            events=rows.table(),
            diagnostics=self._diagnostics,
            dependency_source=pairs[:, 0].copy(),
            dependency_target=pairs[:, 1].copy(),
        )

    def _executed(self) -> dict[str, list[tuple[int, int]]]:
        """Starts and numbers of the spans of each node on executors' rows, in the order of starts."""
        found: dict[str, list[tuple[int, int]]] = {}
        for number, span in enumerate(self._spans):
            if span.node and not self._rows[span.row].is_stream:
                found.setdefault(span.node, []).append((span.start_ns, number))
        for listed in found.values():
            listed.sort()
        return found

    def _launches(self) -> dict[int, int]:
        """The launching span of each device span, and of each launching span itself: the node's last one before."""
        executed = self._executed()
        found: dict[int, int] = {}
        lost = 0
        for number, span in enumerate(self._spans):
            row = self._rows[span.row]
            if not row.is_stream:
                continue
            launch = _last_before(executed.get(span.node.partition(":")[0], []), span.start_ns)
            if launch >= 0:
                found[number] = found[launch] = launch
            else:
                lost += not row.is_copy
        self._diagnostics.add(NO_LAUNCH, self._source.name, lost)
        return found

    def _dependencies(self) -> list[tuple[int, int]]:
        """Producer and consumer of each input."""
        executed = self._executed()
        found: set[tuple[int, int]] = set()
        absent = 0
        for number, span in enumerate(self._spans):
            for name in span.inputs:
                producer = _last_before(executed.get(_node(name), []), span.start_ns)
                if producer >= 0 and producer != number:
                    found.add((producer, number))
                else:
                    absent += 1
        self._diagnostics.add(ABSENT_INPUT, self._source.name, absent)
        return sorted(found, key=lambda pair: (pair[1], pair[0]))

    def _add_arrows(self, rows: TableBuilder) -> None:
        """Arrows start where a span of their lane ends, and lead to where one begins."""
        ending = {(span.row, span.lane, span.start_ns + span.duration_ns): n for n, span in enumerate(self._spans)}
        beginning = {(span.row, span.lane, span.start_ns): n for n, span in enumerate(self._spans)}
        loose = 0
        for ends in self._flows.values():
            sources = [ending.get((*place, at_ns)) for at_ns, phase, place in ends if phase == "s"]
            targets = [beginning.get((*place, at_ns)) for at_ns, phase, place in ends if phase != "s"]
            source = sources[0] if len(sources) == 1 else None
            for target in targets:
                if source is not None and target is not None:
                    rows.flow(source, target, _DATA_FLOW)
            loose += targets.count(None) + (source is None) * len(sources)
        self._diagnostics.add(LOOSE_ARROW, self._source.name, loose)

    def _place(self) -> str:
        return f"{self._source.name}:event {self._count - 1}"

    def _tell(self, reason: str) -> None:
        report(self._diagnostics, self._strict, reason, self._place())


def _row(name: str) -> _Row:
    found = _ROW.fullmatch(name)
    if found is None:
        return _Row(name, name)
    device, number, part, stream = found[1], int(found[2]), found[3], found[4]
    is_copy = part is not None and (stream is None or not stream.isdecimal())
    stream_number = as_integer(stream) if stream is not None else None
    return _Row(name, device, number, part is not None, is_copy, NONE if stream_number is None else stream_number)


def _lane(rows: TableBuilder, row: _Row, span: _Span, copied: bool, streamed: bool) -> int:
    if copied:
        return rows.lane(LaneKind.OTHER, row.device, row.name)
    if row.is_stream:
        return rows.lane(LaneKind.DEVICE, row.device, row.name.removesuffix(" Compute"), "", row.number, row.stream)
    return rows.lane(LaneKind.HOST if streamed else LaneKind.OTHER, row.device, span.lane, row.name)


def _device_kind(op: str) -> EventKind:
    upper = op.upper()
    if upper.startswith("MEMCPY"):
        return EventKind.MEMCPY
    if upper.startswith("MEMSET"):
        return EventKind.MEMSET
    return EventKind.COLLECTIVE if "NCCL" in upper else EventKind.KERNEL


def _op_kind(span: _Span) -> EventKind:
    if span.op == "RecvTensor":
        return EventKind.RECV
    return EventKind.COLLECTIVE if _COLLECTIVE.search(span.op) else EventKind.CPU_OP


def _node(name: str) -> str:
    """The node in an input's name, which may carry a mark of control and the number of an output."""
    return name.removeprefix("^").partition(":")[0]


def _last_before(starts: list[tuple[int, int]], at_ns: int) -> int:
    """The number beside the last of the ascending starts that is not after `at_ns`; NONE where there is none."""
    place = bisect_right(starts, (at_ns, 1 << 62))
    return starts[place - 1][1] if place else NONE


def _numbers(values: Iterable[Any]) -> list[float]:
    return [value for value in values if type(value) is float or (type(value) is int and value.bit_length() < 64)]
