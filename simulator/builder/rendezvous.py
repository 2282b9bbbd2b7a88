"""Rendezvous: the collectives of several ranks on one clock meet, and waiting parts from transfer.

A recorded collective mixes two things: waiting until the last rank has come, and the transfer that follows. Here
each becomes three ops: the rank's arrival, a meeting point of those that are awaited, and the transfer, which begins
at the last arrival. So a rank that comes earlier makes nobody faster, and one that comes later makes everybody wait.
In a broadcast all wait for the root alone, in a reduce the root alone waits, and a receiver waits for its sender; who
waits for nobody keeps its op whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import COMMUNICATION, NONE, EdgeKind, Edges, Evidence, OpKind, Relation, Stream, StreamKind
from makespan.simulator.alignment.collectives import Meets
from makespan.simulator.alignment.matching import Meeting
from makespan.simulator.builder.rank_graph import RankGraph

MET: Final = "collectives in which ranks wait for each other"
PAIRED: Final = "sends that their receivers wait for"
VIOLATED: Final = "collectives that a rank ended before the last one came"
CONCLUDED: Final = "rooted collectives whose root was concluded from times"
CUT: Final = "collectives cut in pieces by events inside them, left as recorded"
APART: Final = "collectives of ranks whose clocks can't be compared, left as recorded"

_POINT: Final = {
    Meets.ALL: "last rank has come", Meets.TO_ROOT: "last rank has come", Meets.FROM_ROOT: "root has come",
    Meets.PAIR: "sender has come",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Met:
    """`parts` with arrivals and meeting points added, `edges` between them in the numbering of all parts joined
    one after another (the origin not counted), the collective `groups` of each part's ops (n,) int64, -1 none, and
    what was found or didn't fit, reason -> count.
    """

    parts: list[RankGraph]
    edges: Edges
    groups: list[NDArray[np.int64]]
    notes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Joint:
    """A collective that meets at `last_ns` after time zero: the op of each place, and who waits for whom."""

    meets: Meets
    ops: dict[int, int]
    awaited: set[int]
    waiting: set[int]
    last_ns: int
    evidence: Evidence


def join_collectives(
    parts: Sequence[RankGraph], meetings: Sequence[Meeting], origins: Sequence[int], together: Collection[int]
) -> Met:
    """Let the ops of `meetings` meet; `origins` are time zero in each rank's own numbers.

    Meetings of ranks that are not `together` on one clock, and those that a rank ended before the last one came,
    stay as recorded and are counted.
    """
    notes: dict[str, int] = {}
    ops_of = [_ops_of_events(part) for part in parts]
    joints: list[_Joint] = []
    for meeting in meetings:
        if not meeting.parts.keys() <= set(together):
            _count(notes, APART)
            continue
        ops = {place: int(ops_of[place][part.row]) for place, part in meeting.parts.items()}
        if NONE in ops.values():
            _count(notes, CUT)
            continue
        joint = _joint(meeting, ops, parts, origins, notes)
        if joint is None:
            _count(notes, VIOLATED)
            continue
        joints.append(joint)
        _count(notes, PAIRED if joint.meets == Meets.PAIR else MET)
    if not joints:
        return Met(list(parts), Edges.of(np.empty(0), np.empty(0)), [np.full(len(p.kind), NONE) for p in parts], notes)
    return _rebuild(parts, origins, joints, notes)


def _ops_of_events(part: RankGraph) -> NDArray[np.int64]:
    """(events,) the only communication op of each event, -1 where there is none or more than one."""
    found = np.full(int(part.event.max(initial=NONE)) + 1, NONE, np.int64)
    ops = np.flatnonzero(np.isin(part.kind, COMMUNICATION) & (part.event >= 0))
    found[part.event[ops]] = ops
    found[np.bincount(part.event[ops], minlength=len(found)) > 1] = NONE
    return found


def _joint(
    meeting: Meeting,
    ops: dict[int, int],
    parts: Sequence[RankGraph],
    origins: Sequence[int],
    notes: dict[str, int],
) -> _Joint | None:
    """The meeting with its times, None where a rank was done before those came that it waits for."""
    start = {place: int(parts[place].start_ns[op]) - origins[place] for place, op in ops.items()}
    end = {place: start[place] + int(parts[place].duration_ns[op]) for place, op in ops.items()}
    known = meeting.meets == Meets.ALL or meeting.root in ops
    for root in [meeting.root] if known else sorted(ops):
        awaited, waiting = meeting.roles(root)
        last_ns = max(start[place] for place in awaited)
        if all(end[place] >= last_ns for place in waiting):
            if not known:
                _count(notes, CONCLUDED)
            evidence = Evidence.MEASURED if known else Evidence.INFERRED
            return _Joint(meeting.meets, ops, awaited, waiting, last_ns, evidence)
    return None


def _rebuild(parts: Sequence[RankGraph], origins: Sequence[int], joints: list[_Joint], notes: dict[str, int]) -> Met:
    """Append an arrival for each rank that waits, and the meeting points to the first part."""
    grown: list[RankGraph] = []
    groups: list[NDArray[np.int64]] = []
    arrivals: list[dict[int, int]] = []
    for place, part in enumerate(parts):
        mine = [(number, joint) for number, joint in enumerate(joints) if place in joint.waiting]
        numbers = np.array([number for number, _ in mine], np.int64)
        ops = np.array([joint.ops[place] for _, joint in mine], np.int64)
        last_ns = np.array([joint.last_ns for _, joint in mine], np.int64) + origins[place]
        group = np.full(len(part.kind), NONE, np.int64)
        for number, joint in enumerate(joints):
            if place in joint.ops:
                group[joint.ops[place]] = number
        arrivals.append(dict(zip(numbers.tolist(), range(len(part.kind), len(part.kind) + len(ops)), strict=True)))
        grown.append(_with_arrivals(part, ops, np.maximum(last_ns, part.start_ns[ops])))
        groups.append(np.concatenate([group, numbers]))
    points = len(grown[0].kind)
    grown[0] = _with_points(grown[0], joints, origins[0], parts)
    groups[0] = np.concatenate([groups[0], np.arange(len(joints))])
    offset = np.cumsum([0, *(len(part.kind) for part in grown)])
    rows: list[tuple[int, int, Relation, Evidence]] = []
    for number, joint in enumerate(joints):
        point = points + number
        for place, op in joint.ops.items():
            whole, arrival = int(offset[place]) + op, int(offset[place]) + arrivals[place].get(number, NONE)
            if place in joint.waiting:
                rows.append((point, whole, Relation.FINISH_START, joint.evidence))
            if place in joint.awaited and place not in joint.waiting:
                rows.append((whole, point, Relation.START_START, joint.evidence))
            elif place in joint.awaited:
                rows.append((arrival, point, Relation.FINISH_START, joint.evidence))
            else:
                rows.append((arrival, whole, Relation.FINISH_START, joint.evidence))
    source, target, relation, evidence = zip(*rows, strict=True)
    edges = Edges.of(source, target, 0, relation, EdgeKind.COLLECTIVE, evidence)
    return Met(grown, edges, groups, notes)


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


def _with_points(part: RankGraph, joints: Sequence[_Joint], origin_ns: int, parts: Sequence[RankGraph]) -> RankGraph:
    """`part`, the first, with the meeting point of each of `joints`, on a stream of their own."""
    count = len(joints)
    spoken = tuple(dict.fromkeys(_POINT.values()))
    name = [len(part.names) + spoken.index(_POINT[joint.meets]) for joint in joints]
    step = [int(parts[0].step[joint.ops[0]]) if 0 in joint.ops else NONE for joint in joints]
    added = {
        "stream": np.full(count, len(part.streams)), "kind": np.full(count, OpKind.BARRIER),
        "start_ns": np.array([joint.last_ns for joint in joints], np.int64) + origin_ns,
        "duration_ns": np.zeros(count), "size_bytes": np.zeros(count), "event": np.full(count, NONE),
        "outer": np.full(count, NONE), "user_range": np.full(count, NONE), "name": name, "step": step,
    }  # fmt: skip
    rank = part.streams[0].rank
    # Shared, since ranks of different groups meet side by side.
    streams = (*part.streams, Stream(rank, "meeting points", StreamKind.SHARED))
    return _append(replace(part, streams=streams, names=(*part.names, *spoken)), added)


def _append(part: RankGraph, added: dict[str, Any]) -> RankGraph:
    grown = {
        item.name: np.concatenate(
            [getattr(part, item.name), np.asarray(added[item.name]).astype(getattr(part, item.name).dtype)]
        )
        for item in fields(RankGraph)
        if item.name in added
    }
    return replace(part, **grown)


def _count(notes: dict[str, int], reason: str) -> None:
    notes[reason] = notes.get(reason, 0) + 1
