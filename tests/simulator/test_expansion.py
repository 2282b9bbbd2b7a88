"""Expanded collectives against closed forms: on idle links, with contention, in slices, and what links carry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_clusters import collective_graph, mesh, rails, star

from makespan.cluster import Cluster
from makespan.graph import Graph, OpKind
from makespan.simulator.expansion.expand import expand
from makespan.simulator.replay import replay

ORDERS = ("recorded", "ready")


def time_ns(ranks: int, size_bytes: int, algorithm: str, cluster: Cluster, order: str, **settings: object) -> int:
    kind = settings.pop("kind", "allreduce")
    expanded = expand(collective_graph(ranks, size_bytes, str(kind)), None, algorithm, cluster, **settings)  # type: ignore[arg-type]
    return replay(expanded.graph, order).makespan_ns


def sent(graph: Graph) -> np.ndarray:
    """(ranks,) bytes that each rank sends: what enters the first link of each message."""
    ranks = int(graph.rank[graph.kind == OpKind.COLLECTIVE].max()) + 1
    first = (graph.kind == OpKind.SEND) & (graph.rank == graph.attrs["transfer_source"])
    return np.bincount(graph.attrs["transfer_source"][first], graph.size_bytes[first], ranks).astype(np.int64)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_ring_all_reduce_takes_two_rounds_less_two(ranks: int, order: str) -> None:
    """2(N - 1) · (latency + S/N / rate); a route over a switch has two latencies."""
    each = 50_000
    steps = 2 * (ranks - 1)
    assert time_ns(ranks, ranks * each, "ring", mesh(ranks), order) == steps * (1000 + each)
    assert time_ns(ranks, ranks * each, "ring", star(ranks), order) == steps * (2000 + each)


@given(ranks=st.integers(2, 6), size_bytes=st.integers(1, 5000))
def test_unequal_shares_take_what_their_shortest_and_longest_would(ranks: int, size_bytes: int) -> None:
    taken = time_ns(ranks, size_bytes, "ring", mesh(ranks), "recorded")
    steps = 2 * (ranks - 1)
    assert steps * (1000 + size_bytes // ranks) <= taken <= steps * (1000 + -(-size_bytes // ranks))


def test_a_transfer_time_is_rounded_to_the_next_nanosecond() -> None:
    """5 bytes at 3 GB/s are 1.67 ns."""
    assert time_ns(2, 10, "ring", mesh(2, rate="3GB/s"), "recorded") == 2 * (1000 + 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_binomial_tree(ranks: int, order: str) -> None:
    """Rank i is as many messages from the root as i has binary ones, and none waits for another's port."""
    rounds = max(place.bit_count() for place in range(ranks))
    assert time_ns(ranks, 70_000, "tree", mesh(ranks), order) == 2 * rounds * 71_000
    assert time_ns(ranks, 70_000, "tree", mesh(ranks), order, kind="broadcast") == rounds * 71_000


@pytest.mark.parametrize("order", ORDERS)
def test_a_tree_on_a_star_sends_from_one_port_in_turn(order: str) -> None:
    """The root's children get the message one after another, the one with the deepest subtree first."""
    assert time_ns(8, 70_000, "tree", star(8), order, kind="broadcast") == 3 * 72_000


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_all_to_all(ranks: int, order: str) -> None:
    each = 30_000
    assert time_ns(ranks, ranks * each, "all_to_all", star(ranks), order, kind="alltoall") == (ranks - 1) * each + 2000
    assert time_ns(ranks, ranks * each, "all-to-all", mesh(ranks), order, kind="alltoall") == each + 1000
    assert time_ns(ranks, ranks * each, "all-to-all", star(ranks), order) == 2 * ((ranks - 1) * each + 2000)


def test_fair_links_serve_all_at_once_and_end_together() -> None:
    """In ready order, which alone knows sharing; rounding may cost a nanosecond for each message on the way."""
    taken = time_ns(5, 5 * 30_000, "all-to-all", star(5, sharing="fair"), "ready", kind="alltoall")
    assert 0 <= taken - (4 * 30_000 + 2000) <= 4


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_parameter_server(ranks: int, order: str) -> None:
    each = 20_000
    both = time_ns(ranks, ranks * each, "parameter-server", star(ranks), order)
    assert both == 2 * ((ranks - 1) * each + 2000), "every rank serves a share"
    alone = time_ns(ranks, each, "parameter-server", star(ranks + 1), order, servers=[ranks])
    assert alone == 2 * (ranks * each + 2000), "all pushes, then all pulls, through one port"
    summed = time_ns(ranks, each, "parameter-server", star(ranks + 1), order, servers=[ranks], sum_bytes_per_s=1e9 / 2)
    assert summed == (each + 2000) + ranks * 2 * each + (ranks * each + 2000), "sums are slower than pushes"


@pytest.mark.parametrize("order", ORDERS)
def test_hierarchical(order: str) -> None:
    hosts, per_host, size_bytes = 3, 4, 12 * 10_000
    cluster = rails(hosts, per_host, inner_ns=300, outer_ns=5000)
    within = 2 * (per_host - 1) * (600 + size_bytes // per_host // 2)
    between = 2 * (hosts - 1) * (10_000 + size_bytes // per_host // hosts)
    assert time_ns(12, size_bytes, "hierarchical", cluster, order) == within + between
    assert time_ns(12, size_bytes, "hierarchical", cluster, order, kind="reducescatter") == (within + between) // 2
    gather = (hosts - 1) * (10_000 + size_bytes) + (per_host - 1) * (600 + hosts * size_bytes // 2)
    assert time_ns(12, size_bytes, "hierarchical", cluster, order, kind="allgather") == gather
    cast = (hosts - 1) * (10_000 + size_bytes) + (per_host - 1) * (600 + size_bytes // 2)
    assert time_ns(12, size_bytes, "hierarchical", cluster, order, kind="broadcast", root=6) == cast


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_half_duplex_takes_as_much_longer_as_it_must(ranks: int, order: str) -> None:
    """On a star each rank's link carries a send and then a receive of every round."""
    each = 50_000
    full = time_ns(ranks, ranks * each, "ring", star(ranks), order)
    half = time_ns(ranks, ranks * each, "ring", star(ranks, duplex="half"), order)
    assert full == 2 * (ranks - 1) * (each + 2000)
    assert half == 2 * (ranks - 1) * (2 * each + 1000)
    # In a ring of direct links each is used in one direction only, unless two ranks are all there are.
    assert time_ns(ranks, ranks * each, "ring", mesh(ranks, duplex="half"), order) == 2 * (ranks - 1) * (each + 1000)
    assert time_ns(2, 2 * each, "ring", mesh(2, duplex="half"), order) == 4 * each + 1000


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("ranks", "slices"), [(2, 3), (4, 1), (4, 10)])
def test_slices_follow_each_other(ranks: int, slices: int, order: str) -> None:
    """A broadcast along a chain: the first slice's way, then one slice's time for each other."""
    each = 4000
    taken = time_ns(ranks, slices * each, "ring", mesh(ranks), order, kind="broadcast", slice_bytes=each)
    assert taken == (ranks - 1) * (each + 1000) + (slices - 1) * each


@pytest.mark.parametrize("order", ORDERS)
def test_slices_of_a_ring_hide_its_latency(order: str) -> None:
    """Two slices on a link whose latency is as long as a slice: one moves while the other waits."""
    whole = time_ns(4, 8000, "ring", mesh(4), order)
    cut = time_ns(4, 8000, "ring", mesh(4), order, slice_bytes=1000)
    assert whole == 6 * (2000 + 1000)
    assert cut == 6 * 2000 + 1000


def test_stored_and_forwarded_messages_hold_one_link_after_another() -> None:
    each = 50_000
    graph = expand(collective_graph(4, 4 * each), None, "ring", star(4), stored_and_forwarded=True).graph
    for order in (*ORDERS, "dpro"):
        assert replay(graph, order).makespan_ns == 6 * (2 * each + 2000)


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_on_one_device_copy_through_its_memory(order: str) -> None:
    """4 GB/s of reading and writing are 2 GB/s of a copy; two at once share it, which ready order alone knows."""
    cluster = star(1)
    cluster = type(cluster)(**{name: getattr(cluster, name) for name in cluster.__slots__} | {"ranks": (0, 0)})
    assert time_ns(2, 200_000, "ring", cluster, order) == 2 * 50_000 * (2 if order == "ready" else 1)


@pytest.mark.parametrize("order", ORDERS)
def test_a_late_rank_holds_up_those_that_need_it(order: str) -> None:
    """A message begins when both its ends have come: a chain waits for the rank that comes at 9,000."""
    graph = collective_graph(3, 100, "broadcast", work_ns=[0, 9000, 20_000])
    schedule = replay(expand(graph, None, "ring", mesh(3)).graph, order)
    ends = schedule.end_ns[schedule.graph.kind == OpKind.COLLECTIVE]
    assert sorted(ends.tolist()) == [9100, 20_100, 21_100], "the root is done when it has sent"


def test_sums_take_time_on_a_stream_of_their_own() -> None:
    each = 50_000
    taken = time_ns(4, 4 * each, "ring", mesh(4), "ready", sum_bytes_per_s=5e8)
    assert taken == 6 * (each + 1000) + 3 * 2 * each


def test_pushes_are_summed_in_order_of_arrival() -> None:
    """Workers come last to first; in ready order their sums follow, in recorded order they wait for their turn."""
    graph = collective_graph(4, 1000, work_ns=[40_000, 30_000, 20_000, 10_000])
    expanded = expand(graph, None, "parameter-server", star(5), servers=[4], sum_bytes_per_s=1e9).graph
    sums = np.flatnonzero(expanded.kind == OpKind.COMPUTE)
    sums = sums[expanded.rank[sums] == 4]
    ready, recorded = replay(expanded, "ready"), replay(expanded)
    by_time = sums[np.argsort(ready.start_ns[sums])]
    before = expanded.pred[expanded.pred_ptr[by_time]]
    assert expanded.attrs["transfer_source"][before].tolist() == [3, 2, 1, 0]
    assert ready.start_ns[by_time].tolist() == [13_000, 23_000, 33_000, 43_000]
    assert ready.makespan_ns == recorded.makespan_ns == 44_000 + 4000 + 2000
    assert recorded.start_ns[sums].tolist() == sorted(recorded.start_ns[sums].tolist())
    assert recorded.start_ns[sums[0]] > 13_000


VOLUMES = {
    ("ring", "allreduce"): lambda n, s: 2 * (n - 1) * s,
    ("ring", "allgather"): lambda n, s: n * (n - 1) * s,
    ("ring", "reducescatter"): lambda n, s: (n - 1) * s,
    ("ring", "broadcast"): lambda n, s: (n - 1) * s,
    ("tree", "allreduce"): lambda n, s: 2 * (n - 1) * s,
    ("tree", "broadcast"): lambda n, s: (n - 1) * s,
    ("all-to-all", "alltoall"): lambda n, s: (n - 1) * s,
    ("all-to-all", "allgather"): lambda n, s: n * (n - 1) * s,
    ("all-to-all", "allreduce"): lambda n, s: 2 * (n - 1) * s,
    ("parameter-server", "allreduce"): lambda n, s: 2 * (n - 1) * s,
    ("hierarchical", "allreduce"): lambda n, s: 2 * (n - 1) * s,
}


@pytest.mark.parametrize(("algorithm", "kind"), VOLUMES)
@given(
    ranks=st.integers(2, 6), shares=st.integers(1, 400), rest=st.integers(0, 5), slice_bytes=st.sampled_from([0, 50])
)
def test_links_carry_the_volume_of_the_algorithm(
    algorithm: str, kind: str, ranks: int, shares: int, rest: int, slice_bytes: int
) -> None:
    """Whole volumes hold for every size, those of single ranks where all shares are equal."""
    size_bytes = shares * ranks + rest % ranks
    expanded = expand(collective_graph(ranks, size_bytes, kind), None, algorithm, star(ranks), slice_bytes=slice_bytes)
    graph = expanded.graph
    total = sum(sent(graph).tolist())
    # What deals out shares doesn't send a rank's own: with unequal shares that isn't quite 1/N.
    expected = VOLUMES[algorithm, kind](ranks, size_bytes)
    slices = max(1, -(-size_bytes // 50)) if slice_bytes else 1
    assert abs(total - expected) <= (ranks * slices if kind == "alltoall" and size_bytes % ranks else 0)
    if algorithm == "ring" and kind == "allreduce" and not rest % ranks and not slice_bytes:
        assert sent(graph).tolist() == [2 * (ranks - 1) * size_bytes // ranks] * ranks
    # What a link carries in comes out of another: on a star, the bytes of all first links are those of all last.
    received = graph.size_bytes[graph.kind == OpKind.RECV].sum()
    assert received == total


@given(
    ranks=st.sampled_from([2, 4, 6]), size_bytes=st.integers(1, 3000), algorithm=st.sampled_from(["ring", "tree"]),
    sharing=st.sampled_from(["fair", "exclusive"]), duplex=st.sampled_from(["half", "full"]),
    work=st.lists(st.integers(0, 3000), min_size=6, max_size=6),
)  # fmt: skip
def test_any_expansion_replays_in_both_orders(
    ranks: int, size_bytes: int, algorithm: str, sharing: str, duplex: str, work: list[int]
) -> None:
    graph = collective_graph(ranks, size_bytes, count=2, work_ns=work[:ranks])
    cluster = star(ranks, sharing=sharing, duplex=duplex)
    expanded = expand(graph, None, algorithm, cluster, slice_bytes=500).graph
    for order in ORDERS:
        schedule = replay(expanded, order)
        latest = max(work[:ranks])
        assert schedule.makespan_ns >= latest + 2000
        links = np.unique(expanded.stream[expanded.kind == OpKind.SEND])
        load = np.bincount(expanded.stream, expanded.duration_ns, len(expanded.streams))[links]
        if sharing == "exclusive" or order == "ready":
            assert schedule.makespan_ns >= load.max() - len(expanded), "but for the rounding of shared links"
