"""The defects of dPRO's replayer (`dpro.md`, section 3): its rule shows each where that is its rule, ours do not.

Numbers are those measured on the unmodified tool; microseconds there are nanoseconds here.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from dpro_graphs import BACKWARD, DEVICE, FORWARD, OTHER, UPDATE, compute, two_tensors
from neutral_graphs import read_neutral_graph
from small_clusters import collective_graph, mesh, star
from strategies import assemble_plain, random_graph

from makespan.errors import GraphError
from makespan.graph import Edges, Graph, OpKind, Relation
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.expansion.expand import expand
from makespan.simulator.orders.dpro_rule import DproReplay, replay_dpro
from makespan.simulator.replay import replay
from makespan.simulator.training.job import GradientExchange, Operator, RankWork, TrainingJob
from makespan.simulator.training.step_graph import training_graph

# 1. Not a discrete-event simulation.


def test_a_later_ready_op_overtakes():
    """Of streams with clock 0 the first goes first: 0 queues op 1 (ready at 100) on stream 1, which runs it before
    stream 2 has queued op 3 (ready at 10).
    """
    graph = compute([0, 1, 2, 1], [100, 10, 10, 60], [(0, 1), (2, 3)], [OTHER] * 4)
    assert replay(graph, "dpro").makespan_ns == 170
    assert replay(graph, "ready").makespan_ns == 110


def test_random_graphs_come_out_longer_than_an_event_simulation():
    """3,000 ops each; 9.3 % in the mean on the graphs of `dpro.md`, 8.7 % on these of 32 streams."""
    excess = []
    for seed in range(10):
        graph = random_graph(seed, ops=3000, streams=32, relations=(Relation.FINISH_START,), longest_ns=1000)
        graph = graph.replace(lag_ns=np.zeros_like(graph.lag_ns), priority=np.zeros_like(graph.priority))
        excess.append(replay(graph, "dpro").makespan_ns / replay(graph, "ready").makespan_ns - 1)
    assert min(excess) > 0.05
    assert 0.07 < np.mean(excess) < 0.11


# 2. Class priority idles devices.


def test_a_better_class_is_waited_for():
    graph = compute([0, 1, 1], [100, 10, 40], [(0, 1)], [BACKWARD, BACKWARD, UPDATE])
    assert replay(graph, "dpro").makespan_ns == 150
    assert replay(graph, "ready").makespan_ns == 110


def one_forward_one_backward(micro_batches: int = 4) -> tuple[Graph, list[int]]:
    """The last but one stage of a pipeline, alone: its forwards are all ready, and each backward follows its forward
    by the time that the last stage takes. Recorded order alternates; the expected starts beside it.
    """
    schedule = [("F", 0), ("F", 1)]
    for batch in range(micro_batches):
        schedule.append(("B", batch))
        if batch + 2 < micro_batches:
            schedule.append(("F", batch + 2))
    number = {step: place for place, step in enumerate(schedule)}
    count = len(schedule)
    last_stage = [count + batch for batch in range(micro_batches)]
    edges = [(number["F", batch], last_stage[batch]) for batch in range(micro_batches)]
    edges += [(last_stage[batch], number["B", batch]) for batch in range(micro_batches)]
    order = sorted(range(count + micro_batches), key=lambda op: op if op < count else number["F", op - count] + 0.5)
    place = {op: position for position, op in enumerate(order)}
    graph = compute(
        [0 if op < count else 1 for op in order],
        [10] * len(order),
        [(place[source], place[target]) for source, target in edges],
        [OTHER if op >= count else FORWARD if schedule[op][0] == "F" else BACKWARD for op in order],
    )
    return graph, [place[op] for op in range(count)]


def test_one_forward_one_backward_cannot_be_expressed_by_classes():
    """All forwards first, so all activations are alive at once; a recorded order keeps two."""
    graph, own = one_forward_one_backward()

    def order_of(name: str) -> str:
        ops = sorted(own, key=lambda op: replay(graph, name).start_ns[op])
        return "".join("F" if graph.priority[op] == FORWARD else "B" for op in ops)

    assert order_of("dpro") == "FFFFBBBB"
    assert order_of("recorded") == "FFBFBFBB"


# 3. The iteration time is the end of the op executed last.


def test_iteration_time_is_the_end_of_the_op_executed_last():
    graph = compute([0, 1, 0, 0], [100, 1000, 200, 10], [(0, 1), (0, 2), (2, 3)], [OTHER] * 4)
    by_rule = replay_dpro(graph.replace(rank=np.zeros(4, np.int32)))
    assert by_rule.iteration_ns == 310
    assert by_rule.schedule.makespan_ns == 1100
    assert [graph.name_of(op) for op in by_rule.executed] == ["op 0", "op 1", "op 2", "op 3"]
    # The long op on a rank of its own counts again.
    assert replay_dpro(graph).iteration_ns == 1100
    for order in ("recorded", "ready"):
        assert replay(graph, order).makespan_ns == critical_path(replay(graph, order)).length_ns == 1100


# 4. A deadlock ends silently, with ops missing.


def test_opposite_tensor_orders_are_a_deadlock_and_said_so():
    with pytest.raises(
        GraphError,
        match=r"8 of 12 ops never end in dpro order.*each of these waits for the one before it: op \d+ .* ->",
    ):
        replay(two_tensors(((0, 1), (1, 0))), "dpro")


def test_opposite_orders_are_a_cycle_in_our_graphs_as_well():
    """Where the buffer is held by edges and ranks take tensors in opposite order, the cycle is named at once."""
    graph = collective_graph(2, 100, count=2)
    group = graph.group.copy()
    group[graph.kind == OpKind.COLLECTIVE] = [0, 1, 1, 0]
    with pytest.raises(GraphError, match=r"the graph waits on itself: op \d+ 'allreduce.* -> op \d+ 'allreduce"):
        expand(graph.replace(group=group), None, "ring", mesh(2))


# 5. Critical path and makespan disagree.


def dpros_critical_path_ns(path: Path, graph: Graph, by_rule: DproReplay) -> int:
    """The longest path of edges and resource edges, an edge as long as its source's duration and gap: dPRO's rule.

    A receive that starts with its send is counted from the send's end, which is how the path outgrows the makespan.
    """
    with np.load(path, allow_pickle=False) as data:
        number = {name: place for place, name in enumerate(bytes(data["names"]).decode().split("\n"))}
        cost_ns = np.rint((data["dur_us"] + data["gap_dev_us"]) * 1000).astype(np.int64)
        device = data["device"]
        before: dict[int, list[int]] = {}
        for source, target in zip(data["src"].tolist(), data["dst"].tolist(), strict=True):
            before.setdefault(target, []).append(source)
    executed = [number[graph.name_of(op)] for op in by_rule.executed.tolist()]
    for line in np.unique(device).tolist():
        for source, target in pairwise(op for op in executed if device[op] == line):
            before.setdefault(target, []).append(source)
    reach = np.zeros(len(executed), np.int64)
    for op in executed:
        reach[op] = max((reach[source] + cost_ns[source] for source in before.get(op, [])), default=0)
    return int((reach + cost_ns).max())


def test_the_critical_path_is_as_long_as_the_makespan(shared):
    """dPRO with its `default` backend: 214 ms against 161 on the graph of 12 thousand ops."""
    path = shared / "data" / "graphs" / "g_12k.npz"
    graph = read_neutral_graph(path, receive_with_send=True)
    by_rule = replay_dpro(graph)
    assert round(by_rule.schedule.makespan_ns / 1e6) == 161
    assert round(dpros_critical_path_ns(path, graph, by_rule) / 1e6) == 214
    for order in ("dpro", "recorded", "ready"):
        schedule = replay(graph, order)
        assert critical_path(schedule).length_ns == schedule.makespan_ns


# 6. Send and receive of a rank share one queue, whatever the link.


def ring_on_one_queue(ranks: int, each_ns: int) -> Graph:
    """dPRO's ring all-reduce, `default` backend: SEND(s, r) starts RECV(s, r + 1), which lets SEND(s + 1, r + 1) go."""
    steps = 2 * (ranks - 1)
    send = np.arange(2 * steps * ranks).reshape(steps, 2, ranks)[:, 0]
    receive = send + ranks
    source = np.concatenate([send.ravel(), receive[:-1].ravel()])
    target = np.concatenate([np.roll(receive, -1, axis=1).ravel(), send[1:].ravel()])
    relation = np.repeat([Relation.START_START, Relation.FINISH_START], [send.size, receive[:-1].size])
    return assemble_plain(
        np.tile(np.arange(ranks), 2 * steps), [DEVICE] * ranks, np.full(2 * send.size, each_ns),
        Edges.of(source, target, 0, relation),
    )  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_links_are_full_duplex_unless_the_cluster_says_otherwise(ranks):
    """One queue for both directions takes twice the time of a full-duplex ring, as a half-duplex link does."""
    each_ns = 50_000
    steps = 2 * (ranks - 1)
    assert replay(ring_on_one_queue(ranks, each_ns), "dpro").makespan_ns == 2 * steps * each_ns
    for duplex, directions in (("full", 1), ("half", 2)):
        cluster = star(ranks, latency_ns=0, duplex=duplex)
        graph = expand(collective_graph(ranks, ranks * each_ns), None, "ring", cluster).graph
        for order in ("recorded", "ready"):
            assert replay(graph, order).makespan_ns == directions * steps * each_ns


def test_training_steps_are_overestimated_by_the_rule():
    """All of it together, on four ranks with half-duplex links and messages that are stored and forwarded."""
    sizes = {"w2": 8000, "w1": 4000, "w0": 4000}
    work = RankWork(
        (Operator("forward", 10_000),),
        tuple(Operator(f"backward {name}", 10_000, {name: size}) for name, size in sizes.items()),
    )
    job = TrainingJob.of_equal_ranks(work, 4, GradientExchange("ring", buffers=0))
    graph = training_graph(job, star(4, duplex="half"), stored_and_forwarded=True)
    steps = sum(6 * (2 * size // 4 + 2000) for size in sizes.values())
    assert replay(graph).makespan_ns == 20_000 + steps
    assert replay(graph, "dpro").makespan_ns > replay(graph).makespan_ns
