"""Other buckets for a captured job: times against a plain reckoning, and plans that beat what they came from."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from captured_jobs import FORWARD_NS, LOOP_NS, OPTIMIZER_NS, Network, write_captures
from hypothesis import given, settings
from hypothesis import strategies as st

import makespan as ms
from makespan.bucket_plan import read_bucket_plan
from makespan.errors import PassError
from makespan.iteration import iteration_ns
from makespan.optimizers.bucketing.gradients import find_backwards, ready_order
from makespan.optimizers.tensor_fusion import TensorFusion
from makespan.protocols import Context
from makespan.simulator.replay import replay

GRADIENTS = ((400, 4000), (300, 400), (500, 800), (200, 8000), (600, 400))


def context(network: Network) -> Context:
    """A context with this network."""
    return Context(replay=replay, communication=network)


def iteration(graph: ms.Graph, cut: tuple[int, ...], network: Network) -> int:
    """Predicted ns with the gradients cut there."""
    names = [graph.names[parameter] for parameter in ready_order(find_backwards(graph))]
    buckets = [names[begin:end] for begin, end in zip((0, *cut[:-1]), cut, strict=True)]
    return iteration_ns(replay(TensorFusion(buckets)(graph, context(network)).graph, "contended"))


def reckoned(gradients: tuple[tuple[int, int], ...], cut: tuple[int, ...], network: Network, late: int = 0) -> int:
    """The same by hand, for a network that hinders nothing: a step of the rank that is late by `late`."""
    now = LOOP_NS + FORWARD_NS + late
    link, ends, begin = 0, [], 0
    sizes = [sum(size for _, size in gradients[i:j]) for i, j in zip((0, *cut[:-1]), cut, strict=True)]
    cost = network.transfer_ns("allreduce", np.array(sizes), [0, 1], None)
    copy = network.host_ns("copy", np.array(sizes))
    for end, transfer in zip(cut, cost.tolist(), strict=True):
        now += sum(compute for compute, _ in gradients[begin:end]) + network.launch_ns
        link = max(link, now) + transfer
        ends.append(link)
        begin = end
    for end, copied in zip(ends, copy.tolist(), strict=True):
        now = max(now, end) + copied
    return now + OPTIMIZER_NS


cuts = st.sets(st.integers(1, len(GRADIENTS) - 1)).map(lambda inner: (*sorted(inner), len(GRADIENTS)))


@settings(deadline=None, max_examples=40)
@given(cuts, st.integers(0, 3000), st.floats(0, 2), st.integers(0, 90), st.floats(0, 0.5))
def test_other_buckets_take_what_a_plain_reckoning_says(
    tmp_path_factory: pytest.TempPathFactory,
    cut: tuple[int, ...],
    latency: int,
    per_byte: float,
    launch: int,
    copy: float,
) -> None:
    graph = ms.build(ms.load(*write_captures(tmp_path_factory.mktemp("capture"), GRADIENTS)))
    network = Network(latency, per_byte, launch_ns=launch, copy_ns_per_byte=copy)
    assert iteration(graph, cut, network) == reckoned(GRADIENTS, cut, network)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_late_rank_holds_up_all(tmp_path: Path, ranks: int) -> None:
    late = [0] * ranks
    late[-1] = 700
    graph = ms.build(ms.load(*write_captures(tmp_path, GRADIENTS, ranks=ranks, late_ns=late)))
    for cut in ((5,), (2, 5), (1, 2, 3, 4, 5)):
        assert iteration(graph, cut, Network()) == reckoned(GRADIENTS, cut, Network(), late=700)


def test_computing_and_communication_slow_each_other_down(tmp_path: Path) -> None:
    graph = ms.build(ms.load(*write_captures(tmp_path, ((1000, 400), (2000, 400)))))
    # The first bucket: 500 ns alone, 750 beside computing, which goes on at half its speed meanwhile.
    hindered = Network(100, 1.0, stretch=1.5, share_left=0.5)
    computing = LOOP_NS + FORWARD_NS + 3000 + 750 // 2
    assert iteration(graph, (1, 2), hindered) == computing + 500 + OPTIMIZER_NS


def test_the_search_finds_the_best_of_all_cuts(tmp_path: Path) -> None:
    graph = ms.build(ms.load(*write_captures(tmp_path, GRADIENTS)))
    for network in (Network(0, 0.2), Network(900, 0.05), Network(100, 1.0, 1.4, 0.6, 20, 0.1)):
        made = TensorFusion()(graph, context(network))
        plan = read_bucket_plan(made.decisions[0].payload)
        count = len(GRADIENTS)
        times = [
            iteration(graph, (*inner, count), network)
            for size in range(count)
            for inner in combinations(range(1, count), size)
        ]
        assert plan.search["iteration_ns"] == min(times)
        assert iteration_ns(replay(made.graph, "contended")) == min(times)
        assert plan.search["iteration_ns"] <= min(plan.search["named_ns"].values())
        assert sum(plan.sizes) == sum(size for _, size in GRADIENTS)


def test_new_buckets_are_told_in_terms_of_the_old(tmp_path: Path) -> None:
    graph = ms.build(ms.load(*write_captures(tmp_path, GRADIENTS)))
    made = TensorFusion()(graph, context(Network()))
    backwards = find_backwards(made.graph)
    old = set(np.concatenate([backward.reductions for backward in find_backwards(graph)]).tolist())
    new = np.concatenate([backward.reductions for backward in backwards])
    assert {int(made.provenance.of(int(op))[0]) for op in new} <= old
    # The rewritten graph is a captured graph like any other: planning it again finds the same.
    again = TensorFusion()(made.graph, context(Network()))
    assert again.decisions[0].payload["sizes"] == made.decisions[0].payload["sizes"]
    assert iteration_ns(replay(again.graph, "contended")) == iteration_ns(replay(made.graph, "contended"))


def test_refusals_say_what_is_missing(tmp_path: Path) -> None:
    graph = ms.build(ms.load(*write_captures(tmp_path, GRADIENTS)))
    with pytest.raises(PassError, match="no communication model"):
        TensorFusion()(graph, Context(replay=replay))
    with pytest.raises(PassError, match=r"layer4.weight.*missing"):
        TensorFusion([[f"layer{place}.weight" for place in range(4)]])(graph, context(Network()))
    (tmp_path / "alone").mkdir()
    alone = ms.build(ms.load(*write_captures(tmp_path / "alone", GRADIENTS, ranks=1)))
    with pytest.raises(PassError, match="one rank"):
        TensorFusion()(alone, context(Network()))
    plain = ms.build(ms.load(ms.bundled_trace("cnn_step")))
    with pytest.raises(PassError, match=r"makespan\.capture"):
        TensorFusion()(plain, context(Network()))
