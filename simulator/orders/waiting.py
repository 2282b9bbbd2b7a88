"""Waiting: the eligible ops of each stream, first come first served, ties by priority and op number.

Simulated time only moves forward, so ops queue in the order of the instants at which they became eligible; only
among those of one instant must the first be sought. Each stream owns a run of `queue`: from `head` to `open_at`
the ops stand in their final order, from `open_at` to `tail` those of one instant, which more may still join, are a
heap by (priority, op number). The heap is put in order when an op of a later instant comes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from makespan.compiled import compiled
from makespan.simulator.orders.heaps import pop_op, push_op


@compiled(error_model="numpy")
def touch(line: Any, lines: Any, touched: Any, count: Any) -> Any:  # pragma: no cover - compiled
    """Note in the list `touched` of `count` streams that something changed on `line`; the new count."""
    if lines[line].touched:
        return count
    lines[line].touched = 1
    touched[count] = line
    return count + 1


@compiled(error_model="numpy")
def append(op: Any, line: Any, queue: Any, lines: Any, ops: Any) -> None:  # pragma: no cover - compiled
    """Queue `op` on stream `line`; which becomes eligible no earlier than any op queued there."""
    first, size = lines[line].open_at, lines[line].tail - lines[line].open_at
    if size > 0 and ops[queue[first]].start == ops[op].start:
        push_op(queue, first, size, np.int32(op), ops.priority, ops.priority)
    else:
        if size > 1:
            _sort_heap(queue, first, size, ops)
        lines[line].open_at = lines[line].tail
        queue[lines[line].tail] = op
    lines[line].tail += 1


@compiled(error_model="numpy")
def take_first(line: Any, queue: Any, lines: Any, ops: Any) -> Any:  # pragma: no cover - compiled
    """Remove and return the first op of stream `line`, which has one."""
    op = np.int64(queue[lines[line].head])
    if lines[line].head < lines[line].open_at:
        lines[line].head += 1
    else:
        pop_op(queue, lines[line].open_at, lines[line].tail - lines[line].open_at, ops.priority, ops.priority)
        lines[line].tail -= 1
    return op


@compiled(error_model="numpy")
def _sort_heap(queue: Any, first: Any, size: Any, ops: Any) -> None:  # pragma: no cover - compiled
    """Turn the heap in the `size` places from `first` into ascending order."""
    for left in range(size, 1, -1):
        op = queue[first]
        pop_op(queue, first, left, ops.priority, ops.priority)
        queue[first + left - 1] = op
    for place in range(size // 2):
        other = first + size - 1 - place
        queue[first + place], queue[other] = queue[other], queue[first + place]
