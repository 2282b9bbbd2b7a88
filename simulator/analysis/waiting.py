"""Waiting: how long each rank waits for others in its collectives, and how long the transfers themselves take."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.graph import COMMUNICATION, NONE, EdgeKind, Graph, OpKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.totals import sum_by

_COLUMNS: Final = ("rank", "count", "total_ns", "waiting_ns", "transfer_ns", "unmatched_count", "unmatched_ns")


def waiting(schedule: Schedule) -> pd.DataFrame:
    """One row for each rank that communicates: `count` collectives, sends and receives that are matched over ranks.

    `total_ns` is the time in them, which is `waiting_ns`, until all had come whom it waits for, and `transfer_ns`.
    `unmatched_count` communications, in which waiting and transfer can't be told apart, take `unmatched_ns`. Ops that
    run at once count each.
    """
    graph = schedule.graph
    ops = np.flatnonzero(np.isin(graph.kind, COMMUNICATION))
    came_ns, met_ns, matched = _moments(schedule, ops)
    waited_ns = np.maximum(met_ns - came_ns, 0)
    spent_ns = schedule.end_ns[ops] - schedule.start_ns[ops]
    ranks, code = np.unique(graph.rank[ops], return_inverse=True)
    count = len(ranks)
    inside, outside = np.flatnonzero(matched), np.flatnonzero(~matched)
    waiting_ns = sum_by(code[inside], waited_ns[inside], count)
    transfer_ns = sum_by(code[inside], spent_ns[inside], count)
    columns = (
        ranks, np.bincount(code[inside], minlength=count), waiting_ns + transfer_ns, waiting_ns, transfer_ns,
        np.bincount(code[outside], minlength=count), sum_by(code[outside], spent_ns[outside], count),
    )  # fmt: skip
    return pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))


def _moments(
    schedule: Schedule, ops: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """For `ops` (k,) when the rank came, when the last one came that it waits for, and whether the op meets others."""
    graph = schedule.graph
    edges = graph.edges()
    meets = edges.kind == EdgeKind.COLLECTIVE
    source, target = edges.source[meets].astype(np.int64), edges.target[meets].astype(np.int64)
    communicates = np.isin(graph.kind, COMMUNICATION)
    from_point = (graph.kind[source] == OpKind.BARRIER) & communicates[target]
    to_point = graph.kind[target] == OpKind.BARRIER
    point = np.full(len(graph), NONE, np.int64)
    point[target[from_point]] = source[from_point]
    arrival = _own_arrivals(graph, ops, point, source[to_point], target[to_point])
    direct = (graph.kind[source] == OpKind.MARK) & communicates[target]
    own = np.full(len(graph), NONE, np.int64)
    own[target[direct]] = source[direct]
    arrival = np.where(own[ops] >= 0, own[ops], arrival)
    awaited = np.zeros(len(graph), np.bool_)
    awaited[source[to_point]] = True
    met = point[ops] >= 0
    came_ns = schedule.start_ns[np.where(arrival >= 0, arrival, ops)]
    met_ns = np.where(met, schedule.start_ns[point[ops]], came_ns)
    return came_ns, met_ns, met | awaited[ops]


def _own_arrivals(
    graph: Graph, ops: NDArray[np.int64], point: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(k,) the op through which the rank of each of `ops` comes to its meeting `point` (n,), -1 none.

    `source` (m,) lead to the meeting points `target` (m,).
    """
    if not len(source):
        return np.full(len(ops), NONE, np.int64)
    width = int(graph.rank.max()) + 1
    key = target * width + graph.rank[source]
    order = np.argsort(key, kind="stable")
    wanted = point[ops] * width + graph.rank[ops]
    place = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    found = source[order][place]
    return np.where((key[order][place] == wanted) & (point[ops] >= 0), found, NONE)
