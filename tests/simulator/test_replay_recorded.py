"""Recorded order against networkx's longest path, its invariants, and its errors."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from strategies import START_RELATIONS, assemble_plain, graphs, random_graph

from makespan.errors import GraphError
from makespan.graph import Edges, Graph, Relation, StreamKind
from makespan.schedule import BY_DURATION, BY_NOTHING, BY_STREAM
from makespan.simulator.orders.bounds import check_path, path_length_ns
from makespan.simulator.orders.recorded import recorded_makespan
from makespan.simulator.replay import replay

DEVICE = [StreamKind.DEVICE]


def instants(graph: Graph) -> nx.DiGraph:
    """Every op as two instants; a weight is the least time between two instants."""
    net = nx.DiGraph()

    def least(before, after, time_ns):
        known = net.get_edge_data(before, after, {"weight": -1})["weight"]
        net.add_edge(before, after, weight=max(known, int(time_ns)))

    last_on = {}
    for op in range(len(graph)):
        least("zero", (op, "start"), 0)
        least((op, "start"), (op, "end"), graph.duration_ns[op])
        stream = graph.stream[op]
        if graph.streams[stream].kind != StreamKind.SHARED:
            if stream in last_on:
                least((last_on[stream], "end"), (op, "start"), 0)
            last_on[stream] = op
    for edge, op in enumerate(graph.edge_targets()):
        relation = graph.relation[edge]
        source = (graph.pred[edge], "start" if relation in (Relation.START_START, Relation.START_FINISH) else "end")
        target = (op, "start" if relation in START_RELATIONS else "end")
        least(source, target, graph.lag_ns[edge])
    return net


def test_all_times_are_longest_paths():
    for seed in range(300):
        random = np.random.default_rng(seed)
        graph = random_graph(random, ops=int(random.integers(1, 40)), shared_streams=int(random.integers(0, 2)))
        net = instants(graph)
        longest = {"zero": 0}
        for instant in nx.topological_sort(net):
            for _, after, least in net.out_edges(instant, data="weight"):
                longest[after] = max(longest.get(after, 0), longest[instant] + least)
        schedule = replay(graph)
        assert schedule.start_ns.tolist() == [longest[op, "start"] for op in range(len(graph))], seed
        assert schedule.end_ns.tolist() == [longest[op, "end"] for op in range(len(graph))], seed
        assert schedule.makespan_ns == nx.dag_longest_path_length(net) == recorded_makespan(graph)


@given(graphs())
def test_what_is_named_as_bound_sets_the_time(graph):
    schedule = replay(graph)
    start, end = schedule.start_ns, schedule.end_ns
    for op in range(len(graph)):
        edges = np.arange(graph.pred_ptr[op], graph.pred_ptr[op + 1])
        from_start = np.isin(graph.relation[edges], (Relation.START_START, Relation.START_FINISH))
        asked = np.where(from_start, start[graph.pred[edges]], end[graph.pred[edges]]) + graph.lag_ns[edges]
        binds_start = np.isin(graph.relation[edges], START_RELATIONS)
        exact = edges[binds_start & (asked == start[op])]
        if len(exact):
            assert schedule.bound_edge[op] == exact[0]
            assert schedule.bound_by[op] == graph.pred[exact[0]]
        elif schedule.bound_edge[op] == BY_STREAM:
            before = schedule.bound_by[op]
            assert graph.stream[before] == graph.stream[op] and end[before] == start[op]
        else:
            assert (schedule.bound_edge[op], schedule.bound_by[op], start[op]) == (BY_NOTHING, -1, 0)
        late = edges[~binds_start & (asked == end[op])]
        held = schedule.end_bound_edge is not None and end[op] > start[op] + graph.duration_ns[op]
        if schedule.end_bound_edge is not None:
            assert schedule.end_bound_edge[op] == (late[0] if held else BY_DURATION)
    assert (schedule.end_bound_edge is None) == (not np.any(graph.relation & 2))


@given(graphs())
def test_makespan_is_the_path_it_tells_and_covers_every_stream(graph):
    schedule = replay(graph)
    assert path_length_ns(schedule) == schedule.makespan_ns == schedule.end_ns.max()
    for number, stream in enumerate(graph.streams):
        if stream.kind != StreamKind.SHARED:
            assert schedule.makespan_ns >= graph.duration_ns[graph.stream == number].sum()


def test_longer_durations_never_end_anything_earlier():
    for seed in range(200):
        random = np.random.default_rng(seed)
        graph = random_graph(random, ops=50, shared_streams=1)
        more = graph.duration_ns + random.integers(0, 5, len(graph)) * (random.random(len(graph)) < 0.2)
        before, after = replay(graph), replay(graph, durations=more)
        assert np.all(after.start_ns >= before.start_ns) and np.all(after.end_ns >= before.end_ns)


def test_scaling_all_times_scales_the_schedule():
    for seed in range(100):
        graph = random_graph(seed, ops=60, shared_streams=1)
        scaled = graph.replace(duration_ns=graph.duration_ns * 7, lag_ns=graph.lag_ns * 7)
        before, after = replay(graph), replay(scaled)
        assert np.array_equal(after.start_ns, 7 * before.start_ns)
        assert np.array_equal(after.bound_edge, before.bound_edge)


def test_other_durations_leave_the_graph_alone_and_stand_in_the_schedule():
    graph = random_graph(1)
    mine = graph.duration_ns * 2
    schedule = replay(graph, durations=mine)
    mine[:] = 0
    assert np.array_equal(schedule.graph.duration_ns, graph.duration_ns * 2)
    assert np.array_equal(schedule.end_ns, replay(graph.replace(duration_ns=graph.duration_ns * 2)).end_ns)


@pytest.mark.parametrize("order", ["recorded", "ready", "dpro"])
def test_an_empty_graph_takes_no_time(order):
    graph = assemble_plain(np.empty(0, np.int64), DEVICE, np.empty(0, np.int64), Edges.concatenate([]))
    assert replay(graph, order).makespan_ns == 0


@pytest.mark.parametrize("order", ["recorded", "ready", "dpro"])
def test_a_cycle_is_printed(order):
    graph = assemble_plain(np.array([0, 1, 0]), DEVICE * 2, np.array([1, 1, 1]), Edges.of([0, 1], [1, 2]))
    cyclic = graph.replace(pred=np.array([2, 1], np.int32), pred_ptr=np.array([0, 0, 1, 2]))
    with pytest.raises(GraphError, match=r"waits on itself: .*('op 1'.* -> .*'op 2'|'op 2'.* -> .*'op 1')"):
        replay(cyclic, order)


@pytest.mark.parametrize("order", ["recorded", "ready", "dpro"])
def test_a_backward_edge_without_a_cycle_is_named(order):
    graph = assemble_plain(np.array([0, 0, 0]), DEVICE, np.array([1, 1, 1]), Edges.of([0], [1]))
    backward = graph.replace(pred=np.array([2], np.int32))
    with pytest.raises(GraphError, match=r"every edge goes from a lower to a higher op number.*2 -> 1"):
        replay(backward, order)


@pytest.mark.parametrize("order", ["recorded", "ready", "dpro"])
@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("stream", [0, 5, 0], "every stream exists"),
        ("stream", [0, -1, 0], "every stream exists"),
        ("duration_ns", [1, -1, 1], "durations are never negative"),
        ("lag_ns", [-4], "lags are never negative"),
        ("pred", [-7], "every predecessor exists"),
        ("pred", [1000000], "every predecessor exists"),
        ("pred_ptr", [0, 0, 9, 1], "pred_ptr"),
        ("pred_ptr", [0, 0, 1], "pred_ptr"),
        ("duration_ns", [2**62, 1, 1], "grow beyond"),
        ("duration_ns", [2**63 - 1, 2**63 - 1, 1], "grow beyond"),
        ("lag_ns", [2**62], "grow beyond"),
        ("lag_ns", [2**63 - 1], "grow beyond"),
    ],
)
def test_broken_graphs_are_refused(order, field, value, text):
    graph = assemble_plain(np.array([0, 0, 0]), DEVICE, np.array([1, 1, 1]), Edges.of([0], [1]))
    broken = graph.replace(**{field: np.array(value, getattr(graph, field).dtype)})
    with pytest.raises(GraphError, match=text):
        replay(broken, order)


def test_wrong_durations_and_orders_are_refused():
    graph = random_graph(0, ops=10)
    with pytest.raises(GraphError, match=r"durations are int64\[9\], expected whole ns for 10 ops"):
        replay(graph, durations=graph.duration_ns[1:])
    with pytest.raises(GraphError, match="durations are float64"):
        replay(graph, durations=graph.duration_ns * 0.5)
    with pytest.raises(GraphError, match="no replay order 'fifo', expected one of recorded, ready, contended, dpro"):
        replay(graph, "fifo")


def test_a_wrong_schedule_is_caught_by_its_path():
    schedule = replay(random_graph(3, ops=30))
    check_path(schedule)
    nothing = np.full(len(schedule.start_ns), BY_NOTHING, np.int32)
    with pytest.raises(GraphError, match="broken invariant: the makespan"):
        check_path(replace(schedule, bound_edge=nothing))
    late = schedule.end_ns + (np.arange(len(nothing)) == schedule.end_ns.argmin()) * 10**6
    with pytest.raises(GraphError, match="broken invariant: the makespan"):
        check_path(replace(schedule, end_ns=late, end_bound_edge=np.zeros(len(late), np.int32)))
