"""Activity: what each rank is doing at every moment of a schedule, and while it does nothing, why.

For a rank with device work a moment is busy when the device computes, copies or communicates. For a rank
without, it is busy when its main thread runs or when it communicates. What ends an idle span is an op that
starts; the chain of what that op waited for says what each moment of the span was spent on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import COMMUNICATION, EdgeKind, Evidence, Graph, OpKind, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.chain import PiecePart, Pieces, walk_back


class Activity(IntEnum):
    """What a moment of a rank is spent on: exactly one of these."""

    COMPUTE = 0  # kernels; on a rank without device: ops of the main thread
    OVERLAPPED_COMM = 1  # communication hidden under compute
    EXPOSED_COMM = 2  # communication and no compute
    MEMORY = 3  # copies and fills, with neither compute nor communication
    HOST_OP = 4  # idle until a host op had run (launch-bound)
    PYTHON = 5  # idle until interpreter frames had run; on a rank without device: the frames themselves
    THINK = 6  # the same for host time between recorded events
    LAUNCH = 7  # idle while a launch made its way to the device
    STREAM_GAP = 8  # idle between two works of one stream that were both queued
    SYNC_WAIT = 9  # idle while a host thread came back from waiting, or was woken by another
    STREAM_WAIT = 10  # idle while a stream noticed that another was done, or had room again
    COLLECTIVE_WAIT = 11  # idle until other ranks had come
    UNRECORDED = 12  # idle, and nothing in the trace says why
    FINISHED = 13  # nothing left to do on this rank


IDLE: Final = tuple(kind for kind in Activity if kind > Activity.MEMORY)

_COMPUTE, _COMM, _MEMORY, _PYTHON, _THINK, _WAIT = (1 << bit for bit in range(6))
_GAP: Final = len(Activity)


@dataclass(frozen=True, slots=True, eq=False)
class RankActivity:
    """What `rank` does from time zero to the makespan: s spans without gap or overlap, in time order.

    `from_ns`, `to_ns` (s,) int64; `activity` (s,) uint8; `op` (s,) int32: for idle spans the op to blame, else
    -1. `has_device` tells which of the two meanings of busy applies.
    """

    rank: int
    has_device: bool
    from_ns: NDArray[np.int64]
    to_ns: NDArray[np.int64]
    activity: NDArray[np.uint8]
    op: NDArray[np.int32]

    def within(self, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """(w, activities) int64: time spent on each activity in each of w windows; a row adds up to its window."""
        spent = np.zeros((len(begin_ns), len(Activity)), np.int64)
        if not len(self.from_ns):
            return spent
        length = self.to_ns - self.from_ns
        for kind in Activity:
            here = self.activity == kind
            before = np.concatenate([[0], np.cumsum(np.where(here, length, 0))])
            for bound, sign in ((end_ns, 1), (begin_ns, -1)):
                place = np.clip(np.searchsorted(self.from_ns, bound, side="right") - 1, 0, len(here) - 1)
                spent[:, kind] += sign * (before[place] + np.where(here[place], bound - self.from_ns[place], 0))
        return spent


def rank_activities(schedule: Schedule) -> list[RankActivity]:
    """The activity of every rank that has ops of any length, in rank order."""
    graph = schedule.graph
    lasting = np.flatnonzero(schedule.end_ns > schedule.start_ns)
    lasting = lasting[np.argsort(graph.rank[lasting], kind="stable")]
    if not len(lasting):
        return []
    ranks, first = np.unique(graph.rank[lasting], return_index=True)
    parts = np.split(lasting, first[1:])
    return [_rank_activity(schedule, int(rank), ops) for rank, ops in zip(ranks, parts, strict=True)]


def main_thread(schedule: Schedule, rank: int) -> int:
    """The host stream on which most steps of `rank` begin, else the one that works longest; -1 if it has none."""
    graph = schedule.graph
    marked = [step.begin_op for step in graph.steps if step.rank == rank]
    begins = [int(graph.stream[op]) for op in marked if graph.kind[op] != OpKind.ORIGIN]
    begins = [stream for stream in begins if graph.streams[stream].kind == StreamKind.HOST]
    if begins:
        return max(set(begins), key=begins.count)
    load = np.zeros(len(graph.streams), np.int64)
    np.add.at(load, graph.stream, schedule.end_ns - schedule.start_ns)
    hosts = [n for n, item in enumerate(graph.streams) if item.rank == rank and item.kind == StreamKind.HOST]
    return max(hosts, key=lambda stream: load[stream], default=-1)


def _rank_activity(schedule: Schedule, rank: int, ops: NDArray[np.int64]) -> RankActivity:
    graph = schedule.graph
    on_device = np.fromiter((item.kind == StreamKind.DEVICE for item in graph.streams), np.bool_, len(graph.streams))
    has_device = bool(np.any(on_device[graph.stream[ops]]))
    worked_on = on_device if has_device else np.arange(len(graph.streams)) == main_thread(schedule, rank)
    bit = _busy_bits(graph, ops, worked_on, has_device)
    busy, bit = ops[bit > 0], bit[bit > 0]
    start, end = schedule.start_ns[busy], schedule.end_ns[busy]

    times = np.unique(np.concatenate([[0, schedule.makespan_ns], start, end]))
    running = np.zeros(len(times) - 1, np.int64)
    for value in np.unique(bit):
        chosen = bit == value
        change = np.zeros(len(times), np.int64)
        np.add.at(change, np.searchsorted(times, start[chosen]), 1)
        np.add.at(change, np.searchsorted(times, end[chosen]), -1)
        running |= np.where(np.cumsum(change)[:-1] > 0, value, 0)
    activity = _ACTIVITY_OF[running]
    # Neighbouring spans of one activity become one.
    begins = np.flatnonzero(np.concatenate([[True], activity[1:] != activity[:-1]]))
    activity, from_ns = activity[begins], times[begins]
    to_ns = np.concatenate([from_ns[1:], times[-1:]])

    idle = activity == _GAP
    reasons = _explain_gaps(schedule, rank, ops, busy, from_ns[idle], to_ns[idle])
    nobody = np.full(int(np.count_nonzero(~idle)), -1, np.int32)
    columns: list[NDArray[Any]] = [
        np.concatenate(pair)
        for pair in zip((from_ns[~idle], to_ns[~idle], activity[~idle], nobody), reasons, strict=True)
    ]
    order = np.argsort(columns[0], kind="stable")
    return RankActivity(rank, has_device, *(column[order] for column in columns))


def _busy_bits(
    graph: Graph, ops: NDArray[np.int64], worked_on: NDArray[np.bool_], has_device: bool
) -> NDArray[np.int64]:
    """(k,) what each op contributes to a busy moment, 0 for nothing."""
    of_kind = np.full(max(OpKind) + 1, _COMPUTE, np.int64)
    of_kind[[OpKind.MEMCPY, OpKind.MEMSET]] = _MEMORY
    if not has_device:
        of_kind[OpKind.PYTHON], of_kind[OpKind.THINK], of_kind[OpKind.WAIT] = _PYTHON, _THINK, _WAIT
    kind = graph.kind[ops]
    bit = np.where(worked_on[graph.stream[ops]], of_kind[kind], 0)
    return np.where(np.isin(kind, COMMUNICATION), _COMM, bit)


def _activity_table() -> NDArray[np.uint8]:
    """(64,) the activity for each combination of what runs at a moment; _GAP for none."""
    table = np.full(64, _GAP, np.uint8)
    ranking = (
        (_THINK, Activity.THINK), (_WAIT, Activity.SYNC_WAIT), (_PYTHON, Activity.PYTHON),
        (_MEMORY, Activity.MEMORY), (_COMPUTE, Activity.COMPUTE),
    )  # fmt: skip
    for running in range(64):
        for bit, activity in ranking:
            if running & bit:
                table[running] = activity
        if running & _COMM:
            hidden = running & (_COMPUTE | _PYTHON)
            table[running] = Activity.OVERLAPPED_COMM if hidden else Activity.EXPOSED_COMM
    return table


_ACTIVITY_OF: Final = _activity_table()


def _explain_gaps(
    schedule: Schedule,
    rank: int,
    ops: NDArray[np.int64],
    busy: NDArray[np.int64],
    from_ns: NDArray[np.int64],
    to_ns: NDArray[np.int64],
) -> tuple[NDArray[Any], ...]:
    """The spans of idle time cut up by reason: from, to, activity, op to blame."""
    start = schedule.start_ns[busy]
    by_start = np.argsort(start, kind="stable")
    place = np.searchsorted(start[by_start], to_ns)
    followed = place < len(busy)
    next_op = busy[by_start[np.minimum(place, len(busy) - 1)]] if len(busy) else np.zeros(len(place), np.int64)
    # After the last busy moment of a rank its other ops may still run: the chain of the last of them tells which.
    last = ops[np.argmax(schedule.end_ns[ops])]
    pieces = walk_back(schedule, np.where(followed, next_op, last), ~followed, from_ns)
    activity = _classify(schedule.graph, rank, pieces)
    told = pieces.length_ns > 0
    reached = np.where(followed, to_ns, np.maximum(schedule.end_ns[last], from_ns))
    over = reached < to_ns
    finished = np.full(int(np.count_nonzero(over)), Activity.FINISHED, np.uint8)
    return (
        np.concatenate([pieces.from_ns[told], reached[over]]),
        np.concatenate([pieces.to_ns[told], to_ns[over]]),
        np.concatenate([activity[told], finished]),
        np.concatenate([pieces.op[told], np.full(len(finished), -1, np.int32)]),
    )


def _classify(graph: Graph, rank: int, pieces: Pieces) -> NDArray[np.uint8]:
    """(p,) what an idle moment of `rank` was spent on, by the piece of the chain that lies there."""
    of_op = np.full(max(OpKind) + 1, Activity.HOST_OP, np.uint8)
    of_op[OpKind.PYTHON], of_op[OpKind.THINK], of_op[OpKind.WAIT] = Activity.PYTHON, Activity.THINK, Activity.SYNC_WAIT
    of_edge = np.full(max(EdgeKind) + 1, Activity.STREAM_WAIT, np.uint8)
    of_edge[EdgeKind.LAUNCH] = Activity.LAUNCH
    of_edge[[EdgeKind.STREAM, EdgeKind.GRAPH]] = Activity.STREAM_GAP
    of_edge[[EdgeKind.SYNC, EdgeKind.QUEUE, EdgeKind.HANDOFF, EdgeKind.THREAD]] = Activity.SYNC_WAIT
    of_edge[EdgeKind.COLLECTIVE] = Activity.COLLECTIVE_WAIT
    of_edge[EdgeKind.ORIGIN] = Activity.UNRECORDED

    activity = of_op[graph.kind[pieces.op]]
    is_lag = pieces.part == PiecePart.LAG
    edge = pieces.edge[is_lag]
    by_edge = of_edge[graph.edge_kind[edge]]
    by_edge[graph.rank[graph.pred[edge]] != graph.rank[pieces.op[is_lag]]] = Activity.COLLECTIVE_WAIT
    by_edge[(graph.evidence[edge] == Evidence.RESIDUAL) | (graph.edge_kind[edge] == EdgeKind.ORIGIN)] = (
        Activity.UNRECORDED
    )
    activity[is_lag] = by_edge
    activity[pieces.part == PiecePart.STREAM] = Activity.STREAM_GAP
    activity[(graph.rank[pieces.op] != rank) & (activity != Activity.UNRECORDED)] = Activity.COLLECTIVE_WAIT
    return activity
