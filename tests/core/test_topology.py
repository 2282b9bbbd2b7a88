"""Topological numbering against Kahn's algorithm in plain Python, and cycles that really are ones."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from makespan.topology import find_cycle, topological_order

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20)


def kahn(count: int, edges: list[tuple[int, int]], key: list[int]) -> list[int]:
    """Smallest key first among the free, ties by number."""
    waiting = [0] * count
    for _, target in edges:
        waiting[target] += 1
    free = [(key[op], op) for op in range(count) if not waiting[op]]
    heapq.heapify(free)
    done: list[int] = []
    while free:
        _, op = heapq.heappop(free)
        done.append(op)
        for source, target in edges:
            if source == op:
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(free, (key[target], target))
    return done


def arrays(edges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int32).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@given(count=st.integers(1, 8), edges=EDGES, key=st.lists(st.integers(-3, 3), min_size=8, max_size=8))
def test_the_order_is_kahns(count: int, edges: list[tuple[int, int]], key: list[int]) -> None:
    edges = [(source % count, target % count) for source, target in edges]
    order = topological_order(count, *arrays(edges), np.array(key[:count], np.int64))
    assert list(order) == kahn(count, edges, key)


@given(count=st.integers(0, 8), edges=EDGES)
def test_a_cycle_is_found_where_there_is_one(count: int, edges: list[tuple[int, int]]) -> None:
    edges = [(source % count, target % count) for source, target in edges] if count else []
    source, target = arrays(edges)
    by_target = np.argsort(target, kind="stable")
    pointer = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=count))]).astype(np.int64)
    cycle = list(find_cycle(pointer, source[by_target]))
    acyclic = len(topological_order(count, source, target, np.zeros(count, np.int64))) == count
    assert (not cycle) == acyclic
    assert len(set(cycle)) == len(cycle)
    for before, after in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert (before, after) in edges, "each op waits for the one before it"


def test_a_cycle_a_million_ops_long_needs_no_recursion() -> None:
    count = 1_000_000
    pointer = np.arange(count + 1, dtype=np.int64)
    pred = np.roll(np.arange(count, dtype=np.int32), 1)
    assert len(find_cycle(pointer, pred)) == count
