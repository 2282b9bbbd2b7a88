"""Bridging: what the ops around removed ones still wait for once those are gone.

A removed op takes no time but still passes on what it waited for. An edge into it and an edge out of it become
one: the first gives the instant of the source, the second the instant of the target, and lags add up. What
holds only the end of a removed op binds only edges that leave from its end. The bridged edge has the kind of
the second and the weaker evidence of both.

The order of a stream counts as an edge (finish to start, no lag) when it meets an edge that marks a place in
that order: a launch, a wait or a hand-off still comes after the op before it on its stream, though the op
itself is gone. It does not count when it meets a DATA edge, which is about the op's result alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import EdgeKind, Edges, Relation

BRIDGE_LIMIT: Final = 64
"""An op whose removal makes this many more edges than it had stays in its place as a zero-time MARK."""

_DATA: Final = int(EdgeKind.DATA)
_SOURCE, _TARGET, _RELATION, _KIND, _EVIDENCE, _LAG, _ORDER, _NEXT = range(8)
"""Columns of the kernel's edge rows; _ORDER is 1 for what only the order of a stream implies."""


@dataclass(frozen=True, slots=True, eq=False)
class Bridged:
    """`edges` among the ops that are left, and `marks` (n,) bool: removed ops that stay as zero-time marks."""

    edges: Edges
    marks: NDArray[np.bool_]


def bridge(
    edges: Edges,
    stream_order: Edges,
    removed: NDArray[np.bool_],
    lasting: NDArray[np.bool_],
    position: NDArray[np.int64],
    limit: int = BRIDGE_LIMIT,
) -> Bridged:
    """Take the `removed` (n,) ops out of the graph.

    `stream_order` leads from each op to the next on its stream; `position` (n,) is a topological numbering for
    both kinds of edges. Removed ops stay as marks where they are `lasting` (n,), where their removal would make
    more than `limit` edges beyond those they have, and where nothing comes before them but a lag counts from
    them, which would otherwise be lost.
    """
    touching = removed[edges.source] | removed[edges.target]
    implied = removed[stream_order.source] | removed[stream_order.target]
    # Where the graph states the stream's order itself, its edge says all that the implied one would.
    pair = edges.source.astype(np.int64) * len(removed) + edges.target
    stated = pair[touching & (edges.kind != _DATA) & (edges.relation == Relation.FINISH_START)]
    implied &= ~np.isin(stream_order.source.astype(np.int64) * len(removed) + stream_order.target, stated)
    parts = Edges.concatenate([edges.take(touching), stream_order.take(implied)])
    is_order = np.arange(len(parts)) >= np.count_nonzero(touching)
    rows = np.stack(
        [parts.source, parts.target, parts.relation, parts.kind, parts.evidence, parts.lag_ns, is_order], axis=1
    ).astype(np.int64)
    queue = np.flatnonzero(removed)
    queue = queue[np.argsort(position[queue])]
    into, out_of = _rows_by(parts.target, len(removed)), _rows_by(parts.source, len(removed))
    made, marks = _bridge(queue, removed, lasting, *into, *out_of, rows, limit)
    bridged = Edges.of(
        made[:, _SOURCE], made[:, _TARGET], made[:, _LAG], made[:, _RELATION], made[:, _KIND], made[:, _EVIDENCE]
    )
    return Bridged(Edges.concatenate([edges.take(~touching), merge_parallel(bridged)]), marks)


def merge_parallel(edges: Edges) -> Edges:
    """Of the edges that agree in source, target, relation and kind only the one with the longest lag."""
    order = np.lexsort((-edges.lag_ns, edges.kind, edges.relation, edges.target, edges.source))
    ordered = edges.take(order)
    same = np.ones(max(len(edges) - 1, 0), np.bool_)
    for column in (ordered.source, ordered.target, ordered.relation, ordered.kind):
        same &= column[1:] == column[:-1]
    kept = np.ones(len(edges), np.bool_)
    kept[1:] = ~same
    return edges.take(np.sort(order[kept]))


def _rows_by(ops: NDArray[np.int32], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """CSR over `count` ops: pointer (count+1,) and the edges, by op."""
    pointer = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(ops, minlength=count), out=pointer[1:])
    return pointer, np.argsort(ops, kind="stable")


@compiled()
def _with_room(rows: Any, used: Any) -> Any:  # pragma: no cover - compiled
    """`rows`, or a copy of twice the length where one more would not fit."""
    if used < len(rows):
        return rows
    larger = np.empty((2 * len(rows), rows.shape[1]), np.int64)
    larger[:used] = rows
    return larger


@compiled()
def _longest(rows: Any) -> Any:  # pragma: no cover - compiled
    """Numbers of the rows to keep: of those that bind alike, the one with the longest lag."""
    key = np.empty(len(rows), np.int64)
    for number in range(len(rows)):
        sort = 2 if rows[number, _ORDER] == 1 else 1 if rows[number, _KIND] == _DATA else 0
        key[number] = (rows[number, _SOURCE] * 4 + rows[number, _RELATION]) * 3 + sort
    kept = np.empty(len(rows), np.int64)
    count = 0
    last = np.int64(-1)
    for number in np.argsort(key, kind="mergesort"):
        if key[number] != last:
            kept[count] = number
            count += 1
        elif rows[number, _LAG] > rows[kept[count - 1], _LAG]:
            kept[count - 1] = number
        last = key[number]
    return kept[:count]


@compiled()
def _joined(into: Any, out_of: Any, joined: Any) -> Any:  # pragma: no cover - compiled
    """Write edge `into` followed by edge `out_of` to `joined`; False where the two don't bind each other."""
    if into[_RELATION] & 2 and out_of[_RELATION] & 1:
        return False
    if into[_ORDER] != out_of[_ORDER] and (out_of[_KIND] if into[_ORDER] else into[_KIND]) == _DATA:
        return False
    joined[_SOURCE] = into[_SOURCE]
    joined[_TARGET] = out_of[_TARGET]
    joined[_RELATION] = (into[_RELATION] & 1) | (out_of[_RELATION] & 2)
    joined[_KIND] = into[_KIND] if out_of[_ORDER] else out_of[_KIND]
    joined[_EVIDENCE] = max(into[_EVIDENCE], out_of[_EVIDENCE])
    joined[_LAG] = into[_LAG] + out_of[_LAG]
    joined[_ORDER] = into[_ORDER] & out_of[_ORDER]
    return True


@compiled()
def _bridge(  # pragma: no cover - compiled
    queue: Any, removed: Any, lasting: Any, in_ptr: Any, in_edge: Any, out_ptr: Any, out_edge: Any, edges: Any,
    limit: Any,
) -> Any:  # fmt: skip
    """One pass over the removed ops in topological order, each handing on what reached it from ops that stay."""
    marks = np.zeros(len(removed), np.bool_)
    head = np.full(len(removed), -1, np.int64)  # last row of `reached` for each removed op; a linked list
    reached = np.empty((1024, _NEXT + 1), np.int64)
    reached_count = 0
    made = np.empty((1024, _NEXT), np.int64)
    made_count = 0
    joined = np.empty(_NEXT, np.int64)
    for op in queue:
        ins, outs = in_ptr[op + 1] - in_ptr[op], out_ptr[op + 1] - out_ptr[op]
        waiting = 0
        place = head[op]
        while place >= 0:
            waiting += 1
            place = reached[place, _NEXT]
        found = np.empty((waiting + ins, _NEXT), np.int64)
        count = 0
        place = head[op]
        while place >= 0:
            found[count] = reached[place, :_NEXT]
            count += 1
            place = reached[place, _NEXT]
        for place in range(in_ptr[op], in_ptr[op + 1]):
            if not removed[edges[in_edge[place], _SOURCE]]:
                found[count] = edges[in_edge[place]]
                count += 1
        found = found[:count]
        kept = _longest(found)
        starts_bound = False
        for number in kept:
            starts_bound |= found[number, _RELATION] & 2 == 0
        stays = lasting[op] or len(kept) * outs > ins + outs + limit
        for place in range(out_ptr[op], out_ptr[op + 1]):
            leaving = edges[out_edge[place]]
            bound = starts_bound if leaving[_RELATION] & 1 else len(kept) > 0
            stays |= leaving[_LAG] > 0 and not bound
        if stays:
            marks[op] = True
            for number in kept:
                if found[number, _ORDER] == 0:
                    made = _with_room(made, made_count)
                    made[made_count] = found[number]
                    made_count += 1
            kept = kept[:1] if len(kept) else np.zeros(1, np.int64)
        for place in range(out_ptr[op], out_ptr[op + 1]):
            leaving = edges[out_edge[place]]
            for number in kept:
                if stays:
                    joined[:] = leaving
                elif not _joined(found[number], leaving, joined):
                    continue
                goal = leaving[_TARGET]
                if removed[goal]:
                    reached = _with_room(reached, reached_count)
                    reached[reached_count, :_NEXT] = joined
                    reached[reached_count, _NEXT] = head[goal]
                    head[goal] = reached_count
                    reached_count += 1
                elif joined[_ORDER] == 0:
                    made = _with_room(made, made_count)
                    made[made_count] = joined
                    made_count += 1
    return made[:made_count], marks
