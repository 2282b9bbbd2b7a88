"""Training graphs against hand calculation: each part of the chain from gradient to update, and who waits for whom."""

import numpy as np
import pytest
from small_clusters import mesh, star

from makespan.errors import GraphError, MakespanError
from makespan.graph import NONE, Graph, OpKind
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.orders.dpro_rule import replay_dpro
from makespan.simulator.replay import replay
from makespan.simulator.training.job import GradientExchange, Operator, RankWork, TrainingJob, Update
from makespan.simulator.training.step_graph import training_graph

ORDERS = ("recorded", "ready")
FORWARD = (Operator("forward", 10_000),)
BACKWARD = (
    Operator("backward 2", 10_000, {"w2": 8000}), Operator("backward 1", 10_000, {"w1": 4000}),
    Operator("backward 0", 10_000, {"w0": 4000}),
)  # fmt: skip
UPDATES = tuple(Update(f"update {number}", 100, (f"w{number}",)) for number in (2, 1, 0))
WORK = RankWork(FORWARD, BACKWARD, UPDATES)


def ring_ns(size_bytes: int, ranks: int = 4) -> int:
    """An all-reduce on `mesh`: a nanosecond a byte, one microsecond of latency."""
    return 2 * (ranks - 1) * (1000 + size_bytes // ranks)


def spans(graph: Graph, name: str, order: str = "recorded") -> list[tuple[int, int]]:
    schedule = replay(graph, order)
    ops = [op for op in range(len(graph)) if graph.name_of(op) == name]
    return [(int(schedule.start_ns[op]), int(schedule.end_ns[op])) for op in ops]


@pytest.mark.parametrize("order", ORDERS)
def test_the_chain_from_gradient_to_update(order: str) -> None:
    exchange = GradientExchange(
        "ring", groups=(("w2", "w1", "w0"),), ready_lag_ns=700, queue_ns=60, copy_lag_ns=5, copy_bytes_per_s=2e9
    )
    graph = training_graph(TrainingJob.of_equal_ranks(WORK, 4, exchange), mesh(4))
    copy = 5 + 16_000 // 2
    over = 40_000 + 700 + 60 + copy + ring_ns(16_000) + copy
    assert spans(graph, "group 0: copy out", order) == [(over - copy, over)] * 4
    assert spans(graph, "update 0", order) == [(over + 200, over + 300)] * 4
    assert replay(graph, order).makespan_ns == over + 300
    assert [(step.name, step.rank) for step in graph.steps] == [("step 0", rank) for rank in range(4)]


@pytest.mark.parametrize("order", ORDERS)
def test_groups_take_the_buffer_one_after_another(order: str) -> None:
    graph = training_graph(TrainingJob.of_equal_ranks(WORK, 4, GradientExchange("ring", queue_ns=60)), mesh(4))
    ends = [20_000 + 60 + ring_ns(8000)]
    for size_bytes, ready in ((4000, 30_000), (4000, 40_000)):
        ends.append(max(ready, ends[-1]) + 60 + ring_ns(size_bytes))
    assert [spans(graph, f"group {place}: copy out", order)[0][1] for place in range(3)] == ends


def test_several_buffers_let_groups_overlap_on_the_links() -> None:
    """The second group's messages run in the first one's latencies; the third waits for a buffer.

    In recorded order a link serves one collective after another, and the buffer's stream has its order.
    """
    work = RankWork((), (Operator("backward", 100, {"a": 400, "b": 400, "c": 400}),))
    graphs = [
        training_graph(TrainingJob.of_equal_ranks(work, 4, GradientExchange("ring", buffers=buffers)), mesh(4))
        for buffers in (1, 2, 3, 0)
    ]
    one, two, three, any_number = (replay(graph, "ready").makespan_ns for graph in graphs)
    assert one == 100 + 3 * ring_ns(400)
    assert two == 100 + 2 * ring_ns(400)
    assert three == any_number == 100 + ring_ns(400) + 200
    assert replay(graphs[0]).makespan_ns == replay(graphs[3]).makespan_ns == one
    assert two <= replay(graphs[1]).makespan_ns <= one


@pytest.mark.parametrize("order", ORDERS)
def test_all_ranks_wait_for_the_slowest_to_be_ready(order: str) -> None:
    slow = RankWork(FORWARD, (Operator("backward", 50_000, {"w": 4000}),))
    quick = RankWork(FORWARD, (Operator("backward", 20_000, {"w": 4000}),))
    graph = training_graph(TrainingJob((quick, slow, quick, quick), GradientExchange("ring")), mesh(4))
    assert spans(graph, "group 0: queue", order) == [(60_000, 60_000)] * 4
    assert replay(graph, order).makespan_ns == 60_000 + ring_ns(4000)


def test_a_parameter_server_waits_for_nobody_it_need_not() -> None:
    """Each worker's push goes when its gradient is ready and is summed when it comes; the pulls wait for the last."""
    works = tuple(RankWork((), (Operator("backward", duration, {"w": 4000}),)) for duration in (1000, 30_000))
    exchange = GradientExchange("parameter-server", servers=(2,), sum_bytes_per_s=1e9, ready_lag_ns=10)
    graph = training_graph(TrainingJob(works, exchange), star(3))
    assert not np.any(graph.kind == OpKind.BARRIER)
    sums = sorted(spans(graph, "group 0: sum", "ready"))
    assert sums == [(1010 + 6000, 1010 + 10_000), (30_010 + 6000, 30_010 + 10_000)]
    pulled = sums[1][1]
    assert sorted(end for _, end in spans(graph, "group 0", "ready")) == [pulled + 6000, pulled + 6000 + 4000]


@pytest.mark.parametrize(("backend", "ranks"), [("none", 3), ("ring", 1)])
def test_without_an_exchange_updates_follow_their_operators(backend: str, ranks: int) -> None:
    graph = training_graph(TrainingJob.of_equal_ranks(WORK, ranks, GradientExchange(backend)))
    assert len(graph) == ranks * (2 + 4 + 3)
    assert not np.any(np.isin(graph.kind, (OpKind.SEND, OpKind.RECV, OpKind.COLLECTIVE)))
    for order in ORDERS:
        assert replay(graph, order).makespan_ns == 40_300
    alone = RankWork(FORWARD, (Operator("backward", 20_000),))
    assert replay(training_graph(TrainingJob.of_equal_ranks(alone, ranks))).makespan_ns == 30_000


def test_branches_and_steps() -> None:
    """Two branches after the root; a step begins when the one before has ended."""
    work = RankWork(
        (Operator("root", 10), Operator("left", 20, after=("root",)), Operator("right", 30, after=("root",)),
         Operator("free", 5, after=())),
        (Operator("join", 40, {"w": 10}, after=("left", "right", "free")),),
        (Update("update", 1, ("w",)),),
    )  # fmt: skip
    graph = training_graph(TrainingJob.of_equal_ranks(work, 1, steps=3))
    number = {graph.name_of(op): op for op in range(len(graph) // 3)}
    into = {
        graph.name_of(int(op)) for op in graph.pred[graph.pred_ptr[number["join"]] : graph.pred_ptr[number["join"] + 1]]
    }
    assert into == {"left", "right", "free"}
    assert replay(graph).makespan_ns == 3 * 106
    assert graph.step_names == ("step 0", "step 1", "step 2")
    assert [replay(graph).end_ns[step.end_op] for step in graph.steps] == [106, 212, 318]


def test_gradients_fed_by_several_operators_and_shared_by_updates() -> None:
    work = RankWork(
        (), (Operator("early", 10, {"w": 400}), Operator("late", 20, {"w": 400}), Operator("other", 5, {"v": 400})),
        (Update("both", 1, ("w", "v")),),
    )  # fmt: skip
    graph = training_graph(TrainingJob.of_equal_ranks(work, 4, GradientExchange("ring")), mesh(4))
    assert spans(graph, "group 0: queue") == [(30, 30)] * 4
    assert spans(graph, "both")[0][0] == 30 + 2 * ring_ns(400)


def test_dpros_rule_takes_the_stored_and_forwarded_graph() -> None:
    """Only then no edge binds an end; classes and buffer are as its rule knows them. It finds 22 % too much."""
    job = TrainingJob.of_equal_ranks(WORK, 4, GradientExchange("ring", queue_ns=60, copy_lag_ns=5, buffers=0))
    graph = training_graph(job, star(4, duplex="half"), stored_and_forwarded=True)
    assert sorted(set(graph.priority.tolist())) == [0, 2, 3, 100]
    assert set(graph.attrs["fusion_buffer"].tolist()) == {0, 1, 2}
    by_rule = replay_dpro(graph)
    parts = [70 + 2 * 3 * (2 * size_bytes // 4 + 2000) for size_bytes in (8000, 4000, 4000)]
    assert replay(graph).makespan_ns == 20_000 + sum(parts) + 100 == 104_310
    assert by_rule.schedule.makespan_ns == by_rule.iteration_ns == 127_245
    with pytest.raises(GraphError, match="knows no edges that bind an end"):
        replay(training_graph(job, star(4)), "dpro")


def test_a_training_graph_is_a_graph_like_any_other() -> None:
    exchange = GradientExchange("tree", slice_bytes=1000, buffers=2, sum_bytes_per_s=1e10)
    graph = training_graph(TrainingJob.of_equal_ranks(WORK, 5, exchange, steps=2), star(5, sharing="fair"))
    graph.verify()
    assert graph.streams[0].device == 0
    for order in ORDERS:
        schedule = replay(graph, order)
        assert critical_path(schedule).length_ns == schedule.makespan_ns
    assert set(graph.group[graph.kind == OpKind.COLLECTIVE].tolist()) == set(range(6))
    assert graph.group[0] == NONE


def test_what_is_refused() -> None:
    def with_gradient(name: str, size_bytes: int) -> RankWork:
        return RankWork((), (Operator("backward", 1, {name: size_bytes}),))

    good = with_gradient("w", 8)
    wrong = [
        (lambda: TrainingJob(()), "0 ranks and 1 steps"),
        (lambda: TrainingJob((good,), steps=0), "1 ranks and 0 steps"),
        (lambda: TrainingJob((good, with_gradient("v", 8))), "differs between rank 0 and rank 1"),
        (lambda: TrainingJob((good, with_gradient("w", 9))), "gradient 'w' differs between rank 0 and rank 1"),
        (lambda: TrainingJob((with_gradient("w", -1),)), "gradient 'w' has -1 bytes"),
        (lambda: TrainingJob((RankWork((Operator("a", 1), Operator("a", 2)), ()),)), "two operators are called 'a'"),
        (lambda: TrainingJob((RankWork((Operator("a", -1),), ()),)), "'a' takes -1 ns"),
        (
            lambda: TrainingJob((RankWork((Operator("abc", 1), Operator("b", 1, after=("abd",))), ()),)),
            "comes after 'abd'.*did you mean 'abc'",
        ),
        (lambda: TrainingJob((RankWork((), good.backward, (Update("u", 1, ("x",)),)),)), "needs the gradient 'x'"),
        (lambda: TrainingJob((RankWork((), good.backward, (Update("u", -1, ("w",)),)),)), "'u' takes -1 ns"),
        (lambda: TrainingJob((RankWork((), good.backward, (Update("backward", 1, ()),)),)), "name of another op"),
        (
            lambda: TrainingJob((RankWork((), (Operator("a", 1, {"w": 1}), Operator("b", 1, {"w": 2}))),)),
            "'w' has 2 bytes, expected one size",
        ),
        (lambda: TrainingJob((good,), GradientExchange(groups=(("v",),))), "names the gradient 'v'"),
        (lambda: TrainingJob((good,), GradientExchange(groups=(("w",), ("w",)))), "'w' is in 2 groups"),
        (lambda: TrainingJob((good,), GradientExchange(queue_ns=-1)), "queue_ns is -1"),
        (lambda: TrainingJob((good,), GradientExchange(copy_bytes_per_s=float("nan"))), "copy_bytes_per_s is nan"),
        (lambda: training_graph(TrainingJob((good, good))), "so a cluster is needed"),
        (lambda: training_graph(TrainingJob((good, good), GradientExchange("rong")), mesh(2)), "did you mean 'ring'"),
        (lambda: training_graph(TrainingJob((good, good)), mesh(1)), "no rank 1"),
    ]  # fmt: skip
    for make, told in wrong:
        with pytest.raises(MakespanError, match=told):
            make()
