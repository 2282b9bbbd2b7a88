"""Chunks of Chrome events, gathered into columns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from makespan.simulator.chrome.arguments import ArgumentColumns
from makespan.simulator.chrome.columns import FLOW_COLUMNS, ROW_COLUMNS, ChromeColumns, believable
from makespan.simulator.chrome.events import (
    FLOW,
    LEFT_OUT,
    METADATA,
    NO_TEXT,
    PAIRED,
    PHASE_CLASS,
    ROW,
    ColumnEvent,
    EventArgs,
    EventTimes,
    phase_bytes,
)
from makespan.simulator.chrome.pairs import SpanPairs
from makespan.simulator.chrome.reader import Chunk, EventStream, collector_paused
from makespan.simulator.chrome.times import FAR_NS, MISSING, NotExactError, nanoseconds_of_numbers, nanoseconds_of_texts
from makespan.simulator.chrome.values import Codes, spell
from makespan.simulator.reading.ranks import distributed_info
from makespan.simulator.reading.sources import Source, report
from makespan.trace import Diagnostics

_decode_times: Final = msgspec.json.Decoder(list[EventTimes]).decode


class _RawArgs(msgspec.Struct, gc=False):
    """The args of an event, undecoded: what is wrong with those of others must not matter."""

    args: msgspec.Raw = NO_TEXT


_decode_args: Final = msgspec.json.Decoder(list[_RawArgs]).decode


def read_columns(source: Source, diagnostics: Diagnostics, strict: bool) -> ChromeColumns:
    """All events of a Chrome JSON source; damage and impossible times are reported and set aside."""
    stream = EventStream(source, diagnostics, strict, ColumnEvent)
    collector = _Collector(source.name, diagnostics, strict)
    with collector_paused():
        for chunk in stream:
            collector.add(chunk)
    return collector.finish(stream.metadata)


class _Collector:
    """Chunks in, columns out."""

    def __init__(self, name: str, diagnostics: Diagnostics, strict: bool) -> None:
        self._name, self._diagnostics, self._strict = name, diagnostics, strict
        self._names = Codes(spell)
        self._categories = Codes(spell)
        self._places = Codes(lambda place: (spell(place[0]), spell(place[1])))
        self._flow_ids = Codes(spell)
        self._rows: dict[str, list[NDArray[Any]]] = {key: [] for key in ROW_COLUMNS}
        self._flows: dict[str, list[NDArray[Any]]] = {key: [] for key in FLOW_COLUMNS}
        self._args = ArgumentColumns()
        self._pairs = SpanPairs()
        self._count = 0
        self._thread_names: dict[tuple[str, str], str] = {}
        self._process_names: dict[str, str] = {}

    def add(self, chunk: Chunk[ColumnEvent]) -> None:
        """Take over one chunk's events."""
        phases, names, categories, starts, durations, pids, tids, ids, args = zip(
            *map(astuple, chunk.events), strict=True
        )
        phase = phase_bytes(phases)
        what = PHASE_CLASS[phase]
        start_ns, duration_ns = self._times(starts, durations, chunk)
        timeless = (start_ns == MISSING) & (what < METADATA)
        if timeless.any():
            self._report("event without a time", timeless, chunk)
            what = np.where(timeless, 0, what)
        left_out = what == LEFT_OUT
        if left_out.any():
            place = f"{self._name}:event {chunk.first + int(np.argmax(left_out))}"
            self._diagnostics.add("event of a phase that is not used", place, int(left_out.sum()))
        columns: dict[str, NDArray[Any]] = {
            "phase": phase,
            "name": self._names.column(names),
            "category": self._categories.column(categories),
            "place": self._places.column(tuple(zip(pids, tids, strict=True))),
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "number": np.arange(chunk.first, chunk.first + len(phase), dtype=np.int32),
        }
        is_row = what == ROW
        row_of = np.cumsum(is_row, dtype=np.int32) + np.int32(self._count - 1)
        for key, column in columns.items():
            self._rows[key].append(column[is_row])
        self._add_flows(columns, what == FLOW, ids)
        self._add_pairs(columns, np.flatnonzero(PAIRED[phase] & ~timeless), names, ids, row_of)
        self._add_args(args, is_row, row_of, chunk)
        for at in np.flatnonzero(what == METADATA).tolist():
            self._add_metadata(spell(names[at]), args[at], spell(pids[at]), spell(tids[at]))
        if np.any(is_row & (phase == ord("C"))):
            self._add_counters(chunk, is_row & (phase == ord("C")), row_of)
        self._count += int(np.count_nonzero(is_row))

    def _times(
        self, starts: Sequence[Any], durations: Sequence[Any], chunk: Chunk[ColumnEvent]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        try:
            return nanoseconds_of_numbers(starts), nanoseconds_of_numbers(durations)
        except (NotExactError, TypeError):
            times = _decode_times(chunk.text)
        start_texts, duration_texts = [bytes(each.ts) for each in times], [bytes(each.dur) for each in times]
        quoted = np.array([text[:1] == b'"' for text in start_texts])
        quoted |= np.array([text[:1] == b'"' for text in duration_texts])
        self._report("number written as text", quoted, chunk)
        return nanoseconds_of_texts(start_texts), nanoseconds_of_texts(duration_texts)

    def _add_flows(self, columns: Mapping[str, NDArray[Any]], is_flow: NDArray[np.bool_], ids: Sequence[Any]) -> None:
        if not is_flow.any():
            return
        given = [ids[at] for at in np.flatnonzero(is_flow).tolist()]
        try:
            flow_id = np.frombuffer(array("q", given), np.int64)
        except (TypeError, OverflowError):
            # Ids that are text or too large: their codes, in negative numbers, which profilers don't use.
            flow_id = -1 - self._flow_ids.column(given).astype(np.int64)
        self._flows["flow_id"].append(flow_id)
        for key in ("phase", "name", "category", "place"):
            self._flows[f"flow_{key}"].append(columns[key][is_flow])
        self._flows["flow_ns"].append(columns["start_ns"][is_flow])

    def _add_pairs(
        self,
        columns: Mapping[str, NDArray[Any]],
        paired: NDArray[np.int64],
        names: Sequence[Any],
        ids: Sequence[Any],
        row_of: NDArray[np.int32],
    ) -> None:
        for at in paired.tolist():
            phase, name = chr(columns["phase"][at]), int(columns["name"][at])
            on_thread = phase in "BE"
            key = int(columns["place"][at]) if on_thread else (int(columns["category"][at]), spell(ids[at]), name)
            named = name if on_thread and names[at] else None
            place = f"{self._name}:event {int(columns['number'][at])}"
            if phase in "BbS":
                self._pairs.begin(key, named, int(row_of[at]), int(columns["start_ns"][at]), place)
            else:
                self._pairs.end(key, named, int(columns["start_ns"][at]), place)

    def _add_args(
        self,
        args: Sequence[EventArgs],
        is_row: NDArray[np.bool_],
        row_of: NDArray[np.int32],
        chunk: Chunk[ColumnEvent],
    ) -> None:
        positions = np.flatnonzero(is_row)
        beyond = self._args.add(row_of[positions], list(map(args.__getitem__, positions.tolist())))
        if beyond:
            where = np.zeros(len(is_row), np.bool_)
            where[positions[beyond]] = True
            self._report("integer beyond 64 bits", where, chunk)

    def _add_metadata(self, what: str, args: EventArgs, process: str, thread: str) -> None:
        if args.name is not None:
            if what == "thread_name":
                self._thread_names[process, thread] = spell(args.name)
            elif what == "process_name":
                self._process_names[process] = spell(args.name)

    def _add_counters(
        self, chunk: Chunk[ColumnEvent], is_counter: NDArray[np.bool_], row_of: NDArray[np.int32]
    ) -> None:
        """A counter's value: the sum of its series, as a stacked chart shows it."""
        members = _decode_args(chunk.text)
        for at in np.flatnonzero(is_counter).tolist():
            try:
                series = msgspec.json.decode(members[at].args, type=dict[str, Any])
                told = [value for value in series.values() if type(value) in (int, float)]
                total = float(sum(told))
            except (msgspec.DecodeError, RecursionError, OverflowError):
                continue
            if told:
                self._args.put("value", row_of[at : at + 1], np.array([total]))

    def _report(self, reason: str, where: NDArray[np.bool_], chunk: Chunk[ColumnEvent]) -> None:
        if where.any():
            place = f"{self._name}:event {chunk.first + int(np.argmax(where))}"
            report(self._diagnostics, self._strict, reason, place, int(np.count_nonzero(where)))

    def _base_ns(self, stated: Any) -> int:
        if stated is None or (type(stated) is int and 0 <= stated <= FAR_NS):
            return stated or 0
        report(self._diagnostics, self._strict, "baseTimeNanoseconds that can't be one, not used", self._name)
        return 0

    def finish(self, metadata: Mapping[str, Any]) -> ChromeColumns:
        """Close open spans, set impossible times aside, and hand everything over."""
        for place in self._pairs.alone:
            report(self._diagnostics, self._strict, "end without a begin", place)
        for place in self._pairs.left_open():
            report(self._diagnostics, self._strict, "begin without an end", place)
        rows = _joined(ROW_COLUMNS, self._rows)
        flows = _joined(FLOW_COLUMNS, self._flows)
        rows["duration_ns"][rows["phase"] != ord("X")] = 0
        spans, lengths_ns = self._pairs.closed()
        rows["duration_ns"][spans] = lengths_ns
        rank, world_size = distributed_info(metadata, self._name, self._diagnostics, self._strict)
        columns = ChromeColumns(
            **rows,
            **flows,
            names=self._names.texts(),
            categories=self._categories.texts(),
            places=self._places.texts(),
            args=self._args.columns(),
            thread_names=self._thread_names,
            process_names=self._process_names,
            metadata=metadata,
            rank=rank,
            world_size=world_size,
            base_ns=self._base_ns(metadata.get("baseTimeNanoseconds")),
        )
        return believable(columns, self._name, self._diagnostics, self._strict)


def _joined(dtypes: Mapping[str, Any], parts: dict[str, list[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {key: np.concatenate([np.empty(0, dtype), *parts.pop(key)]) for key, dtype in dtypes.items()}
