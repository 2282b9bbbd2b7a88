"""PyTorch profiles (Kineto Chrome JSON), from the spelling of 2021 to today's, for any accelerator or none."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.arrows import Arrows, find_arrows
from makespan.simulator.chrome.collector import read_columns
from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.chrome.reader import OWN_TIMELINE
from makespan.simulator.chrome.table import assemble, lanes_of, rebased
from makespan.simulator.chrome.times import MISSING
from makespan.simulator.reading.kineto_attributes import kineto_attributes, with_collectives, with_inherited_metadata
from makespan.simulator.reading.kineto_kinds import (
    communication_kind,
    device_collective,
    host_collective,
    is_step,
    is_wait,
    kind_of_category,
)
from makespan.simulator.reading.kineto_processes import number_processes
from makespan.simulator.reading.sources import Source, report
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace

TITLE: Final = "PyTorch Kineto"

_CATEGORIES: Final = (
    rb"cpu_op|cuda_runtime|cuda_driver|user_annotation|gpu_user_annotation|python_function|kernel|gpu_memcpy|gpu_memset|"
    rb"cpu_instant_event|overhead|cuda_sync|\w+_runtime|\w+_driver|mtia_ccp_events|hpu_op|"
    rb"Operator|Runtime|Kernel|Memcpy|Memset"
)
_MARKS: Final = re.compile(
    rb'"schemaVersion"\s*:|"cat"\s*:\s*"(?:' + _CATEGORIES + rb')"|"PyTorch Profiler|"ProfilerStep#|"trace_id"\s*:'
)
_CHROME: Final = re.compile(rb'"(?:ph|traceEvents|deviceProperties)"\s*:')
_UNKNOWN: Final = 255
_SPAN_PROCESSES: Final = ("Spans", "Traces", "")
_LAUNCH_FLOWS: Final = ("ac2g", "async_cpu_to_gpu", "async_gpu", "async")
_DEVICE_WORK: Final = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.COLLECTIVE)
_ON_DEVICE: Final = (*_DEVICE_WORK, EventKind.DEVICE_ANNOTATION, EventKind.SYNC_RECORD)


def recognise(source: Source) -> int:
    """2 where the head holds Kineto's header or one of its categories."""
    head = source.head
    if OWN_TIMELINE.match(head):
        return 0
    return (
        2
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and _MARKS.search(head) and _CHROME.search(head)
        else 0
    )


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """The events of one profile; raises TraceError where reading is strict and the file is damaged."""
    columns = read_columns(source, diagnostics, strict)
    kind = _kinds(columns)
    correlation, external_id = columns.ids("correlation"), columns.ids("external_id", "external_id_of_2021")
    _infer_kinds(columns, kind, correlation, source.name, diagnostics)
    on_device = np.isin(kind, _ON_DEVICE)
    stampless = _stampless(columns, kind, on_device)
    if stampless.any():
        place = f"{source.name}:event {int(columns.number[np.argmax(stampless)])}"
        report(diagnostics, strict, "device event without a timestamp", place, int(stampless.sum()))
        columns, kind, on_device = columns.select(~stampless), kind[~stampless], on_device[~stampless]
        correlation, external_id = correlation[~stampless], external_id[~stampless]

    calls = np.flatnonzero((kind == EventKind.RUNTIME) & (correlation != NONE))
    works = np.flatnonzero(np.isin(kind, _DEVICE_WORK))
    process = number_processes(columns, calls, works[correlation[works] != NONE], correlation)
    if process.any():
        correlation, external_id = (_kept_apart(ids, process[columns.place]) for ids in (correlation, external_id))
        diagnostics.add(
            "processes of a merged file whose correlation ids were kept apart", source.name, int(process.max()) + 1
        )
    unlaunched = works[~np.isin(correlation[works], correlation[calls])]
    if len(unlaunched):
        place = f"{source.name}:event {int(columns.number[unlaunched[0]])}"
        diagnostics.add("device event without its launch", place, len(unlaunched))

    columns = _find_communication(columns, kind, on_device, external_id)
    lane_kind = np.where(on_device, LaneKind.DEVICE, LaneKind.HOST).astype(np.uint8)
    lane_kind[_is_span_place(columns)[columns.place]] = LaneKind.OTHER
    lane_kind[kind == EventKind.COUNTER] = LaneKind.OTHER
    stream = np.where(kind == EventKind.SYNC_RECORD, MISSING, columns.integers("stream"))
    lane, lanes = lanes_of(columns, lane_kind, columns.integers("device"), stream)
    arrows = _arrows(columns, kind, process)
    if arrows.loose:
        diagnostics.add("arrow of which only one end is recorded", source.name, arrows.loose)
    start_ns, clock, clock_base_ns = rebased(columns)
    events = assemble(
        columns,
        start_ns=start_ns,
        kind=kind,
        lane=lane,
        lanes=lanes,
        correlation=correlation,
        external_id=external_id,
        attrs=kineto_attributes(columns, kind),
        arrows=arrows,
    )
    return [
        RankTrace(
            rank=columns.rank,
            source=source.name,
            format=TITLE,
            events=events,
            diagnostics=diagnostics,
            clock=clock,
            clock_base_ns=clock_base_ns,
            world_size=columns.world_size,
            metadata=dict(columns.metadata),
        )
    ]


def _kept_apart(ids: NDArray[np.int64], process: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(ids == NONE, NONE, ids + process * (int(ids.max()) + 1))


def _kinds(columns: ChromeColumns) -> NDArray[np.uint8]:
    """(n,) kind by category and phase, _UNKNOWN where the category is in no table."""
    by_category = [kind_of_category(category) for category in columns.categories]
    kind = np.array([_UNKNOWN if k is None else k for k in by_category], np.uint8)[columns.category]
    steps = np.array([is_step(name) for name in columns.names], np.bool_)[columns.name]
    kind[steps & np.isin(kind, (EventKind.ANNOTATION, EventKind.CPU_OP))] = EventKind.STEP
    waits = np.array([is_wait(name) for name in columns.names], np.bool_)[columns.name]
    kind[waits & (kind == EventKind.ANNOTATION)] = EventKind.WAIT
    kind[np.isin(columns.phase, list(b"iIRnP"))] = EventKind.INSTANT
    kind[columns.phase == ord("C")] = EventKind.COUNTER
    return kind


def _infer_kinds(
    columns: ChromeColumns,
    kind: NDArray[np.uint8],
    correlation: NDArray[np.int64],
    source: str,
    diagnostics: Diagnostics,
) -> None:
    """Give rows of unknown category a kind: device work has a stream, a device's process, or a known launch."""
    rows = np.flatnonzero(kind == _UNKNOWN)
    if not len(rows):
        return
    pids = {process: code for code, process in enumerate(dict.fromkeys(place[0] for place in columns.places))}
    pid = np.array([pids[place[0]] for place in columns.places])[columns.place]
    known = kind != _UNKNOWN
    device_pids = np.unique(pid[np.isin(kind, _ON_DEVICE)])
    host_pids = np.unique(pid[known & ~np.isin(kind, _ON_DEVICE)])
    linked = correlation[rows] != NONE
    launched = linked & np.isin(correlation[rows], correlation[kind == EventKind.RUNTIME])
    at_device = columns.has("stream")[rows] | launched
    at_device |= np.isin(pid[rows], np.setdiff1d(device_pids, host_pids))
    # Two unknown events that share a correlation, neither with a stream: the one beside host events is the launch.
    at_device |= linked & ~np.isin(pid[rows], host_pids) & _shared(correlation[rows])
    device_ids = np.union1d(correlation[np.isin(kind, _DEVICE_WORK)], correlation[rows[at_device]])
    calls = ~at_device & linked & np.isin(correlation[rows], device_ids)
    kind[rows] = EventKind.OTHER
    kind[rows[calls]] = EventKind.RUNTIME
    kind[rows[at_device]] = EventKind.KERNEL
    for prefix, special in (("memcpy", EventKind.MEMCPY), ("memset", EventKind.MEMSET)):
        named = np.array([name.lower().startswith(prefix) for name in columns.names], np.bool_)
        kind[rows[at_device & named[columns.name[rows]]]] = special
    for category in np.unique(columns.category[rows]).tolist():
        some = rows[columns.category[rows] == category]
        taken = ", ".join(EventKind(k).name for k in np.unique(kind[some]))
        place = f"{source}:event {int(columns.number[some[0]])}"
        diagnostics.add(f"unknown category {columns.categories[category]!r}, taken for {taken}", place, len(some))


def _shared(ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    _, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
    return counts[inverse] > 1


def _stampless(columns: ChromeColumns, kind: NDArray[np.uint8], on_device: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) device events at time zero although the host's events all come later: a stamp that was never written."""
    at_zero = on_device & (columns.start_ns == 0)
    host = ~on_device & (columns.phase == ord("X"))
    if not at_zero.any():
        return at_zero
    return at_zero & (columns.start_ns[host].min() > 0) if host.any() else at_zero & (columns.duration_ns == 0)


def _find_communication(
    columns: ChromeColumns, kind: NDArray[np.uint8], on_device: NDArray[np.bool_], external_id: NDArray[np.int64]
) -> ChromeColumns:
    """Make kernels and host spans that communicate COLLECTIVE, SEND or RECV; gives the columns with what each is."""
    by_name = [device_collective(name) for name in columns.names]
    spans = [host_collective(name) for name in columns.names]
    speaks = np.array([name != "" for name in by_name], np.bool_)[columns.name]
    device = on_device & np.isin(kind, _DEVICE_WORK) & (speaks | columns.has("collective"))
    host = (
        np.isin(kind, (EventKind.ANNOTATION, EventKind.CPU_OP))
        & np.array([n != "" for n in spans], np.bool_)[columns.name]
    )
    if not device.any() and not host.any() and "collective" not in columns.args:
        return columns
    columns = with_inherited_metadata(columns, device, external_id)
    columns = with_collectives(columns, np.flatnonzero(device), by_name)
    columns = with_collectives(columns, np.flatnonzero(host), spans)
    told = columns.args["collective"]
    kinds = np.array([communication_kind(name) for name in told.table or ()], np.uint8)
    communicates = (device | host)[told.rows]
    kind[told.rows[communicates]] = kinds[told.values[communicates]]
    return columns


def _is_span_place(columns: ChromeColumns) -> NDArray[np.bool_]:
    """(p,) places that stand for the profiler itself, not for a thread or a device."""
    return np.array([process in _SPAN_PROCESSES for process, _ in columns.places], np.bool_)


def _arrows(columns: ChromeColumns, kind: NDArray[np.uint8], process: NDArray[np.int64]) -> Arrows:
    """Launch arrows touch calls and device work; all others touch ops."""
    launches = np.array([category in _LAUNCH_FLOWS for category in columns.categories], np.bool_)[columns.flow_category]
    calls_and_works = np.isin(kind, (EventKind.RUNTIME, EventKind.SEND, EventKind.RECV, *_DEVICE_WORK))
    first = find_arrows(columns, np.flatnonzero(launches), calls_and_works, process)
    second = find_arrows(columns, np.flatnonzero(~launches), kind == EventKind.CPU_OP, process)
    return Arrows(
        np.concatenate([first.source, second.source]),
        np.concatenate([first.target, second.target]),
        np.concatenate([first.category, second.category]),
        second.loose,  # a loose end of a launch says no more than the correlation that its event carries
    )
