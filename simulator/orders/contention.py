"""Contention: which ops of a rank slow each other down while they run, as the attributes of a graph tell it.

Three attributes of n ops:

- `contention` (n,) int8: 1 computes, and yields; 2 communicates, and takes; 0 takes no part, nor does -1, which an
  edit gives to new ops.
- `stretch` (n,) float32 from 1 up, 1 where missing: while an op that computes runs on its rank, an op that
  communicates goes at 1 / stretch of its pace.
- `share_left` (n,) float32 from 0 to 1, 1 where missing: while ops that communicate run, every op that
  computes on their rank goes at 1 less the sum of their (1 - share_left), and at SLOWEST at least.

An op runs while it has work left: one that only waits for its end constraints takes nothing and yields nothing, nor
does an op without duration. On a shared stream an op's pace multiplies the share that it gets there.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from makespan.errors import GraphError
from makespan.graph import Graph
from makespan.simulator.orders.columns import Columns

COMPUTES: Final = 1
COMMUNICATES: Final = 2
SLOWEST: Final = 0.05
"""The least pace of an op that computes."""
UNCONTENDED_ATTR: Final = "uncontended_ns"
"""Attribute of a contended schedule's graph: (n,) int64, the durations that were given."""
TAKEN_UNIT: Final = 2.0**40
"""What is taken from a rank is a sum of whole numbers of these parts: exact, hence nothing once all have left."""
_LONGEST_NS: Final = 1 << 53
"""Works up to here (104 days) are exact in float64."""

FRESH: Final = 0
CHANGED: Final = 1
STALE: Final = 2

_RIVAL: Final = np.dtype(
    [("pace", "f8"), ("left", "f8"), ("slow_pace", "f8"), ("since", "i8"), ("taken", "i8"), ("role", "i4"),
     ("slowed", "i4"), ("before", "i4"), ("after", "i4")]
)  # fmt: skip
_RANK: Final = np.dtype([("taken", "i8"), ("pace", "f8"), ("computing", "i4"), ("busy", "i4"), ("changed", "i8")])


class Contention(NamedTuple):
    """The state of the contention of n ops on s streams of r ranks; nobody runs at first.

    `rivals` (n,) records. `role`: COMPUTES, COMMUNICATES or 0; `slow_pace`: 1 / stretch; `taken`: 1 - share_left in
    TAKEN_UNITs. Of a running op `pace` is at which it goes now and `slowed` whether it ever went at less than 1;
    outside of shared streams `left` is the work (ns) it had left at the instant `since`. `before`, `after`: its
    neighbours among the running ops of its rank and role, -1 for none.

    `ranks` (r,) records. `computing`: running ops that compute; `taken`: sum of those that communicate; `pace` and
    `busy`: the pace of ops that compute and whether there were any, as last settled; `changed`: whether the rank is in
    `changed_ranks`. `members` (r, 3) int32: by role, the running op that began last, -1 for none. `rank_of` (s,)
    int32: rank of each stream.

    Lists: `fresh` (n,) int32, ops that started at this instant and have no pace yet; `changed_ranks` (r,) int32,
    where ops began or stopped running; `stale_links` (s,) int32, shared streams whose heap is out of order, and
    `stale` (s,) uint8, whether a stream is among them. `counts`: their lengths, by FRESH, CHANGED and STALE.
    `took_ns` (n,) int64: the duration of each op, and from its end on that of a slowed op as it really was.
    """

    rivals: NDArray[Any]
    ranks: NDArray[Any]
    members: NDArray[np.int32]
    rank_of: NDArray[np.int32]
    fresh: NDArray[np.int32]
    changed_ranks: NDArray[np.int32]
    stale_links: NDArray[np.int32]
    stale: NDArray[np.uint8]
    counts: NDArray[np.int64]
    took_ns: NDArray[np.int64]


def contention_of(graph: Graph, columns: Columns) -> Contention:
    """The contention that `graph` tells, before anything runs.

    Raises GraphError where an attribute has another dtype or length, or a value out of range; where an op that
    contends lasts beyond 2**53 ns (104 days), stretched; and where the durations are already those of a contended
    replay.
    """
    count, streams = len(graph), len(graph.streams)
    role = _attribute(graph, "contention", np.int8, 0)
    stretch = _attribute(graph, "stretch", np.float32, 1)
    share_left = _attribute(graph, "share_left", np.float32, 1)
    takes = role == COMMUNICATES
    _expect(graph, "contention", (role >= -1) & (role <= COMMUNICATES), "0, 1 (computes) or 2 (communicates)")
    _expect(graph, "stretch", ~takes | ((stretch >= 1) & np.isfinite(stretch)), "a number from 1 up")
    _expect(graph, "share_left", ~takes | ((share_left >= 0) & (share_left <= 1)), "a number from 0 to 1")
    contends = (role > 0) & (columns.duration_ns != 0)
    if UNCONTENDED_ATTR in graph.attrs and np.any(contends):
        raise GraphError(
            f"the durations are those of a contended replay already (attribute {UNCONTENDED_ATTR}), expected the graph "
            "that was given to it"
        )
    longest = np.where(contends, columns.duration_ns * np.where(takes, stretch, 1).astype(np.float64), 0)
    if np.any(longest >= _LONGEST_NS):
        raise GraphError(f"op {np.argmax(longest)} contends and lasts beyond {_LONGEST_NS} ns (104 days), stretched")

    rivals = np.zeros(count, _RIVAL)
    rivals["role"] = np.where(contends, role, 0)
    rivals["slow_pace"] = 1.0 / np.where(takes, stretch, 1).astype(np.float64)
    rivals["taken"] = np.rint((1.0 - np.where(takes, share_left, 1).astype(np.float64)) * TAKEN_UNIT)
    names, rank_of = np.unique([stream.rank for stream in graph.streams], return_inverse=True)
    ranks = np.zeros(len(names), _RANK)
    ranks["pace"] = 1.0
    return Contention(
        rivals=rivals,
        ranks=ranks,
        members=np.full((len(names), 3), -1, np.int32),
        rank_of=rank_of.astype(np.int32),
        fresh=np.empty(count, np.int32),
        changed_ranks=np.empty(len(names), np.int32),
        stale_links=np.empty(streams, np.int32),
        stale=np.zeros(streams, np.uint8),
        counts=np.zeros(3, np.int64),
        took_ns=columns.duration_ns.copy(),
    )


def _attribute(graph: Graph, name: str, dtype: Any, missing: int) -> NDArray[Any]:
    """The attribute `name` of all ops; `missing` for each where the graph has none."""
    column = graph.attrs.get(name)
    if column is None:
        return np.full(len(graph), missing, dtype)
    if column.dtype != dtype or column.shape != (len(graph),):
        raise GraphError(
            f"attribute {name} is {column.dtype}{list(column.shape)}, expected {np.dtype(dtype)}[{len(graph)}]"
        )
    return column


def _expect(graph: Graph, name: str, sound: NDArray[np.bool_], expected: str) -> None:
    if not np.all(sound):
        op = int(np.argmin(sound))
        raise GraphError(f"op {op} ({graph.name_of(op)!r}) has {name} {graph.attrs[name][op]}, expected {expected}")
