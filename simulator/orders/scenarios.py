"""Scenarios: many what-ifs of one graph at once, as columns of one recorded sweep, or one by one in ready order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.compiled import compiled
from makespan.errors import GraphError
from makespan.graph import Graph
from makespan.simulator.orders.columns import columns_of, fixed, refuse
from makespan.simulator.orders.ready import replay_ready
from makespan.units import TIME_LIMIT_NS

_BLOCK: Final = 32
"""Scenarios side by side: four cache lines of times for an op; wider blocks gain nothing more."""
_BLOCK_BYTES: Final = 1 << 29
_EXACT_NS: Final = 1 << 53
"""Durations up to here (104 days) are exact in float64, in which they are multiplied."""


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioTimes:
    """Results of k scenarios: `makespan_ns` (k,) int64; `start_ns`, `end_ns` (k, w) int64 of the watched ops."""

    makespan_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.makespan_ns)


def replay_scenarios(
    graph: Graph,
    factor_class: NDArray[np.int32],
    factors: ArrayLike,
    order: str = "recorded",
    watch: Sequence[int] | NDArray[Any] = (),
) -> ScenarioTimes:
    """Replay `graph` (n ops) k times, each time with other multiples of its durations.

    `factor_class` (n,) int32 puts each op into one of c classes, `factors` (k, c) float64 holds what each scenario
    multiplies the durations of each class by (>= 0); products are rounded to whole ns, half to even, so that a
    factor of 1 changes nothing. `watch` (w,) names ops whose times are wanted as well, such as the first
    and last of each step. Memory is bounded: 32 scenarios are in work at once, fewer on large graphs.
    Raises GraphError where shapes or values are wrong, or as `replay` does.

    >>> halves = replay_scenarios(graph, graph.rank, np.where(np.eye(ranks) == 1, 0.5, 1.0))
    """
    table = np.ascontiguousarray(factors, np.float64)
    group = fixed(factor_class, np.int32)
    watched = np.asarray(watch, np.int64).reshape(-1)
    _check(graph, group, table, watched)
    if order == "ready":
        return _one_by_one(graph, group, table, watched)
    if order != "recorded":
        raise GraphError(f"scenarios are replayed in recorded or ready order, not {order!r}")
    columns = columns_of(graph)
    scenarios, count = len(table), len(graph)
    makespans = np.zeros(scenarios, np.int64)
    starts, ends = np.empty((scenarios, len(watched)), np.int64), np.empty((scenarios, len(watched)), np.int64)
    width = int(min(max(1, _BLOCK_BYTES // (16 * max(count, 1))), _BLOCK, max(scenarios, 1)))
    start = np.empty((count if columns.relations & 1 or len(watched) else 0, width), np.int64)
    end = np.empty((count, width), np.int64)
    for first in range(0, scenarios, width):
        block = table[first : first + width]
        # The last block is filled up with its last scenario, so that all blocks run the same code.
        full = np.concatenate([block, np.repeat(block[-1:], width - len(block), axis=0)]).T.copy()
        latest = np.zeros(width, np.int64)
        if not _sweep_block(columns, group, full, start, end, latest):
            refuse(graph)
        chosen = slice(first, first + len(block))
        makespans[chosen] = latest[: len(block)]
        if len(watched):
            starts[chosen] = start[watched, : len(block)].T
            ends[chosen] = end[watched, : len(block)].T
    return ScenarioTimes(makespans, starts, ends)


def scaled_durations(duration_ns: NDArray[np.int64], factor: NDArray[np.float64]) -> NDArray[np.int64]:
    """`duration_ns` (n,) times `factor` (n,), in whole ns, half to even."""
    return np.rint(duration_ns * factor).astype(np.int64)


def _one_by_one(
    graph: Graph, group: NDArray[np.int32], table: NDArray[np.float64], watched: NDArray[np.int64]
) -> ScenarioTimes:
    makespans = np.zeros(len(table), np.int64)
    starts, ends = np.empty((len(table), len(watched)), np.int64), np.empty((len(table), len(watched)), np.int64)
    for number, factors in enumerate(table):
        durations = scaled_durations(graph.duration_ns, factors[group])
        schedule = replay_ready(graph.replace(duration_ns=durations))
        makespans[number] = schedule.makespan_ns
        starts[number], ends[number] = schedule.start_ns[watched], schedule.end_ns[watched]
    return ScenarioTimes(makespans, starts, ends)


def _check(graph: Graph, group: NDArray[np.int32], table: NDArray[np.float64], watched: NDArray[np.int64]) -> None:
    count = len(graph)
    if group.shape != (count,):
        raise GraphError(f"factor_class has shape {list(group.shape)}, expected a class for each of {count} ops")
    if table.ndim != 2:
        raise GraphError(f"factors have shape {list(table.shape)}, expected [scenarios, classes]")
    if count and not (group.min() >= 0 and group.max() < table.shape[1]):
        raise GraphError(f"factor_class names classes {group.min()} to {group.max()}, factors have {table.shape[1]}")
    if not np.all(np.isfinite(table)) or np.any(table < 0):
        raise GraphError("factors are finite and not negative")
    if count and graph.duration_ns.max() * max(1.0, float(table.max(initial=1.0))) > _EXACT_NS:
        raise GraphError(f"durations times factors stay below {_EXACT_NS} ns (104 days) in scenarios")
    if np.any((watched < 0) | (watched >= count)):
        raise GraphError(f"watched ops are 0 to {count - 1}")


@compiled(error_model="numpy")
def _sweep_block(
    columns: Any, group: Any, factors: Any, start: Any, end: Any, latest: Any
) -> Any:  # pragma: no cover - compiled
    """The recorded sweep on rows: every op holds the times of all scenarios of the block.

    `factors` (c, w), `start` (n or 0, w), `end` (n, w), `latest` (w,). False where an edge goes backward or a
    time is out of range.
    """
    pointer, pred, lag, relation = columns.pred_ptr, columns.pred, columns.lag_ns, columns.relation
    stream, duration, shared = columns.stream, columns.duration_ns, columns.shared
    width = len(latest)
    keeps_start = len(start) > 0
    free = np.zeros((len(shared), width), np.int64)
    begin, floor = np.empty(width, np.int64), np.empty(width, np.int64)
    bits = np.int64(0)
    last = np.int64(0)
    for op in range(len(duration)):
        first, last = last, pointer[op + 1]
        line = stream[op]
        for column in range(width):
            begin[column] = free[line, column]
        binds_end = False
        for place in range(first, last):
            before = np.uint64(pred[place])
            if before >= np.uint64(op):
                return False
            delay = lag[place]
            bits |= delay
            times = start[before] if relation[place] & 1 else end[before]
            if relation[place] & 2 == 0:
                for column in range(width):
                    begin[column] = max(begin[column], times[column] + delay)
                continue
            if not binds_end:
                binds_end = True
                floor[:] = 0
            for column in range(width):
                floor[column] = max(floor[column], times[column] + delay)
        length = np.float64(duration[op])
        bits |= duration[op]
        row, scale = end[op], factors[group[op]]
        if keeps_start:
            start[op, :] = begin
        for column in range(width):
            row[column] = begin[column] + np.int64(np.rint(length * scale[column]))
        if binds_end:
            for column in range(width):
                row[column] = max(row[column], floor[column])
        if shared[line] == 0:
            free[line, :] = row
        for column in range(width):
            latest[column] = max(latest[column], row[column])
            bits |= row[column]
    return np.uint64(bits) < np.uint64(TIME_LIMIT_NS)
