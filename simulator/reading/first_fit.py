"""First fit: the compiled half of `crossing_lanes`."""

from __future__ import annotations

from typing import Any

import numpy as np

from makespan.compiled import compiled


@compiled()
def first_fit(lane: Any, start_ns: Any, end_ns: Any, nesting: Any) -> Any:  # pragma: no cover - compiled
    """The first place of the lane on which each event fits; open events of a place are a linked stack."""
    count = len(lane)
    place_of = np.zeros(count, np.int64)
    top = np.full(count, -1, np.int64)
    below = np.full(count, -1, np.int64)
    used = 0
    for event in range(count):
        if event > 0 and lane[event] != lane[event - 1]:
            used = 0
        place = 0
        while place < used:
            while top[place] >= 0 and end_ns[top[place]] <= start_ns[event]:
                top[place] = below[top[place]]
            if top[place] < 0 or (nesting and end_ns[event] <= end_ns[top[place]]):
                break
            place += 1
        if place == used:
            top[place] = -1
            used += 1
        below[event] = top[place]
        top[place] = event
        place_of[event] = place
    return place_of
