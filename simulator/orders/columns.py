"""Columns: a graph's arrays as the compiled replays take them, and the error for a graph they can't take."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.errors import GraphError
from makespan.graph import Graph, StreamKind
from makespan.units import TIME_LIMIT_NS


class Columns(NamedTuple):
    """Read-only contiguous columns of one dtype each, so that every graph meets the same compiled code.

    As in Graph; `shared` (streams,) uint8 is 1 where a stream shares its rate among its ops; `relations` is
    the bitwise or of all relations: bit 0 set where some edge counts from a start, bit 1 where some edge
    binds an end.
    """

    pred_ptr: NDArray[np.int64]
    pred: NDArray[np.int32]
    lag_ns: NDArray[np.int64]
    relation: NDArray[np.uint8]
    stream: NDArray[np.int32]
    duration_ns: NDArray[np.int64]
    priority: NDArray[np.int32]
    shared: NDArray[np.uint8]
    relations: int


def columns_of(graph: Graph) -> Columns:
    """The columns of `graph`, after the checks without which a kernel could read beyond an array.

    Raises GraphError naming the broken invariant. That edges go forward is left to the kernels, which meet
    every edge anyway.
    """
    count, edges = len(graph.kind), len(graph.pred)
    pointer = graph.pred_ptr
    sound = (
        len(pointer) == count + 1
        and pointer[0] == 0
        and pointer[-1] == edges
        and len(graph.lag_ns) == len(graph.relation) == edges
        and len(graph.stream) == len(graph.duration_ns) == len(graph.priority) == count
        and bool(np.all(pointer[1:] >= pointer[:-1]))
        and (count == 0 or (graph.stream.min() >= 0 and graph.stream.max() < len(graph.streams)))
    )
    if not sound:
        refuse(graph)
    shared = np.fromiter((s.kind == StreamKind.SHARED for s in graph.streams), np.uint8, len(graph.streams))
    return Columns(
        pred_ptr=fixed(pointer, np.int64),
        pred=fixed(graph.pred, np.int32),
        lag_ns=fixed(graph.lag_ns, np.int64),
        relation=fixed(graph.relation, np.uint8),
        stream=fixed(graph.stream, np.int32),
        duration_ns=fixed(graph.duration_ns, np.int64),
        priority=fixed(graph.priority, np.int32),
        shared=fixed(shared, np.uint8),
        relations=int(np.bitwise_or.reduce(graph.relation)) if edges else 0,
    )


def refuse(graph: Graph) -> NoReturn:
    """Raise the GraphError that says why a kernel gave up on `graph`."""
    graph.verify()
    raise GraphError(f"the times of {graph!r} grow beyond {TIME_LIMIT_NS} ns (146 years); check its durations and lags")


def fixed(column: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A read-only contiguous view of `column`, or a copy where it has another layout or dtype.

    Kernels are compiled anew for every combination of these, so all that they are given goes through here.
    """
    fixed = np.ascontiguousarray(column, dtype).view()
    fixed.setflags(write=False)
    return fixed
