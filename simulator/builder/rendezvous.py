"""Rendezvous: the collectives of several ranks on one clock meet, and waiting parts from transfer.

A recorded collective mixes two things: waiting until the last rank has come, and the transfer that follows. Here
each becomes three ops: the rank's arrival, a meeting point of all ranks, and the transfer, which begins at the last
arrival. So a rank that comes earlier makes nobody faster, and one that comes later makes everybody wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import NONE, EdgeKind, Edges, Evidence, OpKind, Relation, Stream, StreamKind
from makespan.simulator.builder.rank_graph import RankGraph
from makespan.trace import EventTable, RankTrace

# In these no rank can be done before the last one has come. A broadcast's root, or a sender, can.
_MEETS: Final = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Met:
    """`parts` with arrivals and meeting points added, `edges` between them in the numbering of all parts joined
    one after another (the origin not counted), and what didn't fit, reason -> count.
    """

    parts: list[RankGraph]
    edges: Edges
    notes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One collective: the op of each rank that took part, by the rank's place."""

    ops: dict[int, int]


def join_collectives(parts: Sequence[RankGraph], ranks: Sequence[RankTrace], origins: Sequence[int]) -> Met:
    """Let the collectives of `parts` meet; `origins` are time zero on each rank's own clock.

    Collectives are matched by process group and sequence number where recorded, else the k-th of a name on one
    rank with the k-th on the others. A group whose ranks recorded different numbers of collectives, and a
    collective that a rank ended before the last one came, stay as recorded; both are counted.
    """
    notes: dict[str, int] = {}
    groups: dict[tuple[str, ...], dict[int, list[int]]] = {}
    for place, (part, rank) in enumerate(zip(parts, ranks, strict=True)):
        for key, op in _collectives(part, rank.events):
            groups.setdefault(key, {}).setdefault(place, []).append(op)
    meetings: list[_Meeting] = []
    for by_place in groups.values():
        if len(by_place) < 2:
            continue
        if len({len(ops) for ops in by_place.values()}) > 1:
            _count(
                notes, "collectives whose ranks recorded different numbers of them", sum(map(len, by_place.values()))
            )
            continue
        for together in zip(*by_place.values(), strict=True):
            meeting = _Meeting(dict(zip(by_place, together, strict=True)))
            if _fits(meeting, parts, origins):
                meetings.append(meeting)
            else:
                _count(notes, "collectives that a rank ended before the last one came", 1)
    if not meetings:
        return Met(list(parts), Edges.of(np.empty(0), np.empty(0)), notes)
    _count(notes, "collectives in which ranks wait for each other", len(meetings))
    return _rebuild(parts, origins, meetings, notes)


def _collectives(part: RankGraph, events: EventTable) -> Iterator[tuple[tuple[str, ...], int]]:
    """(what it is matched by, op) of each collective that is one op, in time order."""
    ops = np.flatnonzero((part.kind == OpKind.COLLECTIVE) & (part.event >= 0))
    once = np.bincount(part.event[ops], minlength=1)[part.event[ops]] == 1
    ops = ops[once]
    group, sequence = events.attrs.get("group_name"), events.attrs.get("group_sequence")
    collective = events.attrs.get("collective")
    for op in ops[np.argsort(part.start_ns[ops], kind="stable")]:
        row = int(part.event[op])
        name = (collective.get(row) if collective else None) or part.names[part.name[op]]
        if not _MEETS.search(name):
            continue
        number = sequence.get(row) if sequence else None
        named = (group.get(row) if group else None) or ""
        yield ((named, name, str(number)) if number is not None else (named, name)), int(op)


def _fits(meeting: _Meeting, parts: Sequence[RankGraph], origins: Sequence[int]) -> bool:
    last = max(int(parts[place].start_ns[op]) - origins[place] for place, op in meeting.ops.items())
    ends = [
        int(parts[place].start_ns[op] + parts[place].duration_ns[op]) - origins[place]
        for place, op in meeting.ops.items()
    ]
    return min(ends) >= last


def _rebuild(
    parts: Sequence[RankGraph], origins: Sequence[int], meetings: list[_Meeting], notes: dict[str, int]
) -> Met:
    """Append an arrival for each rank of each meeting, and the meeting points to the first part."""
    met: list[list[tuple[int, int]]] = [[] for _ in parts]  # (meeting, op)
    last: list[int] = []
    for number, meeting in enumerate(meetings):
        last.append(max(int(parts[place].start_ns[op]) - origins[place] for place, op in meeting.ops.items()))
        for place, op in meeting.ops.items():
            met[place].append((number, op))
    grown: list[RankGraph] = []
    arrivals: list[NDArray[np.int64]] = []
    for place, part in enumerate(parts):
        ops = np.array([op for _, op in met[place]], np.int64)
        began = np.array([last[number] for number, _ in met[place]], np.int64) + origins[place]
        first = len(part.kind)
        arrivals.append(np.arange(first, first + len(ops)))
        grown.append(_with_arrivals(part, ops, began))
    points = len(grown[0].kind)
    grown[0] = _with_points(grown[0], [int(moment) + origins[0] for moment in last], meetings, parts)
    offset = np.cumsum([0, *(len(part.kind) for part in grown)])
    sources: list[NDArray[Any]] = []
    targets: list[NDArray[Any]] = []
    for place in range(len(parts)):
        number = np.array([number for number, _ in met[place]], np.int64) + points
        ops = np.array([op for _, op in met[place]], np.int64)
        sources += [arrivals[place] + offset[place], number]
        targets += [number, ops + offset[place]]
    edges = Edges.of(
        np.concatenate(sources), np.concatenate(targets), 0, kind=EdgeKind.COLLECTIVE, evidence=Evidence.MEASURED
    )
    return Met(grown, edges, notes)


def _with_arrivals(part: RankGraph, ops: NDArray[np.int64], began: NDArray[np.int64]) -> RankGraph:
    """`part` in which transfers `ops` (k,) begin at `began` (k,), and what led to them leads to arrivals instead."""
    first = len(part.kind)
    start_ns, duration_ns = part.start_ns.copy(), part.duration_ns.copy()
    came = start_ns[ops]
    duration_ns[ops] -= began - came
    start_ns[ops] = began
    arrival = np.full(first, NONE, np.int64)
    arrival[ops] = np.arange(first, first + len(ops))
    # What counted from a span's start counts from its transfer's start now, or, where it came before that, from
    # the arrival.
    waited = np.zeros(first, np.int64)
    waited[ops] = began - came
    source = part.edges.source.astype(np.int64)
    from_start = ((part.edges.relation & Relation.START_START) != 0) & (source >= 0)
    behind = np.where(from_start, waited[source], 0)
    earlier = behind > part.edges.lag_ns
    lag_ns = np.where(earlier, part.edges.lag_ns, part.edges.lag_ns - behind)
    source = np.where(earlier, arrival[source], source)
    target = part.edges.target.astype(np.int64)
    target = np.where(arrival[target] >= 0, arrival[target], target)
    edges = replace(part.edges, source=source.astype(np.int32), target=target.astype(np.int32), lag_ns=lag_ns)
    added = {
        "stream": part.stream[ops], "kind": np.full(len(ops), OpKind.MARK), "start_ns": came,
        "duration_ns": np.zeros(len(ops)), "size_bytes": np.zeros(len(ops)), "event": part.event[ops],
        "outer": part.outer[ops],
        "user_range": part.user_range[ops], "name": np.full(len(ops), len(part.names)), "step": part.step[ops],
    }  # fmt: skip
    changed = replace(part, start_ns=start_ns, duration_ns=duration_ns, names=(*part.names, "arrival"))
    return replace(_append(changed, added), edges=edges)


def _with_points(
    part: RankGraph, moments: Sequence[int], meetings: Sequence[_Meeting], parts: Sequence[RankGraph]
) -> RankGraph:
    """`part` with a meeting point at each of `moments`, on a stream of their own."""
    count = len(moments)
    where = [next(iter(meeting.ops.items())) for meeting in meetings]
    step = [parts[place].step[op] if place == 0 else NONE for place, op in where]
    added = {
        "stream": np.full(count, len(part.streams)), "kind": np.full(count, OpKind.BARRIER), "start_ns": moments,
        "duration_ns": np.zeros(count), "size_bytes": np.zeros(count), "event": np.full(count, NONE),
        "outer": np.full(count, NONE), "user_range": np.full(count, NONE), "name": np.full(count, len(part.names)),
        "step": step,
    }  # fmt: skip
    rank = part.streams[0].rank
    # Shared, since ranks of different groups meet side by side.
    streams = (*part.streams, Stream(rank, "meeting points", StreamKind.SHARED))
    return _append(replace(part, streams=streams, names=(*part.names, "last rank has come")), added)


def _append(part: RankGraph, added: dict[str, Any]) -> RankGraph:
    grown = {
        item.name: np.concatenate(
            [getattr(part, item.name), np.asarray(added[item.name]).astype(getattr(part, item.name).dtype)]
        )
        for item in fields(RankGraph)
        if item.name in added
    }
    return replace(part, **grown)


def _count(notes: dict[str, int], reason: str, count: int) -> None:
    notes[reason] = notes.get(reason, 0) + count
