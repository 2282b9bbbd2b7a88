"""MXNet profiler dumps: operators by the device that ran them, and what the framework did besides."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.collector import read_columns
from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.chrome.reader import OWN_TIMELINE
from makespan.simulator.reading.kineto_kinds import canonical_collective
from makespan.simulator.reading.sources import Source
from makespan.simulator.reading.timeline_table import coded_column, kinds_by_name, timeline_trace
from makespan.trace import COMMUNICATION_KINDS, Diagnostics, EventKind, Lane, LaneKind, RankTrace, SparseColumn

TITLE = "MXNet profile"

_CATEGORY: Final = rb"operator|MXNET_C_API|Custom Operator|Device Storage|[^\"]*,(?:task|frame|instant_marker)"
_MARKS: Final = re.compile(
    rb'"cat"\s*:\s*"(?:' + _CATEGORY + rb')"|"name"\s*:\s*"(?:cpu/0|cpu pinned/|cpu shared/)"|"MXNET_C_API"'
)
_GPU: Final = re.compile(r"gpu/(\d{1,6})")
_COPY: Final = re.compile(r"Copy(?:CPU|GPU)2(?:CPU|GPU)|_copyto\b", re.IGNORECASE)
_PARAMETER_SERVER: Final = re.compile(r"KVStoreDist\w*?(Push|Pull)")
_COLLECTIVE: Final = re.compile(r"horovod|byteps|allreduce|allgather|broadcast_?param|KVStoreNCCL", re.IGNORECASE)
_RANGES: Final = re.compile(r"event|.*,(?:task|frame)|MXNET_C_API.*")
"""Categories of ranges around operators, not of operators."""


def recognise(source: Source) -> int:
    """2 for MXNet's categories of events or its names of devices; dumps without a header are known by the former."""
    head = source.head.lstrip(b"\xef\xbb\xbf \t\r\n,")
    return 2 * bool(head[:1] in (b"{", b"[") and _MARKS.search(head) and not OWN_TIMELINE.match(head))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace from all dumps that the file holds.

    What a device row of a GPU shows is device work (KERNEL, MEMCPY) on the lane of the engine's thread for it; every
    other operator is a CPU_OP on its host thread. Transfers of a parameter server are SEND and RECV. Frames, tasks,
    events and calls of the C interface are ANNOTATION. Attributes: collective, value (of counters).
    """
    columns = read_columns(source, diagnostics, strict)
    devices = [columns.process_names.get(process, process) for process, _ in columns.places]
    on_gpu = np.array([_GPU.fullmatch(device) is not None for device in devices], np.bool_)[columns.place]
    kind = _kinds(columns, on_gpu)
    communicates = np.isin(kind, COMMUNICATION_KINDS)
    collective = coded_column(columns.name, [_spoken(name) for name in columns.names])
    kept = communicates[collective.rows]
    values = columns.args.get("value")
    return [
        timeline_trace(
            columns,
            title=TITLE,
            source=source,
            diagnostics=diagnostics,
            kind=kind,
            lane_of_place=[
                _lane(device, thread, columns.thread_names.get((process, thread), ""))
                for device, (process, thread) in zip(devices, columns.places, strict=True)
            ],
            attrs={
                "collective": SparseColumn(collective.rows[kept], collective.values[kept], collective.table),
                **({} if values is None else {"value": values}),
            },
        )
    ]


def _kinds(columns: ChromeColumns, on_gpu: NDArray[np.bool_]) -> NDArray[np.uint8]:
    kind = kinds_by_name(columns, _kind)
    ranges = np.array([_RANGES.fullmatch(name) is not None for name in columns.categories], np.bool_)
    spans = np.isin(columns.phase, list(b"XBbS"))
    kind[spans & (ranges[columns.category] | np.isin(columns.phase, list(b"bS")))] = EventKind.ANNOTATION
    kind[on_gpu & (kind == EventKind.CPU_OP)] = EventKind.KERNEL
    return kind


def _kind(name: str) -> EventKind:
    transfer = _PARAMETER_SERVER.search(name)
    if transfer:
        return EventKind.SEND if transfer[1] == "Push" else EventKind.RECV
    if _COLLECTIVE.search(name):
        return EventKind.COLLECTIVE
    return EventKind.MEMCPY if _COPY.search(name) else EventKind.CPU_OP


def _spoken(name: str) -> str | None:
    """What a communication is called in all formats alike."""
    transfer = _PARAMETER_SERVER.search(name)
    if transfer:
        return "send" if transfer[1] == "Push" else "recv"
    return canonical_collective(name) if _COLLECTIVE.search(name) else None


def _lane(device: str, thread: str, label: str) -> Lane:
    """Host threads by their numbers, whichever device or category their events were filed under."""
    gpu = _GPU.fullmatch(device)
    if gpu:
        return Lane(LaneKind.DEVICE, device, thread, label or device, int(gpu[1]))
    return Lane(LaneKind.HOST, "host", thread, label)
