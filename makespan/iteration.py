"""Iteration time: the one number that passes shrink, from a schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from makespan.schedule import Schedule


def step_lengths_ns(schedule: Schedule) -> dict[str, int]:
    """Of each step, by name, the length on its slowest rank; the whole schedule where no step is marked."""
    lengths: dict[str, int] = {}
    for step in schedule.graph.steps:
        length = int(schedule.end_ns[step.end_op] - schedule.start_ns[step.begin_op])
        lengths[step.name] = max(length, lengths.get(step.name, 0))
    return lengths or {"whole schedule": schedule.makespan_ns}


def iteration_ns(schedule: Schedule) -> int:
    """Median over the steps of the length on the slowest rank."""
    lengths: NDArray[np.int64] = np.array(list(step_lengths_ns(schedule).values()), np.int64)
    return int(np.median(lengths))
