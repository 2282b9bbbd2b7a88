"""Heaps: the two queues of an event simulation, of events by time and of eligible ops by who comes first."""

from __future__ import annotations

from typing import Any

import numpy as np

from makespan.compiled import compiled


@compiled(error_model="numpy")
def push_event(times: Any, codes: Any, size: Any, time: Any, code: Any) -> Any:  # pragma: no cover - compiled
    """Add (`time`, `code`) to the four-ary heap in the first `size` places; its new size."""
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 2
        if times[parent] <= time:
            break
        times[hole], codes[hole] = times[parent], codes[parent]
        hole = parent
    times[hole], codes[hole] = time, code
    return size + 1


@compiled(error_model="numpy")
def pop_event(times: Any, codes: Any, size: Any) -> Any:  # pragma: no cover - compiled
    """Remove the event in place 0, the earliest; the new size. Events of one instant have no order."""
    size -= 1
    time, code = times[size], codes[size]
    hole = np.int64(0)
    while True:
        child = 4 * hole + 1
        if child >= size:
            break
        smallest = child
        if child + 3 < size:
            # Sums of comparisons instead of branches, which nobody could predict.
            left = child + np.int64(times[child + 1] < times[child])
            right = child + 2 + np.int64(times[child + 3] < times[child + 2])
            smallest = left + (right - left) * np.int64(times[right] < times[left])
        else:
            for other in range(child + 1, size):
                if times[other] < times[smallest]:
                    smallest = other
        if times[smallest] >= time:
            break
        times[hole], codes[hole] = times[smallest], codes[smallest]
        hole = smallest
    times[hole], codes[hole] = time, code
    return size


@compiled(error_model="numpy")
def goes_first(op: Any, other: Any, first: Any, second: Any) -> Any:  # pragma: no cover - compiled
    """Whether `op` comes before `other` by the columns `first`, then `second`, then op number."""
    if first[op] != first[other]:
        return first[op] < first[other]
    if second[op] != second[other]:
        return second[op] < second[other]
    return op < other


@compiled(error_model="numpy")
def push_op(heap: Any, offset: Any, size: Any, op: Any, first: Any, second: Any) -> Any:  # pragma: no cover - compiled
    """Add `op` to the binary heap in the `size` places from `offset`; its new size."""
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 1
        if not goes_first(op, heap[offset + parent], first, second):
            break
        heap[offset + hole] = heap[offset + parent]
        hole = parent
    heap[offset + hole] = op
    return size + 1


@compiled(error_model="numpy")
def pop_op(heap: Any, offset: Any, size: Any, first: Any, second: Any) -> Any:  # pragma: no cover - compiled
    """Remove the op in place `offset`, the first; the new size."""
    size -= 1
    op = heap[offset + size]
    hole = np.int64(0)
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        if child + 1 < size and goes_first(heap[offset + child + 1], heap[offset + child], first, second):
            child += 1
        if not goes_first(heap[offset + child], op, first, second):
            break
        heap[offset + hole] = heap[offset + child]
        hole = child
    heap[offset + hole] = op
    return size
