"""BytePS traces: the stages of each tensor's partitions on a worker (comm.json), or the requests at a server."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from makespan.simulator.chrome.collector import read_columns
from makespan.simulator.chrome.reader import OWN_TIMELINE
from makespan.simulator.reading.sources import Source
from makespan.simulator.reading.timeline_table import coded_column, kinds_by_name, timeline_trace
from makespan.trace import Diagnostics, EventKind, Lane, LaneKind, RankTrace

TITLE = "BytePS trace"

_STAGES: Final = {
    "COORDINATE_REDUCE": (EventKind.WAIT, ""), "REDUCE": (EventKind.COLLECTIVE, "reduce"),
    "COPYD2H": (EventKind.MEMCPY, ""), "PCIE_REDUCE": (EventKind.CPU_OP, ""),
    "COORDINATE_PUSH": (EventKind.WAIT, ""), "COMPRESS": (EventKind.CPU_OP, ""), "PUSH": (EventKind.SEND, "send"),
    "PULL": (EventKind.RECV, "recv"), "DECOMPRESS": (EventKind.CPU_OP, ""), "COPYH2D": (EventKind.MEMCPY, ""),
    "COORDINATE_BROADCAST": (EventKind.WAIT, ""), "BROADCAST": (EventKind.COLLECTIVE, "broadcast"),
}  # fmt: skip
"""What a stage of a partition is, in the order of the pipeline, and the collective that it carries out."""
_TENSOR: Final = re.compile(r"(?:Comm\.)?(.+?)(?:\.(" + "|".join(_STAGES) + r"))?")
_REQUEST: Final = re.compile(r"(push|pull)-(\d{1,9})")
_WORKER_MARK: Final = re.compile(rb'"(?:pid|name)"\s*:\s*"Comm\.|"(?:byteps|BytePS)[^"]*\.(?:PUSH|PULL)"')
_SERVER_MARK: Final = re.compile(rb'"name"\s*:\s*"(?:push|pull)-\d+"')
_TOTAL: Final = "total"


def recognise(source: Source) -> int:
    """2 where a process or event is called Comm.TENSOR, or an event push-N or pull-N after worker N's request."""
    opens = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return 2 * bool(
        opens
        and (_WORKER_MARK.search(source.head) or _SERVER_MARK.search(source.head))
        and not OWN_TIMELINE.match(source.head)
    )


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace with a lane for each partition of a tensor, times on the wall clock.

    A tensor's total is a COLLECTIVE where the file shows none of its stages, else an ANNOTATION around them. At a
    server a push is a RECV and a pull a SEND, with the worker as peer. Attributes: state, tensor, collective, peer.
    """
    columns = read_columns(source, diagnostics, strict)
    stages = [_stage(name) for name in columns.names]
    requests = [_REQUEST.fullmatch(name) for name in columns.names]
    kind = kinds_by_name(columns, lambda name: _kind(_stage(name), _REQUEST.fullmatch(name)))
    tensors = [_tensor(columns.process_names.get(process, process)) for process, _ in columns.places]
    is_total = np.array([thread == _TOTAL for _, thread in columns.places], np.bool_)[columns.place]
    staged = {
        tensors[place] for place in np.unique(columns.place[np.array([s != "" for s in stages])[columns.name]]).tolist()
    } if len(columns) else set[str]()  # fmt: skip
    around = np.array([tensor in staged for tensor in tensors], np.bool_)[columns.place]
    kind[is_total & around & (kind == EventKind.COLLECTIVE)] = EventKind.ANNOTATION
    lanes = [
        Lane(LaneKind.OTHER, "byteps", tensor if thread in ("", _TOTAL) else f"{tensor} {thread}")
        for tensor, (_, thread) in zip(tensors, columns.places, strict=True)
    ]
    return [
        timeline_trace(
            columns,
            title=TITLE,
            source=source,
            diagnostics=diagnostics,
            kind=kind,
            lane_of_place=lanes,
            attrs={
                "state": coded_column(
                    columns.name,
                    [
                        stage.lower().replace("_", " ") or (request[1] if request else "total")
                        for stage, request in zip(stages, requests, strict=True)
                    ],
                ),
                "collective": coded_column(
                    columns.name,
                    [
                        _STAGES[stage][1] or None if stage else None if request else "pushpull"
                        for stage, request in zip(stages, requests, strict=True)
                    ],
                ),
                "peer": coded_column(columns.name, [int(request[2]) if request else None for request in requests]),
                "tensor": coded_column(columns.place, tensors),
            },
        )
    ]


def _tensor(name: str) -> str:
    found = _TENSOR.fullmatch(name)
    return found[1] if found else name


def _stage(name: str) -> str:
    """The stage in an event's name, empty for a tensor's total."""
    found = _TENSOR.fullmatch(name)
    return (found[2] or "") if found else ""


def _kind(stage: str, request: re.Match[str] | None) -> EventKind:
    if request is not None:
        return EventKind.RECV if request[1] == "push" else EventKind.SEND
    return _STAGES[stage][0] if stage else EventKind.COLLECTIVE
