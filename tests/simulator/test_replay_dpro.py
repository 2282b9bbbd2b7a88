"""dPRO's rule: what is known of that replayer's results; where they are wrong is in test_dpro_defects."""

import numpy as np
import pytest
from dpro_graphs import two_tensors
from neutral_graphs import read_neutral_graph
from strategies import START_RELATIONS, assemble_plain, random_graph

from makespan.errors import GraphError
from makespan.graph import Edges, Graph, Relation, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.orders.bounds import path_length_ns
from makespan.simulator.orders.dpro_rule import replay_dpro
from makespan.simulator.replay import replay

DEVICE = StreamKind.DEVICE


def test_a_receive_may_start_with_its_send():
    edges = Edges.of([0], [1], [0], [Relation.START_START])
    graph = assemble_plain(np.array([0, 1]), [DEVICE] * 2, np.array([50, 60]), edges)
    assert replay(graph, "dpro").end_ns.tolist() == [50, 60]


@pytest.mark.parametrize(
    ("name", "receive_with_send", "milliseconds"),
    [
        ("g_12k", False, 158.135),
        ("g_12k", True, 161.017),
        ("g_101k", False, 297.536),
        ("g_101k", True, 297.451),
        ("g_172k", False, 275.681),
    ],
)
def test_neutral_graphs_have_the_makespans_that_dpro_reports(shared, name, receive_with_send, milliseconds):
    """The table of `dpro.md`; 161.017 and 297.451 (161 there) from an independent emulation of the rule."""
    graph = read_neutral_graph(shared / "data" / "graphs" / f"{name}.npz", receive_with_send)
    graph.verify()
    by_rule = replay_dpro(graph)
    assert round(by_rule.schedule.makespan_ns / 1e6, 3) == milliseconds
    assert by_rule.iteration_ns == by_rule.schedule.makespan_ns
    assert path_length_ns(by_rule.schedule) == by_rule.schedule.makespan_ns


def test_a_fusion_buffer_is_held_until_released():
    schedule = replay(two_tensors(((0, 1), (0, 1))), "dpro")
    graph = schedule.graph
    for rank in (0, 1):
        spans = []
        for tensor in (0, 1):
            own = (graph.stream == 2 * rank) & (graph.group == tensor)
            spans.append((schedule.start_ns[own].min(), schedule.end_ns[own].max()))
        spans.sort()
        assert spans[0][1] <= spans[1][0], "the tensors hold the buffer one after the other"


def test_a_buffer_that_is_never_released_is_told():
    graph = two_tensors(((0, 1), (0, 1)))
    hold = np.minimum(graph.attrs["fusion_buffer"], 1).astype(np.uint8)
    with pytest.raises(GraphError, match="waits for what nothing releases"):
        replay(graph.with_attrs(fusion_buffer=hold), "dpro")


def test_edges_that_bind_ends_are_refused():
    edges = Edges.of([0], [1], [0], [Relation.FINISH_FINISH])
    graph = assemble_plain(np.array([0, 1]), [DEVICE] * 2, np.array([5, 6]), edges)
    with pytest.raises(GraphError, match="knows no edges that bind an end"):
        replay(graph, "dpro")


def rule_in_plain_python(graph: Graph) -> list[int]:
    """Start times by the rule as `dpro.md` section 1.6 words it, with lists instead of heaps."""
    count = len(graph)
    clock, queues = [0] * len(graph.streams), [[] for _ in graph.streams]
    ready, start = [0] * count, [-1] * count
    waits = np.diff(graph.pred_ptr).tolist()
    target = graph.edge_targets()
    arrivals = 0

    def queue(op: int) -> None:
        nonlocal arrivals
        queues[graph.stream[op]].append((graph.priority[op], ready[op], arrivals, op))
        arrivals += 1

    for op in range(count):
        if waits[op] == 0:
            queue(op)
    while any(queues):
        line = min((number for number in range(len(queues)) if queues[number]), key=lambda number: clock[number])
        queues[line].sort()
        op = queues[line].pop(0)[3]
        start[op] = max(ready[op], clock[line])
        clock[line] = start[op] + int(graph.duration_ns[op])
        for edge in np.flatnonzero(graph.pred == op):
            moment = start[op] if graph.relation[edge] == Relation.START_START else clock[line]
            after = target[edge]
            ready[after] = max(ready[after], moment + int(graph.lag_ns[edge]))
            waits[after] -= 1
            if waits[after] == 0:
                queue(after)
    return start


def test_equals_the_rule_in_plain_python():
    longer = 0
    for seed in range(200):
        graph = random_graph(seed, ops=40, streams=5, shared_streams=1, relations=START_RELATIONS)
        schedule: Schedule = replay(graph, "dpro")
        assert schedule.start_ns.tolist() == rule_in_plain_python(graph), seed
        longer += schedule.makespan_ns > replay(graph.replace(streams=tuple(
            type(s)(s.rank, s.name, DEVICE) for s in graph.streams)), "ready").makespan_ns  # fmt: skip
    assert longer > 50, "the rule is no event simulation"
