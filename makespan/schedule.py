"""Schedule: when each op of a graph starts and ends in simulated time, and what made it wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import Graph

BY_STREAM: Final = -1
"""In `bound_edge`: the op waited for its stream; `bound_by` is the op before it there."""
BY_NOTHING: Final = -2
"""In `bound_edge`: the op started at time zero; `bound_by` is -1."""
BY_DURATION: Final = -1
"""In `end_bound_edge`: the op ended because its duration was over."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The result of a replay of `graph` (n ops).

    `start_ns`, `end_ns` (n,) int64. `bound_by` (n,) int32 is the op that set the start, -1 none;
    `bound_edge` (n,) int32 the edge through which it did, or BY_STREAM or BY_NOTHING. `end_bound_edge` (n,)
    int32 or None: the edge that held the end beyond start + duration, or BY_DURATION; None where the graph
    has no edge that binds an end. `order` is the discipline: "recorded", "ready", "contended" or "dpro".
    """

    graph: Graph
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    bound_by: NDArray[np.int32]
    bound_edge: NDArray[np.int32]
    order: str
    end_bound_edge: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        for column in (self.start_ns, self.end_ns, self.bound_by, self.bound_edge, self.end_bound_edge):
            if column is not None:
                column.setflags(write=False)

    def __repr__(self) -> str:
        return f"Schedule({self.makespan_ns / 1e6:.3f} ms, {len(self.start_ns):,} ops, order={self.order!r})"

    @property
    def makespan_ns(self) -> int:
        """Latest end; time zero is the start of the schedule."""
        return int(self.end_ns.max()) if len(self.end_ns) else 0
