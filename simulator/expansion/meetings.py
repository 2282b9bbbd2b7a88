"""Meetings: which collective ops of several ranks are one collective."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from makespan.errors import GraphError
from makespan.graph import NONE, Edges, Graph, OpKind, Relation, StreamKind
from makespan.topology import topological_order


@dataclass(frozen=True, slots=True)
class Meeting:
    """`ops`, one of each of `ranks`, that are one collective; `come_together`: none begins before all have come."""

    ops: tuple[int, ...]
    ranks: tuple[int, ...]
    come_together: bool


def find_meetings(graph: Graph, chosen: NDArray[np.bool_]) -> list[Meeting]:
    """The collectives that the `chosen` (n,) ops make up, each after those that lead to it.

    Ops belong together where they wait for one meeting point (a BARRIER, as building a graph from the traces of
    several ranks makes them), else where they are the k-th of their `group` on each rank. Raises GraphError where an
    op has neither, is alone, or where ranks have different numbers of a group.
    """
    ops = np.flatnonzero(chosen)
    target = graph.edge_targets()
    into = np.flatnonzero(chosen[target] & (graph.kind[graph.pred] == OpKind.BARRIER) & (graph.relation & 2 == 0))
    barrier = np.full(len(graph), NONE, np.int64)
    barrier[target[into]] = graph.pred[into]
    count_of: dict[tuple[int, int], int] = {}
    met: dict[Hashable, list[int]] = {}
    for op in ops.tolist():
        if barrier[op] != NONE:
            met.setdefault(("point", int(barrier[op])), []).append(op)
            continue
        group, rank = int(graph.group[op]), int(graph.rank[op])
        if group == NONE:
            raise GraphError(
                f"op {op} {graph.name_of(op)!r} (rank {rank}) has no group and waits for no meeting point: which ranks "
                "it joins isn't known; load the traces of all of them together, or leave it out"
            )
        turn = count_of.get((group, rank), 0)
        count_of[group, rank] = turn + 1
        met.setdefault(("group", group, turn), []).append(op)
    groups: dict[int, dict[int, int]] = {}
    for (group, rank), count in count_of.items():
        groups.setdefault(group, {})[rank] = count
    for group, counts in groups.items():
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} on rank {rank}" for rank, count in sorted(counts.items())[:4])
            raise GraphError(f"group {group} has unlike numbers of collectives: {told}")
    meetings = [_meeting(graph, together, bool(barrier[together[0]] != NONE)) for together in met.values()]
    return _in_order(graph, meetings)


def _meeting(graph: Graph, ops: list[int], come_together: bool) -> Meeting:
    ops = sorted(ops, key=lambda op: int(graph.rank[op]))
    ranks = [int(graph.rank[op]) for op in ops]
    if len(ranks) < 2 or len(set(ranks)) < len(ranks):
        told = f"op {ops[0]} {graph.name_of(ops[0])!r} of rank {ranks[0]}"
        reason = "is alone in its collective" if len(ranks) < 2 else "meets another op of its own rank"
        raise GraphError(f"{told} {reason}: expected one op of each of several ranks; leave it out")
    return Meeting(tuple(ops), tuple(ranks), come_together)


def _in_order(graph: Graph, meetings: list[Meeting]) -> list[Meeting]:
    """`meetings` so that each comes after those that edges or the order of streams lead from to it.

    For that each is seen as one further vertex, after all its ops and before all that waits for their ends. Where
    that makes a cycle they are in the order of their last ops, and the cycle, if it is one, shows up later.
    """
    count = len(graph)
    vertex = np.full(count, NONE, np.int64)
    last = np.empty(len(meetings), np.int64)
    for number, meeting in enumerate(meetings):
        vertex[list(meeting.ops)] = count + number
        last[number] = max(meeting.ops)
    own = np.flatnonzero(vertex != NONE)
    end = np.where(vertex == NONE, np.arange(count), vertex)
    edges, order = graph.edges(), stream_order(graph)
    from_start = (edges.relation & Relation.START_START) != 0
    source = np.concatenate([np.where(from_start, edges.source, end[edges.source]), end[order.source], own])
    target = np.concatenate([edges.target, order.target, vertex[own]])
    # A vertex's key lies right behind that of its last op.
    key = np.concatenate([2 * np.arange(count), 2 * last + 1])
    sequence = topological_order(count + len(meetings), source.astype(np.int32), target.astype(np.int32), key)
    if len(sequence) < count + len(meetings):
        return sorted(meetings, key=lambda meeting: max(meeting.ops))
    return [meetings[number - count] for number in sequence.tolist() if number >= count]


def stream_order(graph: Graph) -> Edges:
    """From each op to the next on its stream, where the stream runs one op at a time."""
    shared = graph.on_streams(StreamKind.SHARED)
    ops = np.flatnonzero(~shared)
    ops = ops[np.argsort(graph.stream[ops], kind="stable")]
    same = graph.stream[ops[1:]] == graph.stream[ops[:-1]]
    return Edges.of(ops[:-1][same], ops[1:][same])
