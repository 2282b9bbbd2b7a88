"""Incremental replay: equal in every column to a full replay, with less work."""

from functools import partial

import numpy as np
import pytest
from strategies import ALL_RELATIONS, START_RELATIONS, assemble_plain, random_graph

from makespan.errors import GraphError
from makespan.graph import Edges, Graph, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.orders.fanout import FanOut
from makespan.simulator.orders.incremental import rereplay, rereplay_rewritten
from makespan.simulator.replay import replay

COLUMNS = ("start_ns", "end_ns", "bound_by", "bound_edge", "end_bound_edge")


def assert_same(found: Schedule, expected: Schedule, case: object) -> None:
    for name in COLUMNS:
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), (case, name)
        assert ours is None or (ours.dtype == theirs.dtype and np.array_equal(ours, theirs)), (case, name)
    assert found.order == expected.order


def random_case(seed: int) -> tuple[np.random.Generator, Graph]:
    random = np.random.default_rng(seed)
    shared = int(random.integers(0, 3))
    return random, random_graph(
        random,
        ops=int(random.integers(1, 60)),
        edges_per_op=float(random.uniform(0.5, 2)),
        streams=int(random.integers(1, 5)) + shared,
        shared_streams=shared,
        relations=ALL_RELATIONS if seed % 2 else START_RELATIONS,
        window=int(random.integers(1, 20)),
    )


def with_other_times(graph: Graph, random: np.random.Generator) -> tuple[Graph, list[int]]:
    """A few other durations and lags, and the ops that they concern."""
    changed = random.choice(len(graph), int(random.integers(1, 4)))
    duration_ns, lag_ns = graph.duration_ns.copy(), graph.lag_ns.copy()
    duration_ns[changed] = random.integers(0, 9, len(changed))
    ops = set(changed.tolist())
    if len(lag_ns) and random.random() < 0.5:
        edges = random.choice(len(lag_ns), 2)
        lag_ns[edges] = random.integers(0, 6, 2)
        ops |= set(graph.edge_targets()[edges].tolist())
    return graph.replace(duration_ns=duration_ns, lag_ns=lag_ns), sorted(ops)


def rewritten(graph: Graph, random: np.random.Generator) -> tuple[Graph, np.ndarray]:
    """The graph with ops and edges removed, added, moved to other streams and renumbered; and `old_of_new`."""
    count, few = len(graph), random.choice([0.0, 0.03, 0.1])
    kept = np.flatnonzero(random.random(count) >= few)
    added = int(random.integers(0, 4))
    place = np.concatenate([kept, random.uniform(0, count, added)])
    if random.random() < 0.3:
        place = place + random.uniform(0, 2, len(place))
    by_place = np.argsort(place, kind="stable")
    origin = np.concatenate([kept, np.full(added, -1)]).astype(np.int64)[by_place]
    number = np.full(count, -1)
    number[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
    edges = graph.edges()
    source, target = number[edges.source], number[edges.target]
    legal = (source >= 0) & (source < target) & (random.random(len(edges)) >= few)
    parts = [Edges.of(source[legal], target[legal], edges.lag_ns[legal], edges.relation[legal])]
    for _ in range(int(random.integers(0, 4)) if len(origin) > 1 else 0):
        ends = np.sort(random.choice(len(origin), 2, replace=False))
        relation = int(random.choice(ALL_RELATIONS if graph.relation.any() else START_RELATIONS))
        parts.append(Edges.of(ends[0], ends[1], int(random.integers(0, 5)), relation))

    def inherited(column: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.where((origin >= 0) & (random.random(len(origin)) >= few / 4), column[np.maximum(origin, 0)], new)

    kinds = [stream.kind for stream in graph.streams]
    after = assemble_plain(
        stream=inherited(graph.stream, random.integers(0, len(kinds), len(origin))),
        stream_kinds=[*kinds, StreamKind.DEVICE],
        duration_ns=inherited(graph.duration_ns, random.integers(0, 6, len(origin))),
        edges=Edges.concatenate(parts),
        priority=inherited(graph.priority, random.integers(0, 3, len(origin))),
    )
    return after, origin.astype(np.int32)


@pytest.mark.parametrize("order", ["recorded", "ready"])
def test_equals_a_full_replay_after_changes_and_rewrites(order):
    compared = 0
    for seed in range(500):
        random, graph = random_case(seed)
        try:
            before = replay(graph, order)
        except GraphError:
            continue
        changed, ops = with_other_times(graph, random)
        after, origin = rewritten(changed, random)
        listed = ops if random.random() < 0.8 else None
        forms = [
            (changed, partial(rereplay, before, changed, listed)),
            (after, partial(rereplay_rewritten, before, after, origin)),
        ]
        for graph, again in forms:
            try:
                expected = replay(graph, order)
            except GraphError:
                with pytest.raises(GraphError, match="never end"):
                    again()
                continue
            found, evaluated = again()
            assert found.graph is graph and 0 <= evaluated <= len(graph)
            assert_same(found, expected, seed)
            compared += 1
    assert compared >= 600


@pytest.mark.parametrize("order", ["recorded", "ready"])
def test_chains_of_changes_stay_equal(order):
    for seed in range(20):
        random = np.random.default_rng(seed)
        graph = random_graph(random, ops=150, streams=6, shared_streams=1, relations=START_RELATIONS)
        schedule = replay(graph, order)
        for _ in range(10):
            graph, ops = with_other_times(graph, random)
            schedule, _ = rereplay(schedule, graph, ops)
        assert_same(schedule, replay(graph, order), seed)


def chains() -> Graph:
    """100 chains of 100 ops, each on a stream of its own, numbered in turn."""
    ops = np.arange(10_000)
    return assemble_plain(ops % 100, [StreamKind.DEVICE] * 100, np.full(len(ops), 10), Edges.of(ops[:-100], ops[100:]))


def test_only_the_cone_is_evaluated():
    graph = chains()
    schedule, fan_out = replay(graph), FanOut.of(graph)
    duration_ns = graph.duration_ns.copy()
    duration_ns[5042] += 1
    slower = graph.replace(duration_ns=duration_ns)
    found, evaluated = rereplay(schedule, slower, [5042], fan_out)
    assert evaluated == 50, "op 5042 and what follows it in its chain"
    assert_same(found, replay(slower), "cone")
    assert rereplay(schedule, slower, [5042])[1] == rereplay(schedule, slower)[1] == 50
    assert rereplay(schedule, graph, [5042], fan_out)[1] == 1, "a change that changes nothing ends at once"
    assert rereplay(schedule, graph)[1] == 0


def test_slack_absorbs_a_change():
    """Op 2 waits for op 1 (20 ns), so that op 0 may take any time up to that."""
    graph = assemble_plain(
        np.array([0, 1, 2, 2]), [StreamKind.DEVICE] * 3, np.array([5, 20, 1, 1]), Edges.of([0, 1], [2, 2])
    )
    for first_ns, evaluated in ((15, 2), (20, 3), (21, 3)):
        changed = graph.replace(duration_ns=np.array([first_ns, 20, 1, 1]))
        found, count = rereplay(replay(graph), changed, [0])
        assert_same(found, replay(changed), first_ns)
        assert count == evaluated - (first_ns == 20), first_ns


def test_ready_goes_on_from_the_first_instant_that_matters():
    graph = chains()
    schedule = replay(graph, "ready")
    for row in (0, 50, 99):
        op = 100 * row + 7
        duration_ns = graph.duration_ns.copy()
        duration_ns[op] = 13
        slower = graph.replace(duration_ns=duration_ns)
        found, again = rereplay(schedule, slower, [op])
        # Nothing differs before the old end of the op; the 100 ops that end at that instant run again.
        assert again == 100 * (100 - row)
        assert_same(found, replay(slower, "ready"), row)
    assert rereplay(schedule, graph, [])[1] == 0


def test_a_rewrite_evaluates_what_it_touches():
    graph = chains()
    edges = graph.edges()
    for order, expected in (("recorded", 1 + 40), ("ready", 1 + 100 * 41)):
        # A new op of 4 ns before op 6042 of chain 42, on the chain's stream.
        origin = np.insert(np.arange(10_000), 6042, -1).astype(np.int32)
        number = np.flatnonzero(origin >= 0)
        more = assemble_plain(
            np.insert(graph.stream, 6042, 42),
            [StreamKind.DEVICE] * 100,
            np.insert(graph.duration_ns, 6042, 4),
            Edges.concatenate([Edges.of(number[edges.source], number[edges.target]), Edges.of(number[5942], 6042)]),
        )
        found, evaluated = rereplay_rewritten(replay(graph, order), more, origin)
        assert_same(found, replay(more, order), order)
        assert evaluated == expected


def test_other_structures_orders_and_numbers_are_refused():
    graph = random_graph(0, ops=20)
    schedule = replay(graph)
    with pytest.raises(GraphError, match="stream differs from the graph of the schedule; use rereplay_rewritten"):
        rereplay(schedule, graph.replace(stream=graph.stream[::-1].copy()))
    with pytest.raises(GraphError, match="changed ops are 0 to 19"):
        rereplay(schedule, graph, [20])
    with pytest.raises(GraphError, match=r"old_of_new has shape \[3\]"):
        rereplay_rewritten(schedule, graph, [0, 1, 2])
    with pytest.raises(GraphError, match="expected an op below 20"):
        rereplay_rewritten(schedule, graph, np.arange(1, 21))
    start_only = random_graph(0, ops=20, relations=START_RELATIONS)
    with pytest.raises(GraphError, match="dpro order can't go on from an earlier one"):
        rereplay(replay(start_only, "dpro"), start_only)


def test_a_fan_out_of_another_graph_is_not_used():
    graph, other = random_graph(1, ops=30), random_graph(2, ops=30)
    durations = graph.duration_ns + 1
    slower = graph.replace(duration_ns=durations)
    found, _ = rereplay(replay(graph), slower, fan_out=FanOut.of(other))
    assert_same(found, replay(slower), "fan-out")


def test_overflow_is_refused():
    graph = random_graph(1, ops=30, relations=START_RELATIONS)
    endless = graph.replace(duration_ns=np.where(np.arange(30) == 3, 2**62, graph.duration_ns))
    for order in ("recorded", "ready"):
        with pytest.raises(GraphError, match="grow beyond"):
            rereplay(replay(graph, order), endless)
