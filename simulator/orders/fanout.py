"""Fan-out: the edges and the stream order of a graph seen forward, from each op to those that wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.graph import Graph, Stream
from makespan.simulator.orders.columns import Columns, columns_of, refuse


@dataclass(frozen=True, slots=True, eq=False)
class FanOut:
    """What follows each of n ops; depends on edges and streams only, so one serves all durations and lags.

    Edges leaving op i: `edge[pointer[i]:pointer[i + 1]]` (int32 edge numbers, ascending) to the ops `successor`
    beside them (int32); `pointer` (n+1,) int64. `before` and `after` (n,) int32: the op before and after on the
    stream in recorded order, -1 for none and on shared streams, which order nothing. `pred`, `pred_ptr`,
    `stream` and `streams` are those of the graph it was made for.
    """

    pointer: NDArray[np.int64]
    successor: NDArray[np.int32]
    edge: NDArray[np.int32]
    before: NDArray[np.int32]
    after: NDArray[np.int32]
    pred: NDArray[np.int32]
    pred_ptr: NDArray[np.int64]
    stream: NDArray[np.int32]
    streams: tuple[Stream, ...]

    @staticmethod
    def of(graph: Graph) -> FanOut:
        """The fan-out of `graph`. Raises GraphError where an edge goes backward."""
        columns = columns_of(graph)
        pointer, successor, edge = edges_out(columns, graph)
        before, after = stream_neighbours(columns)
        return FanOut(pointer, successor, edge, before, after, graph.pred, graph.pred_ptr, graph.stream, graph.streams)

    def fits(self, graph: Graph) -> bool:
        """Whether `graph` has the edges and streams that this was made for; arrays are told by identity."""
        same_edges = self.pred is graph.pred and self.pred_ptr is graph.pred_ptr
        return same_edges and self.stream is graph.stream and self.streams == graph.streams


def stream_neighbours(columns: Columns) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """`before` and `after` of FanOut."""
    before, after = np.empty(len(columns.stream), np.int32), np.empty(len(columns.stream), np.int32)
    _stream_neighbours(columns.stream, columns.shared, before, after)
    return before, after


def edges_out(columns: Columns, graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """`pointer`, `successor` and `edge` of FanOut; raises GraphError where an edge of `graph` goes backward."""
    pointer = np.zeros(len(graph) + 1, np.int64)
    successor, edge = np.empty(len(columns.pred), np.int32), np.empty(len(columns.pred), np.int32)
    if not _turn_edges(columns.pred_ptr, columns.pred, pointer, successor, edge):
        refuse(graph)
    return pointer, successor, edge


@compiled(error_model="numpy")
def _turn_edges(
    pred_ptr: Any, pred: Any, pointer: Any, successor: Any, edge: Any
) -> Any:  # pragma: no cover - compiled
    """Counting sort of the edges by predecessor; False where one doesn't come from an earlier op."""
    count = len(pred_ptr) - 1
    for op in range(count):
        for place in range(pred_ptr[op], pred_ptr[op + 1]):
            if np.uint64(pred[place]) >= np.uint64(op):
                return False
            pointer[pred[place]] += 1
    total = np.int64(0)
    for op in range(count + 1):
        total += pointer[op]
        pointer[op] = total
    # Filled from the back, each run's pointer moves from its end to its start.
    for op in range(count - 1, -1, -1):
        for place in range(pred_ptr[op + 1] - 1, pred_ptr[op] - 1, -1):
            before = pred[place]
            pointer[before] -= 1
            successor[pointer[before]] = op
            edge[pointer[before]] = place
    return True


@compiled(error_model="numpy")
def _stream_neighbours(stream: Any, shared: Any, before: Any, after: Any) -> None:  # pragma: no cover - compiled
    latest = np.full(len(shared), -1, np.int32)
    for op in range(len(stream)):
        queue = stream[op]
        earlier = latest[queue]
        before[op], after[op] = earlier, -1
        if earlier >= 0:
            after[earlier] = op
        if shared[queue] == 0:
            latest[queue] = op
