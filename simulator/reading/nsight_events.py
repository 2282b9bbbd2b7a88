"""Which tables of an Nsight Systems export hold events, and what their rows become.

Source: NVIDIA's "SQLite Schema Reference" of Nsight Systems. Tables are there only where they have rows, and columns
came and went with versions, so that every column may be absent.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.reading.kineto_kinds import communication_kind, device_collective
from makespan.simulator.reading.sqlite_tables import Database
from makespan.trace import NONE, EventKind, Lane, LaneKind, NameTable

RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX: Final = "NVTX_EVENTS"
HOST_TABLES: Final = {
    RUNTIME: EventKind.RUNTIME, "CUDNN_EVENTS": EventKind.CPU_OP, "CUBLAS_EVENTS": EventKind.CPU_OP,
    "MPI_COLLECTIVES_EVENTS": EventKind.COLLECTIVE, "MPI_P2P_EVENTS": EventKind.CPU_OP,
    "MPI_START_WAIT_EVENTS": EventKind.WAIT, "MPI_OTHER_EVENTS": EventKind.CPU_OP,
}  # fmt: skip
DEVICE_TABLES: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": EventKind.KERNEL, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": EventKind.KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": EventKind.MEMCPY, "CUPTI_ACTIVITY_KIND_MEMSET": EventKind.MEMSET,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": EventKind.SYNC_RECORD,
}  # fmt: skip
_RECORDED: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_COPY_KINDS: Final = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_SYNC_KINDS: Final = ("", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
_STREAM_WAIT: Final = 2
_MARK, _PUSH_POP, _START_END = 34, 59, 60
_VERSION: Final = re.compile(r"_v\d+$")
_STEP: Final = re.compile(
    r"(?:(?:global|train|training|profiler)[ _-]?)?(?:step|iteration|iter)s?[\s#:_=-]*\d+", re.IGNORECASE
)
_MPI_TRANSFER: Final = re.compile(r"MPI_[BSR]?(send|recv)$", re.IGNORECASE)
_MPI_STARTED: Final = re.compile(r"MPI_I(?!nit)")
"""Calls that only start a transfer or a collective."""
_THREAD_BITS: Final = 0xFFFFFF
_NO_STREAM: Final = 0xFFFFFFFF


def is_step(name: str) -> bool:
    """Whether an NVTX range looks like one step: the word and a number, nothing else.

    >>> is_step("iteration 12"), is_step("Step#3"), is_step("step 3 backward")
    (True, True, False)
    """
    return _STEP.fullmatch(name.strip()) is not None


def process_of(global_id: NDArray[np.int64]) -> NDArray[np.int64]:
    """The process's part of serialized global thread or process ids; NONE stays NONE."""
    return np.where(global_id == NONE, NONE, global_id & ~np.int64(_THREAD_BITS))


def process_number(global_id: int) -> int:
    """The operating system's process id in a serialized global id.

    >>> process_number((4711 << 24) + 4712)
    4711
    """
    return global_id >> 24 & _THREAD_BITS


@dataclass(frozen=True, slots=True)
class EventRows:
    """k events of one table: all arrays (k,); `name` and `lane` are codes of the Export that made them.

    `process` is a serialized global process id, NONE where the table does not say. `end_ns` is NONE where no end
    was recorded. `attrs` hold NONE where an event has no value.
    """

    process: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: NDArray[np.uint8]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    correlation: NDArray[np.int64]
    attrs: Mapping[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])


class Export:
    """Reads the event tables of one database; `names` and `lanes` collect what the rows refer to."""

    def __init__(self, database: Database) -> None:
        self.names = NameTable()
        self.lanes: dict[Lane, int] = {}
        self._database = database
        self._strings = {
            number: str(text) for number, text in database.texts("StringIds", ("id", "value")) if type(number) is int
        }
        self._thread_names = {
            thread: self._strings.get(name, "")
            for name, thread in database.texts("ThreadNames", ("nameId", "globalTid"))
            if type(thread) is int and type(name) is int
        }

    def host_rows(self, table: str) -> EventRows:
        """The events of a table of host calls."""
        told = self._database.integers(
            table, ("start", "end", "globalTid", "correlationId", "nameId", "textId", "size", "remoteRank", "tag")
        )
        name, kind = self._named(
            _either(told["nameId"], told["textId"]),
            lambda text: _VERSION.sub("", text) or table,
            lambda text: _host_kind(HOST_TABLES[table], text),
        )
        return EventRows(
            process=process_of(told["globalTid"]),
            start_ns=told["start"],
            end_ns=told["end"],
            kind=kind,
            name=name,
            lane=self._threads(told["globalTid"]),
            correlation=_positive(told["correlationId"]),
            attrs={"bytes": _positive(told["size"]), "peer": told["remoteRank"], "tag": told["tag"]},
        )

    def device_rows(self, table: str) -> EventRows:
        """The events of a table of device work, or the records of synchronisations."""
        told = self._database.integers(
            table,
            (
                "start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId", "demangledName",
                "shortName", "mangledName", "bytes", "copyKind", "syncType", "eventId", "eventSyncId", "graphId",
            ),
        )  # fmt: skip
        kind = DEVICE_TABLES[table]
        attrs = {"bytes": _positive(told["bytes"])}
        if kind == EventKind.SYNC_RECORD:
            attrs = self._waits(told)
            name, kinds = self._numbered(told["syncType"], lambda number: _entry(_SYNC_KINDS, number, "Sync"), kind)
            told["streamId"] = np.full(len(kinds), NONE)
        elif kind == EventKind.MEMCPY:
            name, kinds = self._numbered(
                told["copyKind"], lambda number: f"Memcpy {_entry(_COPY_KINDS, number, '')}".rstrip(), kind
            )
        elif kind == EventKind.MEMSET:
            name, kinds = self._numbered(told["deviceId"], lambda _: "Memset", kind)
        elif "GRAPH" in table:
            name, kinds = self._numbered(told["graphId"], lambda number: f"CUDA graph {number}", kind)
        else:
            name, kinds = self._named(
                _either(told["demangledName"], told["shortName"], told["mangledName"]),
                lambda text: text or "kernel",
                _kernel_kind,
            )
        return EventRows(
            process=process_of(told["globalPid"]),
            start_ns=told["start"],
            end_ns=told["end"],
            kind=kinds,
            name=name,
            lane=self._streams(told),
            correlation=_positive(told["correlationId"]),
            attrs=attrs,
        )

    def nvtx_rows(self) -> tuple[EventRows, int]:
        """Ranges and marks, and how many records are neither (names of domains and categories)."""
        told = self._database.integers(NVTX, ("start", "end", "eventType", "globalTid", "textId"))
        texts = [text for (text,) in self._database.texts(NVTX, ("text",))]
        texts += [None] * (len(told["start"]) - len(texts))
        kinds = np.empty(len(told["start"]), np.uint8)
        codes = np.empty(len(kinds), np.int32)
        number = told["textId"].tolist()
        event_type, end = told["eventType"], told["end"]
        is_mark = (event_type == _MARK) | ((event_type == NONE) & (end == NONE))
        for row, mark in enumerate(is_mark.tolist()):
            name = str(texts[row]) if texts[row] is not None else self._strings.get(number[row], "")
            codes[row] = self.names.code(name or "range")
            kinds[row] = EventKind.INSTANT if mark else EventKind.STEP if is_step(name) else EventKind.ANNOTATION
        rows = EventRows(
            process=process_of(told["globalTid"]),
            start_ns=told["start"],
            end_ns=np.where(is_mark, told["start"], end),
            kind=kinds,
            name=codes,
            lane=self._threads(told["globalTid"]),
            correlation=np.full(len(kinds), NONE, np.int64),
        )
        kept = is_mark | np.isin(event_type, (_PUSH_POP, _START_END, NONE))
        return select(rows, kept), int(np.count_nonzero(~kept))

    def _named(
        self, ids: NDArray[np.int64], spell: Callable[[str], str], kind_of: Callable[[str], EventKind]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Name codes and kinds of rows whose names are ids of strings."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        texts = [spell(self._strings.get(number, "")) for number in distinct.tolist()]
        codes = np.array([self.names.code(text) for text in texts], np.int32)
        return codes[inverse], np.array([kind_of(text) for text in texts], np.uint8)[inverse]

    def _numbered(
        self, numbers: NDArray[np.int64], spell: Callable[[int], str], kind: EventKind
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Name codes and kinds of rows that are named after a number."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        codes = np.array([self.names.code(spell(number)) for number in distinct.tolist()], np.int32)
        return codes[inverse], np.full(len(numbers), kind, np.uint8)

    def _threads(self, global_tid: NDArray[np.int64]) -> NDArray[np.int32]:
        distinct, inverse = np.unique(global_tid, return_inverse=True)
        lanes = [
            Lane(
                LaneKind.HOST,
                str(process_number(thread)),
                str(thread & _THREAD_BITS),
                self._thread_names.get(thread, ""),
            )
            for thread in distinct.tolist()
        ]
        return self._lane_codes(lanes)[inverse]

    def _streams(self, told: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int32]:
        key = np.stack([told[name] for name in ("globalPid", "deviceId", "contextId", "streamId")], axis=1)
        distinct, inverse = np.unique(key, axis=0, return_inverse=True)
        lanes = [
            Lane(
                LaneKind.DEVICE,
                f"device {device}",
                f"context {context} stream {stream}" if stream != NONE else "synchronisation",
                f"stream {stream}" if stream != NONE else "",
                device,
                stream,
            )
            for _, device, context, stream in distinct.tolist()
        ]
        return self._lane_codes(lanes)[inverse.reshape(-1)]

    def _lane_codes(self, lanes: list[Lane]) -> NDArray[np.int32]:
        return np.array([self.lanes.setdefault(lane, len(self.lanes)) for lane in lanes], np.int32)

    def _waits(self, told: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Which stream each synchronisation is about; for a stream that waits, the last record of its event before."""
        recorded = self._database.integers(
            _RECORDED, ("globalPid", "streamId", "correlationId", "eventId", "eventSyncId")
        )
        by_event: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for process, stream, correlation, event, sync in zip(*map(_listed, recorded.values()), strict=True):
            by_event.setdefault((process, event, sync), []).append((correlation, stream))
        for records in by_event.values():
            records.sort()
        stream = np.where(told["streamId"] >= _NO_STREAM, NONE, told["streamId"])
        wait_stream, wait_correlation = np.full(len(stream), NONE), np.full(len(stream), NONE)
        for row in np.flatnonzero(told["syncType"] == _STREAM_WAIT).tolist():
            process, event, sync, correlation = (
                int(told[name][row]) for name in ("globalPid", "eventId", "eventSyncId", "correlationId")
            )
            records = by_event.get((process, event, sync), [])
            before = bisect_left(records, (correlation, NONE))
            if before:
                wait_correlation[row], wait_stream[row] = records[before - 1]
        return {"sync_stream": stream, "wait_on_stream": wait_stream, "wait_on_correlation": wait_correlation}


def select(rows: EventRows, kept: NDArray[np.bool_] | NDArray[np.int64]) -> EventRows:
    """The events at `kept`, a mask or row numbers."""
    return EventRows(
        rows.process[kept],
        rows.start_ns[kept],
        rows.end_ns[kept],
        rows.kind[kept],
        rows.name[kept],
        rows.lane[kept],
        rows.correlation[kept],
        {key: values[kept] for key, values in rows.attrs.items()},
    )


def _either(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first value of each row that is not NONE."""
    found = columns[0]
    for column in columns[1:]:
        found = np.where(found == NONE, column, found)
    return found


def _positive(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(column > 0, column, NONE)


def _listed(column: NDArray[np.int64]) -> list[int]:
    return column.tolist()


def _entry(names: tuple[str, ...], number: int, otherwise: str) -> str:
    return names[number] if 0 < number < len(names) else otherwise


def _kernel_kind(name: str) -> EventKind:
    collective = device_collective(name)
    return communication_kind(collective) if collective else EventKind.KERNEL


def _host_kind(kind: EventKind, name: str) -> EventKind:
    found = _MPI_TRANSFER.match(name)
    if found:
        return EventKind.SEND if found[1].lower() == "send" else EventKind.RECV
    return EventKind.CPU_OP if kind == EventKind.COLLECTIVE and _MPI_STARTED.match(name) else kind
