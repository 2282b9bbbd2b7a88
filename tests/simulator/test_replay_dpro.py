"""dPRO's rule: what is known of that replayer's results, and where they differ from an event simulation."""

import numpy as np
import pytest
from neutral_graphs import read_neutral_graph
from strategies import START_RELATIONS, assemble_plain, random_graph

from makespan.errors import GraphError
from makespan.graph import Edges, Graph, Relation, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.orders.bounds import path_length_ns
from makespan.simulator.orders.dpro_rule import replay_dpro
from makespan.simulator.replay import replay

DEVICE = StreamKind.DEVICE
BACKWARD, UPDATE, OTHER = 2, 3, 100


def compute(stream: list[int], duration_ns: list[int], edges: list[tuple[int, int]], priority: list[int]) -> Graph:
    source, target = np.array(edges, np.int64).reshape(-1, 2).T
    kinds = [DEVICE] * (max(stream) + 1)
    return assemble_plain(np.array(stream), kinds, np.array(duration_ns), Edges.of(source, target), np.array(priority))


def test_a_later_ready_op_overtakes():
    """Of streams with clock 0 the first goes first: 0 queues op 1 (ready at 100) on stream 1, which runs it before
    stream 2 has queued op 3 (ready at 10).
    """
    graph = compute([0, 1, 2, 1], [100, 10, 10, 60], [(0, 1), (2, 3)], [OTHER] * 4)
    assert replay(graph, "dpro").makespan_ns == 170
    assert replay(graph, "ready").makespan_ns == 110


def test_a_better_class_is_waited_for():
    graph = compute([0, 1, 1], [100, 10, 40], [(0, 1)], [BACKWARD, BACKWARD, UPDATE])
    assert replay(graph, "dpro").makespan_ns == 150
    assert replay(graph, "ready").makespan_ns == 110


def test_iteration_time_is_the_end_of_the_op_executed_last():
    graph = compute([0, 1, 0, 0], [100, 1000, 200, 10], [(0, 1), (0, 2), (2, 3)], [OTHER] * 4)
    by_rule = replay_dpro(graph.replace(rank=np.zeros(4, np.int32)))
    assert by_rule.iteration_ns == 310
    assert by_rule.schedule.makespan_ns == 1100
    assert [graph.name_of(op) for op in by_rule.executed] == ["op 0", "op 1", "op 2", "op 3"]
    # The long op on a rank of its own counts again.
    assert replay_dpro(graph).iteration_ns == 1100


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


def two_tensors(order_of_ranks: tuple[tuple[int, int], tuple[int, int]]) -> Graph:
    """Two ranks reduce tensors 0 and 1 over a fusion buffer each; queue, exchange, copy out.

    A rank queues its tensors in the order given. Streams: buffer and link of each rank.
    """
    stream, group, hold, edges = [], [], [], []
    op = {}
    for rank, tensors in enumerate(order_of_ranks):
        for tensor in tensors:
            for part, (line, holds) in {"queue": (0, 1), "send": (1, 0), "out": (0, 2)}.items():
                op[rank, tensor, part] = len(stream)
                stream.append(2 * rank + line)
                group.append(tensor)
                hold.append(holds)
    for rank in (0, 1):
        for tensor in (0, 1):
            edges.append((op[rank, tensor, "queue"], op[rank, tensor, "send"]))
            edges += [(op[other, tensor, "send"], op[rank, tensor, "out"]) for other in (0, 1)]
    source, target = np.array(edges).T
    given = np.array([stream, group, hold])
    kinds = [DEVICE, StreamKind.LINK] * 2
    graph = assemble_plain(given[0], kinds, np.full(len(stream), 10), Edges.of(source, target))
    new = np.array([int(graph.name_of(number).split()[1]) for number in range(len(graph))])
    return graph.replace(group=given[1][new].astype(np.int32)).with_attrs(fusion_buffer=given[2][new].astype(np.uint8))


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


def test_opposite_tensor_orders_are_a_deadlock_and_said_so():
    with pytest.raises(
        GraphError, match=r"8 of 12 ops never end in dpro order.*each of these waits for the one before"
    ):
        replay(two_tensors(((0, 1), (1, 0))), "dpro")


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
