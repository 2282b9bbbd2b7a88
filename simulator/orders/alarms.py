"""Alarms: one instant for each stream, which may be put off or brought forward; the earliest is always at hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.units import TIME_LIMIT_NS


class Alarms(NamedTuple):
    """The alarms of s streams (at least one): stream i's is at `due[i]` (s,) int64 ns, TIME_LIMIT_NS for never.

    `heap` (s,) int32 are all streams as a binary heap by `due`, so that `heap[0]` is the one whose alarm comes
    first; `place` (s,) int32 is where each stands in it.
    """

    due: NDArray[np.int64]
    heap: NDArray[np.int32]
    place: NDArray[np.int32]


def silent_alarms(streams: int) -> Alarms:
    """The alarms of `streams` streams, none set; of one stream where there are none, so that `heap[0]` exists."""
    count = max(streams, 1)
    return Alarms(
        np.full(count, TIME_LIMIT_NS, np.int64), np.arange(count, dtype=np.int32), np.arange(count, dtype=np.int32)
    )


@compiled("numpy")
def set_alarm(line: Any, time: Any, alarms: Any) -> None:  # pragma: no cover - compiled
    """Let the alarm of stream `line` be at `time`, whatever it was before."""
    due, heap, place = alarms.due, alarms.heap, alarms.place
    hole, count = np.int64(place[line]), len(heap)
    due[line] = time
    while hole > 0:
        parent = (hole - 1) >> 1
        if due[heap[parent]] <= time:
            break
        heap[hole] = heap[parent]
        place[heap[hole]] = hole
        hole = parent
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        if child + 1 < count and due[heap[child + 1]] < due[heap[child]]:
            child += 1
        if due[heap[child]] >= time:
            break
        heap[hole] = heap[child]
        place[heap[hole]] = hole
        hole = child
    heap[hole], place[line] = line, hole
