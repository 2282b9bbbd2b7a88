"""Scenarios: many what-ifs of one graph equal one replay each."""

import numpy as np
import pytest
from strategies import ALL_RELATIONS, START_RELATIONS, random_graph

from makespan.errors import GraphError
from makespan.graph import Relation
from makespan.simulator.orders import scenarios
from makespan.simulator.orders.scenarios import replay_scenarios, scaled_durations
from makespan.simulator.replay import replay

# Graphs with finish→start edges alone, with starts that count, with ends that are bound.
RELATIONS = ((Relation.FINISH_START,), START_RELATIONS, ALL_RELATIONS)


@pytest.mark.parametrize("order", ["recorded", "ready"])
def test_each_scenario_equals_a_replay_of_its_own(order):
    for seed in range(30):
        random = np.random.default_rng(seed)
        relations = START_RELATIONS if order == "ready" else RELATIONS[seed % 3]
        graph = random_graph(random, ops=60, shared_streams=1, relations=relations, longest_ns=1000)
        classes = random.integers(0, 4, len(graph)).astype(np.int32)
        factors = random.uniform(0, 3, (int(random.integers(1, 70)), 4))
        watch = random.integers(0, len(graph), 5)
        found = replay_scenarios(graph, classes, factors, order, watch)
        assert len(found) == len(factors)
        for number, row in enumerate(factors):
            alone = replay(graph, order, durations=scaled_durations(graph.duration_ns, row[classes]))
            assert found.makespan_ns[number] == alone.makespan_ns
            assert np.array_equal(found.start_ns[number], alone.start_ns[watch])
            assert np.array_equal(found.end_ns[number], alone.end_ns[watch])
        bare = replay_scenarios(graph, classes, factors, order)
        assert np.array_equal(bare.makespan_ns, found.makespan_ns) and bare.end_ns.shape == (len(factors), 0)


@pytest.mark.parametrize("order", ["recorded", "ready"])
def test_factor_one_is_the_plain_replay(order):
    graph = random_graph(5, ops=300, relations=START_RELATIONS, longest_ns=2**50)
    everything = np.arange(len(graph))
    found = replay_scenarios(graph, np.zeros(len(graph), np.int32), [[1.0]], order, everything)
    plain = replay(graph, order)
    assert np.array_equal(found.start_ns[0], plain.start_ns) and np.array_equal(found.end_ns[0], plain.end_ns)


def test_products_are_rounded_half_to_even():
    assert scaled_durations(np.array([1, 3, 5, 7]), np.array([0.5, 0.5, 0.5, 0.5])).tolist() == [0, 2, 2, 4]
    graph = random_graph(0, ops=1).replace(duration_ns=np.array([5]))
    found = replay_scenarios(graph, np.zeros(1, np.int32), [[0.5], [0.1], [0.3], [1.5]])
    assert found.makespan_ns.tolist() == [2, 0, 2, 8]


def test_blocks_shrink_on_large_graphs_and_give_the_same(monkeypatch):
    graph = random_graph(1, ops=200)
    classes = np.zeros(len(graph), np.int32)
    factors = np.linspace(0.5, 2, 45)[:, None]
    wide = replay_scenarios(graph, classes, factors)
    monkeypatch.setattr(scenarios, "_BLOCK_BYTES", 16 * 200 * 3)
    assert np.array_equal(replay_scenarios(graph, classes, factors).makespan_ns, wide.makespan_ns)
    monkeypatch.setattr(scenarios, "_BLOCK_BYTES", 1)
    assert np.array_equal(replay_scenarios(graph, classes, factors).makespan_ns, wide.makespan_ns)


def test_no_scenarios_give_no_results():
    graph = random_graph(1, ops=20)
    assert len(replay_scenarios(graph, np.zeros(20, np.int32), np.empty((0, 1)))) == 0


@pytest.mark.parametrize(
    ("classes", "factors", "extra", "text"),
    [
        (np.zeros(9, np.int32), [[1.0]], {}, r"factor_class has shape \[9\], expected a class for each of 10 ops"),
        (np.zeros(10, np.int32), [1.0], {}, r"factors have shape \[1\], expected \[scenarios, classes\]"),
        (np.full(10, 1, np.int32), [[1.0]], {}, "names classes 1 to 1, factors have 1"),
        (np.full(10, -1, np.int32), [[1.0]], {}, "names classes -1 to -1"),
        (np.zeros(10, np.int32), [[-1.0]], {}, "finite and not negative"),
        (np.zeros(10, np.int32), [[np.nan]], {}, "finite and not negative"),
        (np.zeros(10, np.int32), [[1e18]], {}, "104 days"),
        (np.zeros(10, np.int32), [[1.0]], {"order": "dpro"}, "recorded or ready order, not 'dpro'"),
        (np.zeros(10, np.int32), [[1.0]], {"watch": [10]}, "watched ops are 0 to 9"),
    ],
)
def test_wrong_scenarios_are_refused(classes, factors, extra, text):
    with pytest.raises(GraphError, match=text):
        replay_scenarios(random_graph(1, ops=10), classes, factors, **extra)


def test_a_backward_edge_is_refused():
    graph = random_graph(1, ops=10)
    backward = graph.replace(pred=np.full_like(graph.pred, 9))
    with pytest.raises(GraphError, match=r"waits on itself|lower to a higher"):
        replay_scenarios(backward, np.zeros(10, np.int32), [[1.0]])
