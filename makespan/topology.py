"""Topological numbering of large graphs, and the cycle that prevents it."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled


def topological_order(
    count: int, source: NDArray[np.int32], target: NDArray[np.int32], key_ns: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Op numbers in topological order, smallest `key_ns` first among the free ones, ties by op number.

    `source`, `target` (m,) int32. Shorter than `count` where a cycle keeps ops from ever being free.
    """
    order = np.argsort(key_ns, kind="stable").astype(np.int32)
    position = np.empty(count, np.int32)
    position[order] = np.arange(count, dtype=np.int32)
    if np.all(position[source] < position[target]):
        return order
    by_source = np.argsort(source, kind="stable")
    pointer = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=count), out=pointer[1:])
    waiting = np.bincount(target, minlength=count).astype(np.int32)
    return order[_kahn(pointer, position[target[by_source]], waiting, order)]


def find_cycle(pred_ptr: NDArray[np.int64], pred: NDArray[np.int32]) -> NDArray[np.int32]:
    """The ops of one cycle in waiting order (each waits for the one before it), empty where there is none."""
    return _cycle(pred_ptr, pred)


@compiled()
def _kahn(pointer: Any, target_position: Any, waiting: Any, order: Any) -> Any:  # pragma: no cover - compiled
    """Kahn's algorithm over positions in key order, so that the heap holds plain integers."""
    count = len(order)
    free = [np.int64(0) for _ in range(0)]
    for position in range(count):
        if waiting[order[position]] == 0:
            free.append(np.int64(position))
    heapq.heapify(free)
    done = np.empty(count, np.int64)
    found = 0
    while len(free) > 0:
        position = heapq.heappop(free)
        done[found] = position
        found += 1
        op = order[position]
        for place in range(pointer[op], pointer[op + 1]):
            following = order[target_position[place]]
            waiting[following] -= 1
            if waiting[following] == 0:
                heapq.heappush(free, np.int64(target_position[place]))
    return done[:found]


@compiled()
def _cycle(pred_ptr: Any, pred: Any) -> Any:  # pragma: no cover - compiled
    """Depth-first search along predecessors with an explicit stack."""
    count = len(pred_ptr) - 1
    state = np.zeros(count, np.uint8)
    place = pred_ptr[:count].copy()
    stack = np.empty(count + 1, np.int32)
    for root in range(count):
        if state[root] != 0:
            continue
        depth = 0
        stack[0] = root
        state[root] = 1
        while depth >= 0:
            op = stack[depth]
            if place[op] == pred_ptr[op + 1]:
                state[op] = 2
                depth -= 1
                continue
            before = pred[place[op]]
            place[op] += 1
            if state[before] == 1:
                first = depth
                while stack[first] != before:
                    first -= 1
                return stack[first : depth + 1][::-1].copy()
            if state[before] == 0:
                depth += 1
                stack[depth] = before
                state[before] = 1
    return np.empty(0, np.int32)
