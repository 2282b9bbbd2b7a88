"""Chain: from an instant of a schedule back through what bound it, as pieces of time without gap or overlap.

An instant is the start or the end of an op. An end was bound by the op's duration or by an edge to the end
(finish→finish, start→finish); a start by an edge to the start (finish→start, start→start), by the op before it
on its stream, or by nothing at time zero. Each binding leads to an earlier instant, and the time between the two
is one piece: the op's duration, the edge's lag, or the stream's gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.compiled import compiled
from makespan.errors import GraphError
from makespan.schedule import BY_DURATION, BY_NOTHING, BY_STREAM, Schedule


class PiecePart(IntEnum):
    """What a piece of time is."""

    DURATION = 0  # the op itself
    LAG = 1  # the lag of an edge that leads to the op
    STREAM = 2  # time that the op's stream took to turn from one op to the next


_DURATION: Final = int(PiecePart.DURATION)
_LAG: Final = int(PiecePart.LAG)
_STREAM: Final = int(PiecePart.STREAM)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The pieces of w chains, p in all; those of chain i are `pointer[i]:pointer[i + 1]`, in time order.

    `op` (p,) int32: the op, or the one that an edge leads to; `part` (p,) uint8 PiecePart; `edge` (p,) int32,
    -1 where the piece is no lag; `from_ns`, `to_ns` (p,) int64. Edges of no lag are kept as pieces of no time.
    """

    pointer: NDArray[np.int64]
    op: NDArray[np.int32]
    part: NDArray[np.uint8]
    edge: NDArray[np.int32]
    from_ns: NDArray[np.int64]
    to_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.op)

    @property
    def length_ns(self) -> NDArray[np.int64]:
        """(p,) int64"""
        return self.to_ns - self.from_ns

    def chain(self) -> NDArray[np.int64]:
        """(p,) the number of the chain that each piece belongs to."""
        return np.repeat(np.arange(len(self.pointer) - 1), np.diff(self.pointer))


def walk_back(schedule: Schedule, ops: ArrayLike, at_end: ArrayLike, until_ns: ArrayLike) -> Pieces:
    """The chains that led to the ends (`at_end`) or starts of `ops` (w,), back to the times `until_ns` (w,).

    The first piece of a chain is clipped to its `until_ns`, so that the pieces fill the time from there to the
    instant exactly; a chain whose instant is not later than that is empty. Scalars hold for all. Raises
    GraphError where the schedule contradicts itself: something bound by what comes later, or by nothing after
    time zero.
    """
    first = np.atleast_1d(np.asarray(ops, np.int32))
    ends = np.broadcast_to(np.asarray(at_end, np.bool_), first.shape)
    until = np.broadcast_to(np.asarray(until_ns, np.int64), first.shape)
    graph = schedule.graph
    end_bound = np.empty(0, np.int32) if schedule.end_bound_edge is None else schedule.end_bound_edge
    broken, pointer, columns = _walk(
        first, ends, until, schedule.start_ns, schedule.end_ns, schedule.bound_by, schedule.bound_edge, end_bound,
        graph.pred, graph.relation,
    )  # fmt: skip
    if broken >= 0:
        raise GraphError(
            f"the schedule contradicts itself: op {broken} ({graph.name_of(int(broken))!r}) is bound by nothing "
            "after time zero or by something later; replay the graph again"
        )
    return Pieces(pointer, *columns)


@compiled()
def _walk(
    first: Any, at_end: Any, until: Any, start: Any, end: Any, bound_by: Any, bound_edge: Any, end_bound: Any,
    pred: Any, relation: Any,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    room = 1024
    out_op, out_part, out_edge = np.empty(room, np.int32), np.empty(room, np.uint8), np.empty(room, np.int32)
    out_from, out_to = np.empty(room, np.int64), np.empty(room, np.int64)
    pointer = np.zeros(len(first) + 1, np.int64)
    made = 0
    broken = np.int64(-1)
    for chain in range(len(first)):
        op, is_end = np.int64(first[chain]), at_end[chain]
        now = end[op] if is_end else start[op]
        steps_left = 2 * len(start) + 2
        while now > until[chain] and broken < 0:
            part, edge, source, source_end = _STREAM, np.int64(-1), op, True
            if is_end:
                edge = np.int64(end_bound[op]) if len(end_bound) > 0 else np.int64(BY_DURATION)
                if edge < 0:
                    part, source_end = _DURATION, False
            else:
                edge = np.int64(bound_edge[op])
                if edge == BY_STREAM:
                    source = np.int64(bound_by[op])
            if edge >= 0:
                part, source, source_end = _LAG, np.int64(pred[edge]), (relation[edge] & 1) == 0
            steps_left -= 1
            if (edge == BY_NOTHING and not is_end) or source < 0 or steps_left < 0:
                broken = op
                break
            before = end[source] if source_end else start[source]
            if before > now:
                broken = op
                break
            if part != _STREAM or before < now:
                if made == room:
                    out_op, out_part = _grown(out_op), _grown(out_part)
                    out_edge, out_from, out_to = _grown(out_edge), _grown(out_from), _grown(out_to)
                    room = len(out_op)
                out_op[made], out_part[made] = op, part
                out_edge[made] = edge if part == _LAG else -1
                out_from[made], out_to[made] = max(before, until[chain]), now
                made += 1
            op, is_end, now = source, source_end, before
        begun = pointer[chain]
        pointer[chain + 1] = made
        for column in (out_op, out_edge):
            column[begun:made] = column[begun:made][::-1].copy()
        for column in (out_from, out_to):
            column[begun:made] = column[begun:made][::-1].copy()
        out_part[begun:made] = out_part[begun:made][::-1].copy()
    kept = (out_op[:made], out_part[:made], out_edge[:made], out_from[:made], out_to[:made])
    return broken, pointer, kept


@compiled()
def _grown(column: Any) -> Any:  # pragma: no cover - compiled
    larger = np.empty(2 * len(column), column.dtype)
    larger[: len(column)] = column
    return larger
