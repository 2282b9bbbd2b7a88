"""Every file of datasets/clusters loads, says where its figures come from, and joins all its ranks."""

import random
from pathlib import Path

import networkx as nx
import pytest

from makespan.cluster_file import cluster_names, load_cluster
from makespan.cluster_topology import expand, route

FOLDER = Path(__file__).parents[2] / "datasets" / "clusters"
PATHS = sorted(FOLDER.glob("*.toml"))


def test_there_are_clusters_and_nothing_else() -> None:
    assert PATHS, f"{FOLDER} holds no cluster"
    assert [path.stem for path in PATHS] == cluster_names()
    assert [path.name for path in FOLDER.iterdir() if path.suffix != ".toml" and not path.name.startswith(".")] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_cluster_file(path: Path) -> None:
    assert path.read_text().startswith("# "), "a file begins with where its figures come from"
    cluster = load_cluster(path.stem)
    assert cluster.about
    for device in cluster.devices.values():
        assert device.memory_bytes > 0 and device.memory_bytes_per_s > 0 and device.flops_per_s["fp32"] > 0
    topology = expand(cluster)
    assert nx.is_connected(topology)
    assert {data["link"].name for _, _, data in topology.edges(data=True)} == set(cluster.links), "every link is used"
    chance = random.Random(0)
    for _ in range(20):
        one, other = (chance.randrange(cluster.world_size) for _ in range(2))
        links = route(cluster, one, other)
        places = [cluster.device_of(one).place, *(link.target for link in links)]
        assert places[-1] == cluster.device_of(other).place
        assert [link.source for link in links] == places[:-1]
