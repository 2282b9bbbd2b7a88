"""Collectives: what each rank recorded of its communication, read into one spelling, before ranks are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.simulator.reading.kineto_kinds import canonical_collective
from makespan.trace import COMMUNICATION_KINDS, NONE, EventKind, EventTable, LaneKind, RankTrace


class Meets(IntEnum):
    """Who waits for whom in a collective."""

    ALL = 0  # nobody is done before the last has come
    FROM_ROOT = 1  # all wait for the root; the root need not wait for anybody
    TO_ROOT = 2  # the root waits for all; the others need not
    PAIR = 3  # a receiver waits for its sender


MEETS: Final[Mapping[str, Meets]] = {
    "allreduce": Meets.ALL, "allgather": Meets.ALL, "reducescatter": Meets.ALL, "alltoall": Meets.ALL,
    "barrier": Meets.ALL, "broadcast": Meets.FROM_ROOT, "scatter": Meets.FROM_ROOT, "reduce": Meets.TO_ROOT,
    "gather": Meets.TO_ROOT, "send": Meets.PAIR, "recv": Meets.PAIR,
}  # fmt: skip
EVEN: Final = ("allreduce", "broadcast", "reduce", "send", "recv")
"""Communications into which all ranks put equally many bytes; in the others each may put its own share."""

_ENQUEUED: Final = re.compile(r"(?:nccl|rccl|xccl|hccl):_?(\w+)(?: (\d+)(->|<-)(\d+))?")


@dataclass(frozen=True, slots=True)
class Collective:
    """One rank's part in a communication.

    `row`: its event. `what`: a key of MEETS, or another word where it isn't known what it does. `size`: bytes, or
    shapes as text, "" where neither was recorded. `group`: name and ranks of its process group, "" each where not
    recorded; `members`: those ranks in order, None likewise. `group_size`, `sequence` (number within the group),
    `peer` (rank at the other end), `root` (the root's place in the group), `stream` (device stream): -1 where not
    recorded. `start_ns`, `end_ns` in the numbers of the rank's own event table.
    """

    row: int
    what: str
    size: str
    group: tuple[str, str]
    members: tuple[int, ...] | None
    group_size: int
    sequence: int
    peer: int
    tag: int
    root: int
    stream: tuple[int, int]
    start_ns: int
    end_ns: int

    @property
    def label(self) -> tuple[str, str]:
        """What two ranks' parts of one collective have in common."""
        return self.what, self.size if self.what in EVEN else ""


def recorded_collectives(part: RankTrace) -> list[Collective]:
    """The communications of one rank, in time order.

    A device kernel that doesn't say what it does does what the call around its launch says ("nccl:all_to_all").
    """
    events = part.events
    rows = np.flatnonzero(np.isin(events.kind, COMMUNICATION_KINDS))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    calls = _enqueuing_ranges(events, rows)
    read = {name: _column(events, rows, name) for name in (
        "group_size", "group_sequence", "peer", "tag", "root", "bytes",
    )}  # fmt: skip
    told = {name: _text(events, rows, name) for name in ("collective", "group_name", "group_ranks", "tensor", "shapes")}
    ranks_of = {text: _members(text) for text in set(told["group_ranks"])}
    start_ns, end_ns = events.start_ns[rows].tolist(), events.end_ns[rows].tolist()
    found: list[Collective] = []
    for place, row in enumerate(rows.tolist()):
        what = _what(events, row, told["collective"][place])
        peer, size = read["peer"][place], told["shapes"][place]
        members = ranks_of[told["group_ranks"][place]]
        call = int(calls[place])
        if call >= 0:
            what, peer = _from_call(events.name_of(call), what, peer, members)
            shapes = events.attrs.get("shapes")
            size = size or (shapes.get(call) if shapes else None) or ""
        if read["bytes"][place] > 0:
            size = str(read["bytes"][place])
        name = told["group_name"][place] or told["tensor"][place]
        lane = events.lanes[events.lane[row]]
        found.append(
            Collective(
                row=row,
                what=what,
                size=size,
                group=(name, told["group_ranks"][place]),
                members=members,
                group_size=read["group_size"][place],
                sequence=read["group_sequence"][place],
                peer=peer,
                tag=read["tag"][place],
                root=read["root"][place],
                stream=(lane.device, lane.stream) if lane.kind == LaneKind.DEVICE else (NONE, NONE),
                start_ns=start_ns[place],
                end_ns=end_ns[place],
            )
        )
    return found


def _what(events: EventTable, row: int, told: str) -> str:
    if events.kind[row] == EventKind.SEND:
        return "send"
    if events.kind[row] == EventKind.RECV:
        return "recv"
    return canonical_collective(told or events.name_of(row))


def _from_call(name: str, what: str, peer: int, members: tuple[int, ...] | None) -> tuple[str, int]:
    """What a kernel does and with whom, by its call: the kernel of an all-to-all is called SendRecv.

    Calls name ranks by their places in the group ("nccl:send 0->1").
    """
    found = _ENQUEUED.match(name)
    if found is None or what in MEETS:
        return what, peer
    said = canonical_collective(found[1])
    if said in ("send", "recv"):
        if not found[4]:
            return what, peer
        other = int(found[4])
        return said, members[other] if members is not None and other < len(members) else other
    return (said, peer) if said in MEETS else (what, peer)


def _enqueuing_ranges(events: EventTable, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(k,) event row of the range of the communication library around the launch of each of `rows`, -1 none."""
    found = np.full(len(rows), NONE, np.int64)
    named = np.fromiter((_ENQUEUED.match(name) is not None for name in events.names), np.bool_, len(events.names))
    hosts = np.fromiter((lane.kind == LaneKind.HOST for lane in events.lanes), np.bool_, len(events.lanes))
    ranges = np.flatnonzero(named[events.name] & hosts[events.lane])
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & (events.correlation != NONE))
    if not len(ranges) or not len(calls):
        return found
    calls = calls[np.argsort(events.correlation[calls], kind="stable")]
    at = np.minimum(np.searchsorted(events.correlation[calls], events.correlation[rows]), len(calls) - 1)
    launch = calls[at]
    launched = (events.correlation[launch] == events.correlation[rows]) & (events.correlation[rows] != NONE)
    ranges = ranges[np.argsort(events.start_ns[ranges], kind="stable")]
    for lane in np.unique(events.lane[ranges]).tolist():
        mine = ranges[events.lane[ranges] == lane]
        here = np.flatnonzero(launched & (events.lane[launch] == lane))
        before = np.searchsorted(events.start_ns[mine], events.start_ns[launch[here]], side="right") - 1
        around = mine[np.maximum(before, 0)]
        inside = (before >= 0) & (events.end_ns[around] >= events.end_ns[launch[here]])
        found[here[inside]] = around[inside]
    return found


def _column(events: EventTable, rows: NDArray[np.int64], name: str) -> Sequence[int]:
    """An attribute of `rows` as whole numbers, -1 where an event carries none."""
    column = events.attrs.get(name)
    return [NONE] * len(rows) if column is None else column.dense(len(events))[rows].astype(np.int64).tolist()


def _text(events: EventTable, rows: NDArray[np.int64], name: str) -> Sequence[str]:
    """An attribute of `rows` as text, "" where an event carries none."""
    column = events.attrs.get(name)
    if column is None or column.table is None:
        return [""] * len(rows)
    table = (*column.table, "")
    return [table[code] for code in column.dense(len(events), len(column.table))[rows].tolist()]


def _members(text: str) -> tuple[int, ...] | None:
    """The ranks in a group's JSON text; None where they are not given in full (profilers shorten long lists)."""
    try:
        ranks: Any = msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None
    if not isinstance(ranks, list) or not ranks or not all(type(rank) is int for rank in ranks):
        return None
    return tuple(ranks)
