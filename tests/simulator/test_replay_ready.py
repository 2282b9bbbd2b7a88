"""Ready order against a brute-force event simulation, small cases by hand, its invariants and its deadlocks."""

import numpy as np
import pytest
from brute_force import Standstill, simulate_ready
from hypothesis import given, settings
from strategies import ALL_RELATIONS, START_RELATIONS, assemble_plain, graphs, random_graph

from makespan.errors import GraphError
from makespan.graph import Edges, Graph, Relation, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.orders.bounds import path_length_ns
from makespan.simulator.replay import replay

DEVICE, SHARED = StreamKind.DEVICE, StreamKind.SHARED


def random_case(seed: int, longest_ns: int = 8) -> Graph:
    random = np.random.default_rng(seed)
    shared = int(random.integers(0, 3))
    return random_graph(
        random,
        ops=int(random.integers(1, 45)),
        edges_per_op=float(random.uniform(0, 2)),
        streams=int(random.integers(1, 4)) + shared,
        shared_streams=shared,
        relations=ALL_RELATIONS if seed % 2 else START_RELATIONS,
        window=int(random.integers(1, 20)),
        longest_ns=longest_ns,
    )


def times(schedule: Schedule) -> tuple[list[int], list[int]]:
    return schedule.start_ns.tolist(), schedule.end_ns.tolist()


def eligible_ns(schedule: Schedule) -> np.ndarray:
    """(n,) the greatest start that the edges into each op ask for."""
    graph = schedule.graph
    binds = np.isin(graph.relation, START_RELATIONS)
    moment = np.where(graph.relation & 1, schedule.start_ns[graph.pred], schedule.end_ns[graph.pred]) + graph.lag_ns
    eligible = np.zeros(len(graph), np.int64)
    np.maximum.at(eligible, graph.edge_targets()[binds], moment[binds])
    return eligible


def test_equals_brute_force():
    equal = stuck = 0
    for seed in range(1200):
        graph = random_case(seed)
        try:
            expected = simulate_ready(graph)
        except Standstill:
            stuck += 1
            with pytest.raises(GraphError, match="never end in ready order"):
                replay(graph, "ready")
            continue
        assert times(replay(graph, "ready")) == expected, seed
        equal += 1
    assert equal >= 800 and stuck >= 50


@settings(max_examples=200)
@given(graphs(max_ops=9))
def test_equals_brute_force_on_whatever_hypothesis_finds(graph):
    try:
        expected = simulate_ready(graph)
    except Standstill:
        with pytest.raises(GraphError, match="never end"):
            replay(graph, "ready")
        return
    assert times(replay(graph, "ready")) == expected


def test_sharing_equals_exact_fractions():
    compared = 0
    for seed in range(0, 300, 2):
        graph = random_case(seed, longest_ns=10 ** (1 + seed % 6))
        if any(stream.kind == SHARED for stream in graph.streams):
            assert times(replay(graph, "ready")) == simulate_ready(graph, exact_sharing=True), seed
            compared += 1
    assert compared >= 80


def test_invariants_on_larger_graphs():
    for seed in range(40):
        graph = random_graph(
            seed, ops=400, streams=6, shared_streams=seed % 2, relations=START_RELATIONS, window=60, longest_ns=9
        )
        schedule = replay(graph, "ready")
        start, end = schedule.start_ns, schedule.end_ns
        assert path_length_ns(schedule) == schedule.makespan_ns == end.max()
        eligible = eligible_ns(schedule)
        for number, stream in enumerate(graph.streams):
            ops = np.flatnonzero(graph.stream == number)
            if stream.kind == SHARED:
                assert np.array_equal(start[ops], eligible[ops])
                assert np.all(end[ops] >= start[ops] + graph.duration_ns[ops])
                assert end[ops].max() >= start[ops].min() + graph.duration_ns[ops].sum() - 1
                continue
            ops = ops[np.lexsort((end[ops], start[ops]))]
            assert np.all(start[ops][1:] >= end[ops][:-1]), "one op at a time"
            assert schedule.makespan_ns >= graph.duration_ns[ops].sum()
            # Work conservation: while an op is eligible and waits, its stream is busy throughout.
            busy = np.concatenate([[0], np.cumsum(end[ops] - start[ops])])
            for op in ops:
                first, last = np.searchsorted(start[ops], [eligible[op], start[op]])
                running = max(0, end[ops][first - 1] - eligible[op]) if first else 0
                assert running + busy[last] - busy[first] == start[op] - eligible[op]


def test_makespan_is_at_least_the_longest_path():
    for seed in range(100):
        graph = random_case(2 * seed)
        own_streams = assemble_plain(np.arange(len(graph)), [DEVICE] * len(graph), graph.duration_ns, graph.edges())
        assert replay(graph, "ready").makespan_ns >= replay(own_streams).makespan_ns


def test_scaling_scales_the_schedule_without_sharing():
    for seed in range(60):
        graph = random_graph(seed, ops=60, relations=START_RELATIONS)
        scaled = graph.replace(duration_ns=graph.duration_ns * 5, lag_ns=graph.lag_ns * 5)
        assert np.array_equal(replay(scaled, "ready").start_ns, 5 * replay(graph, "ready").start_ns)


def test_recorded_order_of_a_ready_schedule_is_the_same_schedule():
    """Numbering ops in the order in which they ran makes both disciplines agree."""
    for seed in range(60):
        graph = random_graph(seed, ops=60, relations=START_RELATIONS)
        # Without ops of no length, starts tell the order on every stream.
        graph = graph.replace(duration_ns=graph.duration_ns + 1)
        schedule = replay(graph, "ready")
        order = np.argsort(schedule.start_ns, kind="stable")
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        edges = graph.edges()
        forward = number[edges.source] < number[edges.target]
        renumbered = assemble_plain(
            graph.stream[order],
            [stream.kind for stream in graph.streams],
            graph.duration_ns[order],
            Edges.of(
                number[edges.source][forward], number[edges.target][forward],
                edges.lag_ns[forward], edges.relation[forward],
            ),
        )  # fmt: skip
        assert np.array_equal(replay(renumbered).start_ns, schedule.start_ns[order])


def test_first_ready_runs_first_then_priority_then_number():
    stream = np.array([0, 0, 0, 0, 1])
    edges = Edges.of([4, 4], [1, 2], [0, 0])
    graph = assemble_plain(stream, [DEVICE] * 2, np.array([5, 1, 1, 1, 3]), edges, priority=np.array([0, 2, 1, 9, 0]))
    # Op 3 is eligible at 0 already, ops 1 and 2 at 3; op 0 was first by priority.
    starts = {graph.name_of(op): int(replay(graph, "ready").start_ns[op]) for op in range(5)}
    assert starts == {"op 0": 0, "op 3": 5, "op 2": 6, "op 1": 7, "op 4": 0}


def test_an_op_without_duration_frees_its_stream_in_the_next_round():
    # Stream 0: op 0 takes no time, then op 1 (eligible at 0) and op 2 (made eligible at 0 by op 0) are left.
    graph = assemble_plain(
        np.array([0, 0, 0]), [DEVICE], np.array([0, 4, 4]), Edges.of([0], [2]), priority=np.array([0, 1, 0])
    )
    # Both became eligible at 0 when the second round dispatches, so priority decides, not the round.
    assert replay(graph, "ready").start_ns.tolist() == [0, 4, 0]


def test_an_end_constraint_holds_the_stream():
    graph = assemble_plain(
        np.array([1, 0, 0]), [DEVICE] * 2, np.array([10, 2, 1]), Edges.of([0], [1], [3], Relation.FINISH_FINISH)
    )
    schedule = replay(graph, "ready")
    assert times(schedule) == ([0, 0, 13], [10, 13, 14])
    assert schedule.end_bound_edge is not None and schedule.end_bound_edge.tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    ("durations", "starts", "ends"),
    [
        ([10, 10, 10], [0, 0, 0], [30, 30, 30]),
        ([10, 4, 0], [0, 0, 0], [14, 8, 0]),
        ([7, 7, 7], [0, 3, 5], [14, 20, 21]),
        ([1, 1, 1], [0, 0, 1], [3, 3, 4]),
    ],
)
def test_sharing_by_hand(durations, starts, ends):
    """Three transfers on one link; the delays come from ops on streams of their own.

    Third case: at 3, 4 of the first are left; at 5 it is 3, 6 of the second and 7 of the third; in thirds the first
    is done at 14, with 3 and 4 left; in halves the second at 20, the last ns alone. Fourth case: two halves of
    1 ns are left at 1, one and a half ns in thirds; the third op then lacks a third of a ns until 4.
    """
    graph = assemble_plain(
        np.array([1, 2, 3, 0, 0, 0]),
        [SHARED, DEVICE, DEVICE, DEVICE],
        np.array([*starts, *durations]),
        Edges.of([0, 1, 2], [3, 4, 5]),
    )
    assert replay(graph, "ready").start_ns[3:].tolist() == starts
    assert replay(graph, "ready").end_ns[3:].tolist() == ends


def test_an_op_that_only_waits_for_its_end_takes_no_share():
    # Op 1 needs 5 ns on the link but may end only after op 0; op 2 has the link alone from 10 on.
    graph = assemble_plain(
        np.array([0, 1, 1]),
        [DEVICE, SHARED],
        np.array([100, 5, 20]),
        Edges.of([0], [1], [0], Relation.FINISH_FINISH),
    )
    assert replay(graph, "ready").end_ns.tolist() == [100, 100, 25]


def test_many_ops_of_one_instant_with_priorities():
    """The queue of one instant is a heap: 30,000 ops that become eligible together, in random priority."""
    random = np.random.default_rng(0)
    count = 30_000
    priority = np.concatenate([[0], random.permutation(count)])
    graph = assemble_plain(
        np.zeros(count + 1, np.int64),
        [DEVICE],
        np.ones(count + 1, np.int64),
        Edges.of(np.zeros(count), np.arange(1, count + 1)),
        priority=priority,
    )
    assert np.array_equal(replay(graph, "ready").start_ns[1:], priority[1:] + 1)


def test_a_wait_for_a_held_stream_is_part_of_the_cycle():
    """Op 2 starts at 0 and holds stream 0 until op 1 ends, which needs stream 0."""
    graph = assemble_plain(
        np.array([1, 0, 0]),
        [DEVICE] * 2,
        np.array([5, 1, 1]),
        Edges.of([0, 1], [1, 2], [0, 0], [Relation.FINISH_START, Relation.FINISH_FINISH]),
    )
    with pytest.raises(GraphError) as error:
        replay(graph, "ready")
    assert "2 of 3 ops never end in ready order" in str(error.value)
    told = str(error.value).split(": ", 1)[1]
    assert told.count("'op 1'") + told.count("'op 2'") == 3 and "'op 0'" not in told
    assert replay(graph).makespan_ns == 7


def test_graham_anomaly():
    """A shorter op can make the whole longer: op 0 without duration lets op 1 tie with op 2, which op 3 waits for."""
    slow = assemble_plain(np.array([0, 0, 0, 1]), [DEVICE] * 2, np.array([1, 4, 3, 3]), Edges.of([0, 2], [1, 3]))
    fast = slow.replace(duration_ns=np.array([0, 4, 3, 3]))
    assert [replay(graph, "ready").makespan_ns for graph in (slow, fast)] == [8, 10]
    assert [replay(graph, "recorded").makespan_ns for graph in (slow, fast)] == [11, 10]
