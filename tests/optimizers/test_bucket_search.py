"""Cuts: the dynamic programme against all cuts, DDP's own grouping, and a search that only gets better."""

from itertools import combinations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from makespan.optimizers.bucketing.search import Cut, capped_cut, fewest_exposed, improve
from makespan.protocols import no_progress


def all_cuts(count: int) -> list[Cut]:
    """Every way to cut `count` gradients."""
    return [(*inner, count) for size in range(count) for inner in combinations(range(1, count), size)]


def last_end(cut: Cut, ready: list[int], cost: dict[tuple[int, int], int]) -> int:
    """When the last bucket is reduced, by its plain definition."""
    end = begin = 0
    for place in cut:
        end = max(end, ready[place - 1]) + cost[begin, place]
        begin = place
    return end


gradients = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=8)


@given(gradients, st.integers(0, 60), st.integers(0, 3))
def test_the_dynamic_programme_finds_the_best_of_all_cuts(
    pairs: list[tuple[int, int]], latency: int, per_byte: int
) -> None:
    ready = np.cumsum([wait for wait, _ in pairs])
    sizes = [size for _, size in pairs]
    cost = {(i, j): latency + per_byte * sum(sizes[i:j]) for j in range(1, len(pairs) + 1) for i in range(j)}
    cut, end = fewest_exposed(ready, lambda begin, until: cost[begin, until])
    assert end == last_end(cut, ready.tolist(), cost)
    assert end == min(last_end(other, ready.tolist(), cost) for other in all_cuts(len(pairs)))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_caps_cut_as_ddp_does(elements: list[int], caps: list[int]) -> None:
    tensors = [torch.empty(count) for count in elements]
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [4 * cap for cap in caps])
    formed = sorted(buckets)
    cut = capped_cut([4 * count for count in elements], [4 * cap for cap in caps])
    assert [list(range(begin, end)) for begin, end in zip((0, *cut[:-1]), cut, strict=True)] == formed


def test_exact_bytes_as_caps_give_any_cut_back() -> None:
    sizes = [40, 8, 16, 4, 4, 100]
    for cut in all_cuts(len(sizes)):
        caps = [sum(sizes[begin:end]) for begin, end in zip((0, *cut[:-1]), cut, strict=True)]
        assert capped_cut(sizes, caps) == cut


@pytest.mark.parametrize("seed", range(5))
def test_a_search_never_loses_what_it_began_with(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = {cut: int(value) for cut, value in zip(all_cuts(7), generator.integers(100, 1000, 64), strict=True)}
    named = {"one": (7,), "each": tuple(range(1, 8))}

    def search(limit: int = 1000) -> tuple[Cut, int, int]:
        found = improve(named, values.__getitem__, [4] * 7, seed=seed, progress=no_progress, limit=limit)
        assert found.named_ns == {name: values[cut] for name, cut in named.items()}
        return found.cut, found.iteration_ns, found.evaluations

    cut, best, evaluations = search()
    assert best == values[cut] <= min(values[cut] for cut in named.values())
    assert (cut, best, evaluations) == search()
    assert search(limit=5)[2] <= 5
    # Of the cuts one bucket end away none is better.
    for place in range(1, 7):
        inner = set(cut[:-1]) ^ {place}
        if place in cut[:-1]:
            assert values[(*sorted(inner), 7)] >= best
