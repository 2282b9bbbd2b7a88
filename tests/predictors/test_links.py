"""Links: closed forms by hand on small clusters, and what-ifs on the cluster itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_clusters import collective_graph, mesh, rails, star

from makespan.cluster import Cluster
from makespan.cluster_file import load_cluster
from makespan.errors import PredictionError
from makespan.predictors.links import Links
from makespan.simulator.expansion.expand import expand
from makespan.simulator.replay import replay

EACH = 50_000
DIRECT = "all-to-all"


def transfer(cluster: Cluster, collective: str, size: int, count: int, algorithm: str = "ring") -> int:
    return int(Links(algorithm).transfer_ns(collective, np.array([size]), range(count), cluster)[0])


@pytest.mark.parametrize(
    ("algorithm", "collective", "rounds", "carried"),
    [
        ("ring", "allreduce", 6, 6 * EACH),
        ("ring", "allgather", 3, 12 * EACH),
        ("ring", "reducescatter", 3, 3 * EACH),
        ("ring", "broadcast", 3, 4 * EACH),
        ("ring", "alltoall", 1, 3 * EACH),
        ("tree", "broadcast", 2, 8 * EACH),
        ("tree", "allreduce", 4, 16 * EACH),
        (DIRECT, "alltoall", 1, 3 * EACH),
        (DIRECT, "reducescatter", 1, 3 * EACH),
        (DIRECT, "allreduce", 2, 6 * EACH),
        (DIRECT, "broadcast", 1, 12 * EACH),
    ],
)
def test_four_ranks_on_a_switch(algorithm: str, collective: str, rounds: int, carried: int) -> None:
    """At 1 GB/s a byte takes a nanosecond; a route over the switch has two latencies of 1 µs."""
    assert transfer(star(4), collective, 4 * EACH, 4, algorithm) == rounds * 2000 + carried


def replayed(cluster: Cluster, collective: str, size: int, algorithm: str) -> int:
    """Every message an op of its own, on the streams of its links."""
    graph = collective_graph(cluster.world_size, size, collective)
    return replay(expand(graph, None, algorithm, cluster).graph, "ready").makespan_ns


@pytest.mark.parametrize("cluster", [star(4), star(8), mesh(4)], ids=["star4", "star8", "mesh4"])
@pytest.mark.parametrize(
    ("algorithm", "collective"),
    [
        *(("ring", collective) for collective in ("allreduce", "allgather", "reducescatter")),
        *(("tree", collective) for collective in ("allreduce", "broadcast")),
        *((DIRECT, each) for each in ("alltoall", "allreduce", "allgather", "reducescatter", "broadcast")),
    ],
)
def test_closed_forms_are_what_the_simulator_replays(cluster: Cluster, algorithm: str, collective: str) -> None:
    count = cluster.world_size
    expected = replayed(cluster, collective, count * EACH, algorithm)
    assert transfer(cluster, collective, count * EACH, count, algorithm) == expected


@pytest.mark.parametrize(
    ("cluster", "latencies_ns"),
    [
        (rails(2, 4, inner_ns=300, outer_ns=5000), 14 * 3_100),
        (star(4, duplex="half"), 6 * 2_000),
        (mesh(2, duplex="half"), 2 * 1_000),
    ],
)
def test_on_other_links_a_ring_is_too_long_by_its_latencies_at_most(cluster: Cluster, latencies_ns: int) -> None:
    count = cluster.world_size
    least = replayed(cluster, "allreduce", count * EACH, "ring")
    assert 0 <= transfer(cluster, "allreduce", count * EACH, count) - least <= latencies_ns


def test_a_send_and_a_rank_alone() -> None:
    assert transfer(star(4), "send", 500, 2) == 2500
    assert transfer(star(4), "allreduce", 500, 1) == 0


def test_messages_of_a_round_share_what_they_cross() -> None:
    assert transfer(mesh(4), "alltoall", 4 * EACH, 4) == 1000 + EACH, "a link for each pair"
    half = star(4, duplex="half")
    assert transfer(half, "allreduce", 4 * EACH, 4) == 6 * (2000 + 2 * EACH), "in and out on one wire"
    assert transfer(mesh(2, duplex="half"), "allreduce", 2 * EACH, 2) == 2 * (1000 + 2 * EACH)
    assert transfer(mesh(2), "allreduce", 2 * EACH, 2) == 2 * (1000 + EACH)
    fair = star(4, sharing="fair")
    assert transfer(fair, "alltoall", 4 * EACH, 4) == transfer(star(4), "alltoall", 4 * EACH, 4), "the last ends then"


def test_ring_edges_that_cross_one_link_share_it() -> None:
    """The slower rate sets the pace, latencies are those around the ring."""
    cluster = rails(2, 4, inner_ns=300, outer_ns=5000)
    # Six edges within hosts, over a switch at 2 GB/s, and two between hosts, over a rail at 1 GB/s and that switch.
    mean_latency = (6 * 600 + 2 * 10_600) / 8
    assert transfer(cluster, "allreduce", 8 * EACH, 8) == 14 * (mean_latency + EACH)
    v100 = load_cluster("v100-16-tcp")
    inside = Links().transfer_ns("allreduce", np.array([10**8]), range(8), v100)[0]
    turns = [host * 8 + place for place in range(8) for host in range(2)]
    filled, dealt = (
        Links().transfer_ns("allreduce", np.array([10**8]), ranks, v100)[0] for ranks in (range(16), turns)
    )
    assert inside < filled < dealt / 7, "eight edges cross the one network card in each direction instead of one"


def test_what_ifs_are_those_of_the_cluster() -> None:
    cluster = star(8)
    assert transfer(replace(cluster, ranks=range(4)), "allreduce", 4 * EACH, 4) == 6 * (2000 + EACH)
    faster = {name: replace(link, bytes_per_s=2e9, latency_ns=0) for name, link in cluster.links.items()}
    assert transfer(replace(cluster, links=faster), "allreduce", 4 * EACH, 4) == 6 * EACH // 2


def test_a_model_remembers_no_other_cluster() -> None:
    model, size = Links(), np.array([4 * EACH])
    asked = [model.transfer_ns("allreduce", size, range(4), cluster)[0] for cluster in (star(4), mesh(4), star(4))]
    assert asked[0] == asked[2] != asked[1]


def test_ranks_on_one_device_meet_in_its_memory() -> None:
    """4 GB/s, read and written."""
    cluster = replace(star(2), ranks=(0, 0))
    assert transfer(cluster, "send", EACH, 2) == EACH // 2


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.sampled_from(["allreduce", "alltoall", "broadcast"]))
def test_never_faster_with_more_bytes_or_slower_links(one: int, other: int, collective: str) -> None:
    cluster = rails(2, 2, inner_ns=300, outer_ns=5000)
    slower = {name: replace(link, bytes_per_s=link.bytes_per_s / 3) for name, link in cluster.links.items()}
    small, large = sorted((one, other))
    for algorithm in ("ring", DIRECT):
        taken = transfer(cluster, collective, small, 4, algorithm)
        assert taken <= transfer(cluster, collective, large, 4, algorithm)
        assert taken <= transfer(replace(cluster, links=slower), collective, small, 4, algorithm)


def test_data_sheet_rates_are_a_bound_on_eight_a100() -> None:
    """300 GB/s each way: 7/8 of twice the bytes at that rate, and 14 rounds over a switch."""
    size = 1 << 29
    taken = transfer(load_cluster("dgx-a100"), "allreduce", size, 8)
    assert taken == pytest.approx(2 * 7 / 8 * size / 300 + 14 * 2000, abs=1)


def test_what_is_not_known_is_refused() -> None:
    sizes = np.array([4])
    for wrong, sentence in (
        (("allreduce", sizes, [0, 1], None), "none is given"),
        (("allreduce", sizes, [0, 9], star(2)), "no rank 9"),
        (("alltoall", sizes, range(200), replace(star(200), ranks=range(200))), "39,800 messages among 200 ranks"),
    ):
        with pytest.raises(PredictionError, match=sentence):
            Links().transfer_ns(*wrong)
        with pytest.raises(PredictionError, match=sentence):
            Links().contention(*wrong)
    with pytest.raises(PredictionError, match="tree doesn't carry out allgather"):
        transfer(star(4), "allgather", 4, 4, "tree")
    with pytest.raises(PredictionError, match="unknown algorithm 'star'"):
        Links("star")
    apart = replace(star(2), root=replace(star(2).root, inner=((replace(star(2).root.inner[0][0], wirings=()), 1),)))
    with pytest.raises(PredictionError, match="nothing leads from"):
        transfer(apart, "send", 4, 2)


def test_host_work_takes_no_time_and_nothing_is_hindered() -> None:
    assert Links().host_ns("cast", np.array([1 << 30])).tolist() == [0]
    stretch, share = Links().contention("allreduce", np.array([4, 5]), [0, 1], star(2))
    assert stretch.tolist() == share.tolist() == [1.0, 1.0]
