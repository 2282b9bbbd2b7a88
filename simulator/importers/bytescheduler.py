"""ByteScheduler timelines: how long each tensor waited for its turn, and how long its communication took."""

from __future__ import annotations

import re
from typing import Final

from makespan.simulator.chrome.collector import read_columns
from makespan.simulator.chrome.reader import OWN_TIMELINE
from makespan.simulator.reading.sources import Source
from makespan.simulator.reading.timeline_table import coded_column, kinds_by_name, timeline_trace
from makespan.trace import Diagnostics, EventKind, Lane, LaneKind, RankTrace

TITLE = "ByteScheduler timeline"

_NAME: Final = re.compile(r"(INIT|PUSH_PULL|PUSH|PULL|ALLREDUCE|ALLGATHER|BROADCAST)(QUEUE|COMMUNICATION)")
_MARKS: Final = re.compile(rb'"name"\s*:\s*"' + _NAME.pattern.encode() + rb'"')
_STATE: Final = {"QUEUE": "queue", "COMMUNICATION": "transfer"}
_KIND: Final = {"PUSH": EventKind.SEND, "INIT": EventKind.SEND, "PULL": EventKind.RECV}
_COLLECTIVE: Final = {
    "PUSH_PULL": "pushpull", "ALLREDUCE": "allreduce", "ALLGATHER": "allgather", "BROADCAST": "broadcast",
}  # fmt: skip


def recognise(source: Source) -> int:
    """2 where an event is called after an operation and a phase, such as PUSH_PULLQUEUE."""
    opens = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return 2 * bool(opens and _MARKS.search(source.head) and not OWN_TIMELINE.match(source.head))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace with a lane for each tensor, or part of a tensor, since the scheduler cuts large ones.

    Spans in the queue are WAIT; an initial push and a push are SEND, a pull is RECV, everything that goes both ways
    COLLECTIVE. Attributes: state, tensor, collective.
    """
    columns = read_columns(source, diagnostics, strict)
    kind = kinds_by_name(columns, _kind)
    tensors = [columns.process_names.get(process, f"tensor {process}") for process, _ in columns.places]
    found = [_NAME.fullmatch(name) for name in columns.names]
    return [
        timeline_trace(
            columns,
            title=TITLE,
            source=source,
            diagnostics=diagnostics,
            kind=kind,
            lane_of_place=[Lane(LaneKind.OTHER, "bytescheduler", tensor) for tensor in tensors],
            attrs={
                "state": coded_column(columns.name, [match and _STATE[match[2]] for match in found]),
                "collective": coded_column(columns.name, [match and _COLLECTIVE.get(match[1]) for match in found]),
                "tensor": coded_column(columns.place, tensors),
            },
        )
    ]


def _kind(name: str) -> EventKind:
    found = _NAME.fullmatch(name)
    if found is None:
        return EventKind.OTHER
    return EventKind.WAIT if found[2] == "QUEUE" else _KIND.get(found[1], EventKind.COLLECTIVE)
