"""Any other Chrome JSON, and the timelines that Makespan exports: threads are host lanes unless they name a device."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.arrows import find_arrows
from makespan.simulator.chrome.collector import read_columns
from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.chrome.reader import OWN_TIMELINE
from makespan.simulator.chrome.table import assemble, lanes_of, rebased
from makespan.simulator.reading.kineto_kinds import communication_kind, device_collective, is_step
from makespan.simulator.reading.sources import Source
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace

TITLE: Final = "Chrome JSON"

_CHROME: Final = re.compile(rb'"(?:ph|traceEvents)"\s*:')
_BARE: Final = re.compile(rb"\s*\[[\s\]]*$")
_RANK: Final = re.compile(r"rank[ _-]?(\d{1,9})$", re.IGNORECASE)
_DEVICE_PROCESS: Final = re.compile(r"/device:(?!CPU)|^[GT]PU\b", re.IGNORECASE)
_STREAM_THREAD: Final = re.compile(r"stream\b", re.IGNORECASE)
_OWN_KIND: Final = {kind.name.lower(): kind for kind in EventKind} | {
    "host": EventKind.CPU_OP, "think": EventKind.ANNOTATION, "compute": EventKind.KERNEL,
    "mark": EventKind.INSTANT, "barrier": EventKind.INSTANT, "origin": EventKind.INSTANT,
}  # fmt: skip
"""What our own timelines call events and ops. Think time is no event: it is what lies between events."""
_OWN_STEPS: Final = "steps"
_ATTRIBUTES: Final = {
    "bytes": "bytes", "size_bytes": "bytes", "sequence": "sequence", "shapes": "shapes", "group_size": "group_size",
    "group_sequence": "group_sequence", "group_name": "group_name", "value": "value",
}  # fmt: skip


def recognise(source: Source) -> int:
    """2 for our own timelines, 1 for anything with Chrome's phases or an event array, or an empty array."""
    if OWN_TIMELINE.match(source.head):
        return 2
    opens = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return int(opens and bool(_CHROME.search(source.head) or _BARE.match(source.head)))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace, or one for each process where the file calls its processes "rank 0", "rank 1", ..."""
    columns = read_columns(source, diagnostics, strict)
    own = OWN_TIMELINE.match(source.head) is not None
    process_rank = {
        process: int(found[1]) for process, name in columns.process_names.items() if (found := _RANK.search(name))
    }
    rank_of_place = np.array([process_rank.get(process, NONE) for process, _ in columns.places], np.int64)
    rank = rank_of_place[columns.place]
    if own and len(columns):
        # Whatever is no rank's own thread, like the drawn critical path, shows events a second time.
        drawn = rank == NONE
        diagnostics.add("event of a drawing, not of a rank", source.name, int(drawn.sum()))
        columns, rank = columns.select(~drawn), rank[~drawn]
    if not len(columns) or (rank == NONE).any():
        return [_rank_trace(columns, NONE, np.arange(len(columns.flow_ns)), own, source, diagnostics)]
    parts: list[RankTrace] = []
    for each in np.unique(rank).tolist():
        arrow_ends = np.flatnonzero(rank_of_place[columns.flow_place] == each)
        told = Diagnostics() if parts else diagnostics
        parts.append(_rank_trace(columns.select(rank == each), each, arrow_ends, own, source, told))
    return parts


def _rank_trace(
    columns: ChromeColumns,
    rank: int,
    arrow_ends: NDArray[np.int64],
    own: bool,
    source: Source,
    diagnostics: Diagnostics,
) -> RankTrace:
    on_device = columns.has("stream") | _device_places(columns)[columns.place]
    kind = _own_kinds(columns) if own else _kinds(columns, on_device)
    lane_kind = np.where(on_device, LaneKind.DEVICE, LaneKind.HOST).astype(np.uint8)
    lane_kind[np.isin(columns.phase, list(b"bSnC"))] = LaneKind.OTHER
    lane, lanes = lanes_of(columns, lane_kind, columns.integers("device"), columns.integers("stream"))
    spans = np.isin(columns.phase, list(b"XB"))
    arrows = find_arrows(columns, arrow_ends, spans, np.zeros(len(columns.places), np.int64))
    diagnostics.add("arrow of which only one end is recorded", source.name, arrows.loose)
    start_ns, clock, clock_base_ns = rebased(columns)
    return RankTrace(
        rank=rank if rank != NONE else columns.rank,
        source=source.name,
        format=TITLE,
        events=assemble(
            columns,
            start_ns=start_ns,
            kind=kind,
            lane=lane,
            lanes=lanes,
            correlation=columns.ids("correlation"),
            external_id=columns.ids("external_id"),
            attrs={name: columns.args[member] for member, name in _ATTRIBUTES.items() if member in columns.args},
            arrows=arrows,
        ),
        diagnostics=diagnostics,
        clock=clock,
        clock_base_ns=clock_base_ns,
        metadata=dict(columns.metadata),
    )


def _device_places(columns: ChromeColumns) -> NDArray[np.bool_]:
    """(p,) places that the file itself calls a device or a stream of one."""
    names = [
        (columns.process_names.get(place[0], place[0]), columns.thread_names.get(place, place[1]))
        for place in columns.places
    ]
    return np.array([bool(_DEVICE_PROCESS.search(p) or _STREAM_THREAD.match(t)) for p, t in names], np.bool_)


def _kinds(columns: ChromeColumns, on_device: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """(n,) ops on host lanes, kernels on device lanes, by name what is special."""
    names = columns.names
    steps = np.array([is_step(name) for name in names], np.bool_)[columns.name]
    kind = np.where(on_device, EventKind.KERNEL, np.where(steps, EventKind.STEP, EventKind.CPU_OP)).astype(np.uint8)
    at_device = {name: _device_kind(name) for name in names}
    special = np.array([at_device[name] for name in names], np.uint8)[columns.name]
    kind[on_device] = special[on_device]
    kind[np.isin(columns.phase, list(b"bS"))] = EventKind.OTHER
    kind[np.isin(columns.phase, list(b"iIRnP"))] = EventKind.INSTANT
    kind[columns.phase == ord("C")] = EventKind.COUNTER
    return kind


def _device_kind(name: str) -> EventKind:
    for prefix, kind in (("memcpy", EventKind.MEMCPY), ("memset", EventKind.MEMSET)):
        if name.lower().startswith(prefix):
            return kind
    collective = device_collective(name)
    return communication_kind(collective) if collective else EventKind.KERNEL


def _own_kinds(columns: ChromeColumns) -> NDArray[np.uint8]:
    """(n,) what our own timeline says each event is; its ranges of steps lie on threads of that name."""
    steps = np.array([columns.thread_names.get(place) == _OWN_STEPS for place in columns.places], np.bool_)
    kind = np.where(steps[columns.place], EventKind.STEP, EventKind.ANNOTATION).astype(np.uint8)
    told = columns.args.get("kind")
    if told is not None:
        known = np.array([_OWN_KIND.get(name, EventKind.OTHER) for name in told.table or ()], np.uint8)
        kind[told.rows] = known[told.values]
    return kind
