"""Clusters: small files against what they say, wrong files against one sentence, 12,288 GPUs in forty lines."""

from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makespan.cluster import Cluster
from makespan.cluster_file import cluster_names, load_cluster, parse_cluster
from makespan.cluster_topology import ROUTE_BYTES, expand, route, routes
from makespan.errors import ClusterError

SMALL = """
format = 1
about = "two hosts of unlike devices"
facts = { cost_per_hour = 3.5 }
[device.big]
kind = "gpu"
memory = "32GB"
memory_bandwidth = "900GB/s"
clock = "1.5GHz"
multiprocessors = 80
flops = { fp32 = "15TFLOP/s", fp16 = "120TFLOP/s" }
facts = { power_watts = 300 }
[device.little]
kind = "gpu"
[link.pcie]
bandwidth = "16GB/s"
latency = "500ns"
[link.net]
bandwidth = "100Gbit/s"
latency = "10us"
duplex = "half"
sharing = "fair"
[host.one]
devices = { big = 2 }
switches = { card = 1 }
connect = [{ from = "big", to = "card", link = "pcie" }]
[host.two]
devices = { little = 3, big = 1 }
switches = { card = 1 }
connect = [{ from = "little", to = "card", link = "pcie" }, { from = "big", to = "card", link = "pcie" }]
[cluster]
hosts = { one = 1, two = 2 }
switches = { middle = 1 }
connect = [
    { from = "one.card", to = "middle", link = "net", lanes = 2 },
    { from = "two.card", to = "middle", link = "net" },
]
"""

LARGE = """
format = 1
[device.a100]
kind = "gpu"
memory = "80GB"
[link.nvlink]
bandwidth = "300GB/s"
latency = "1us"
[link.pcie]
bandwidth = "31.5GB/s"
latency = "500ns"
[link.roce]
bandwidth = "200Gbit/s"
latency = "1us"
[link.uplink]
bandwidth = "400Gbit/s"
latency = "1us"
[host.dgx]
devices = { a100 = 8 }
switches = { nvswitch = 1, nic = 8 }
connect = [
    { from = "a100", to = "nvswitch", link = "nvlink" },
    { from = "a100", to = "nic", link = "pcie", pairs = "match" },
]
[group.pod]
hosts = { dgx = 64 }
switches = { tor = 8 }
connect = [{ from = "dgx.nic", to = "tor", link = "roce", pairs = "match" }]
[cluster]
groups = { pod = 24 }
switches = { spine = 64 }
connect = [{ from = "pod.tor", to = "spine", link = "uplink" }]
"""


def parse(text: str) -> Cluster:
    return parse_cluster(text.encode(), "example", "example.toml")


def test_a_file_gives_what_it_says() -> None:
    cluster = parse(SMALL)
    assert (cluster.name, cluster.about, cluster.facts) == (
        "example",
        "two hosts of unlike devices",
        {"cost_per_hour": 3.5},
    )
    big = cluster.devices["big"]
    assert (big.memory_bytes, big.memory_bytes_per_s, big.clock_hz, big.multiprocessors) == (
        32 * 10**9,
        900e9,
        1.5e9,
        80,
    )
    assert (big.flops_per_s, big.facts) == ({"fp32": 15e12, "fp16": 120e12}, {"power_watts": 300.0})
    little = cluster.devices["little"]
    assert (little.memory_bytes, little.clock_hz, little.flops_per_s, little.facts) == (0, 0.0, {}, {})
    net, pcie = cluster.links["net"], cluster.links["pcie"]
    assert (net.bytes_per_s, net.latency_ns, net.full_duplex, net.fair) == (12.5e9, 10_000, False, True)
    assert (pcie.full_duplex, pcie.fair) == (True, False)
    assert (cluster.device_count, cluster.world_size) == (10, 10)


def test_devices_are_numbered_host_after_host() -> None:
    cluster = parse(SMALL)
    places = [cluster.device_of(rank) for rank in range(10)]
    assert [device.place for device in places[:7]] == [
        "one[0]/big[0]", "one[0]/big[1]", "two[0]/little[0]", "two[0]/little[1]", "two[0]/little[2]", "two[0]/big[0]",
        "two[1]/little[0]",
    ]  # fmt: skip
    assert [device.host for device in places] == ["one[0]"] * 2 + ["two[0]"] * 4 + ["two[1]"] * 4
    assert [device.type.name for device in places[4:6]] == ["little", "big"]
    assert [(host.place, host.devices) for host in cluster.hosts()] == [
        ("one[0]", range(2)), ("two[0]", range(2, 6)), ("two[1]", range(6, 10)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("placement", "wanted"),
    [
        ("", list(range(10))),
        ("ranks = 3", [0, 1, 2]),
        ('order = "spread"', [0, 2, 6, 1, 3, 7, 4, 8, 5, 9]),
        ('order = "spread"\nranks = 4', [0, 2, 6, 1]),
        ("devices = [9, 0, 0]", [9, 0, 0]),
    ],
)
def test_placement(placement: str, wanted: list[int]) -> None:
    cluster = parse(SMALL + "[placement]\n" + placement)
    assert [cluster.device_of(rank).number for rank in range(cluster.world_size)] == wanted


def test_topology_holds_every_part_and_link_once() -> None:
    topology = expand(parse(SMALL))
    assert len(topology) == 10 + 3 + 1
    assert topology.number_of_edges() == 10 + 3
    assert nx.is_connected(topology)
    assert topology.nodes["two[1]/little[2]"] == {"kind": "device", "type": "little"}
    (edge,) = topology["one[0]/card[0]"]["middle[0]"].values()
    assert (edge["link"].name, edge["lanes"]) == ("net", 2)


def test_a_route_knows_rates_directions_and_what_it_competes_for() -> None:
    cluster = parse(SMALL)
    there, back = route(cluster, 0, 9), route(cluster, 9, 0)
    assert [(link.source, link.target) for link in there] == [(link.target, link.source) for link in reversed(back)]
    assert [link.type.name for link in there] == ["pcie", "net", "net", "pcie"]
    assert [link.bytes_per_s for link in there] == [16e9, 25e9, 12.5e9, 16e9]
    assert there[0].resource != back[3].resource, "full duplex: each direction has its own rate"
    assert there[1].resource == back[2].resource, "half duplex: both directions share one"
    assert there[1].duration_ns(25_000) == 10_000 + 1_000
    assert route(cluster, 4, 4) == ()


def test_ranks_on_one_device_need_no_link() -> None:
    assert route(parse(SMALL + "[placement]\ndevices = [3, 3]"), 0, 1) == ()


def test_forty_lines_hold_12288_devices() -> None:
    assert len(LARGE.strip().splitlines()) <= 40
    cluster = parse(LARGE)
    assert cluster.device_count == 12_288
    assert cluster.device_of(12_287).place == "pod[23]/dgx[63]/a100[7]"
    rail = routes(cluster, 3, 11)
    assert [[link.target for link in found] for found in rail] == [
        ["pod[0]/dgx[0]/nic[3]", "pod[0]/tor[3]", "pod[0]/dgx[1]/nic[3]", "pod[0]/dgx[1]/a100[3]"]
    ]
    assert [link.type.name for link in route(cluster, 0, 7)] == ["nvlink", "nvlink"]
    across = routes(cluster, 0, 12_280)
    assert len(across) == 64, "one for each spine switch"
    assert {found[3].source for found in across} == {f"spine[{number}]" for number in range(64)}
    assert route(cluster, 0, 12_280, choice=65) == across[1]


def test_the_whole_of_12288_devices_can_be_drawn() -> None:
    topology = expand(parse(LARGE))
    assert len(topology) == 1536 * 17 + 24 * 8 + 64
    assert topology.number_of_edges() == 1536 * 24 + 24 * 8 * 64
    assert topology.degree["pod[5]/tor[2]"] == 64 + 64


@given(
    counts=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    pairs=st.sampled_from(['"all"', '"match"']),
)
def test_matching_joins_all_and_shares_evenly(counts: tuple[int, int], pairs: str) -> None:
    source, target = counts
    cluster = parse(f"""
    format = 1
    [device.d]
    kind = "gpu"
    [link.l]
    bandwidth = "1GB/s"
    latency = "1us"
    [host.h]
    devices = {{ d = {source} }}
    switches = {{ s = {target} }}
    connect = [{{ from = "d", to = "s", link = "l", pairs = {pairs} }}]
    [cluster]
    hosts = {{ h = 1 }}
    """)
    topology = expand(cluster)
    degrees = [topology.degree[f"h[0]/d[{number}]"] for number in range(source)]
    others = [topology.degree[f"h[0]/s[{number}]"] for number in range(target)]
    assert min(degrees + others) >= 1
    if pairs == '"all"':
        assert topology.number_of_edges() == source * target
    else:
        assert topology.number_of_edges() == max(source, target)
        assert max(degrees) - min(degrees) <= 1
        assert max(others) - min(others) <= 1


def ring(count: int) -> Cluster:
    """Devices joined to their neighbours alone."""
    return parse(f"""
    format = 1
    [device.d]
    kind = "gpu"
    [link.l]
    bandwidth = "1GB/s"
    latency = "1us"
    [host.h]
    devices = {{ d = {count} }}
    connect = [{{ from = "d", to = "d", link = "l", pairs = {[[n, (n + 1) % count] for n in range(count)]} }}]
    [cluster]
    hosts = {{ h = 1 }}
    """)


def test_where_no_switch_leads_devices_pass_on() -> None:
    assert expand(ring(5)).number_of_edges() == 5
    assert [link.target for link in route(ring(5), 0, 2)] == ["h[0]/d[1]", "h[0]/d[2]"]
    assert len(routes(ring(6), 0, 3)) == 2


@given(ranks=st.tuples(st.integers(0, 15), st.integers(0, 15)))
def test_routes_near_the_ends_are_the_quickest_of_all(ranks: tuple[int, int]) -> None:
    cluster = load_cluster("v100-16-tcp")
    source, target = (cluster.device_of(rank).place for rank in ranks)
    whole = expand(cluster)
    whole.remove_nodes_from(
        [place for place, data in whole.nodes(data=True) if data["kind"] == "device" and place not in (source, target)]
    )
    for one, other, edge in whole.edges(data=True):
        rate = edge["link"].bytes_per_s * edge["lanes"]
        edge["time"] = edge["link"].latency_ns + round(ROUTE_BYTES * 1e9 / rate)
        assert one != other
    wanted = nx.shortest_path_length(whole, source, target, "time")
    assert sum(link.duration_ns(ROUTE_BYTES) for link in route(cluster, *ranks)) == wanted


def test_the_cube_mesh_gives_each_gpu_six_links() -> None:
    topology = expand(load_cluster("v100-16-tcp"))
    for place, data in topology.nodes(data=True):
        if data["kind"] == "device":
            edges = topology.edges(place, data=True)
            assert sum(edge["lanes"] for _, _, edge in edges if edge["link"].name == "nvlink2") == 6


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("format = 1", "format = 2", "format is 2, but this makespan reads format 1"),
        ("format = 1", "", "format is missing"),
        ("format = 1", "format = [", "not a TOML file"),
        ("about =", "abuot =", "abuot is unknown; did you mean 'about'?"),
        ('memory = "32GB"', 'memory = "32"', "device.big.memory is not understood: size '32': expected a number and"),
        ('memory = "32GB"', "memory = 32", "device.big.memory is 32, expected text"),
        ('clock = "1.5GHz"', 'clock = "fast"', "device.big.clock is not understood"),
        ("multiprocessors = 80", "multiprocessors = -1", "device.big.multiprocessors is -1"),
        ("multiprocessors = 80", "multiprocessors = true", "device.big.multiprocessors is True"),
        ("multiprocessors", "multiprocesors", "device.big.multiprocesors is unknown; did you mean 'multiprocessors'?"),
        ("power_watts = 300", 'power_watts = "hot"', "device.big.facts.power_watts is 'hot', expected a number"),
        ("power_watts = 300", "power_watts = inf", "expected a number"),
        ('fp32 = "15TFLOP/s"', 'fp32 = "15"', "device.big.flops.fp32 is not understood"),
        ('[device.little]\nkind = "gpu"', "[device.little]", "device.little.kind is missing"),
        ('bandwidth = "16GB/s"', 'bandwidth = "0GB/s"', "link.pcie.bandwidth is not understood"),
        ('latency = "10us"', 'latency = "10"', "link.net.latency is not understood"),
        ('duplex = "half"', 'duplex = "halv"', "link.net.duplex is 'halv'; did you mean 'half'?"),
        ('sharing = "fair"', 'sharing = "x"', "link.net.sharing is 'x'; expected one of exclusive, fair"),
        ("devices = { big = 2 }", "devices = { bigg = 2 }", "one.devices.bigg is not described; did you mean 'big'?"),
        ("devices = { big = 2 }", "devices = { big = 0 }", "host.one.devices.big is 0"),
        ("devices = { big = 2 }", "devices = 2", "host.one.devices is 2, expected a table"),
        ("switches = { middle = 1 }", 'switches = { "a.b" = 1 }', "cluster.switches.a.b is no good name"),
        ("switches = { middle = 1 }", "switches = { one = 1 }", "cluster.switches.one is the name of another part"),
        ("[cluster]", "[host.three]\n[cluster]", "host.three is never used"),
        ("hosts = { one = 1, two = 2 }", "hosts = { one = 1, two = 2, three = 1 }", "hosts.three is not described"),
        ("one = 1, two = 2", "one = 1, two = 99_999_999", "expected 1 to 10,000,000"),
        ('from = "one.card"', 'from = "one.crad"', r"cluster.connect[0].from names 'crad', no device or switch of one"),
        ('from = "one.card"', 'from = "on.card"', "names 'on', no host or group of cluster; did you mean 'one'?"),
        ('link = "net", lanes = 2', 'link = "ent"', "cluster.connect[0].link is 'ent', which is not described"),
        ('link = "net", lanes = 2', 'link = "net", lanes = 0', "cluster.connect[0].lanes is 0"),
        ('link = "net", lanes = 2', 'link = "net", pairs = "none"', "cluster.connect[0].pairs is 'none'"),
        ('link = "net", lanes = 2', 'link = "net", pairs = [[0, 1]]', "pairs holds [0, 1], expected two numbers below"),
        ('link = "net", lanes = 2', 'link = "net", pairs = [[0]]', "pairs holds [0]"),
        ("connect = [\n", 'connect = [ "x",\n', "cluster.connect[0] is 'x', expected a table"),
        ("[host.one]", "[host.one]\ngroups = {}", "host.one.groups is unknown"),
        ("[cluster]", "[placement]\nranks = 11\n[cluster]", "placement.ranks is 11, but there are 10 devices"),
        ("[cluster]", "[placement]\ndevices = [10]\n[cluster]", "placement.devices holds 10, expected device numbers"),
        ("[cluster]", "[group.g]\ngroups = { g = 1 }\n[cluster]\ngroups = { g = 1 }", "lead back to g"),
        ("[cluster]", "[group.one]\n[cluster]", "host.one is the name of a group as well"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_in_a_sentence_with_its_key(old: str, new: str, told: str) -> None:
    assert old in SMALL
    with pytest.raises(ClusterError) as caught:
        parse(SMALL.replace(old, new, 1))
    assert str(caught.value).startswith("example.toml: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@given(content=st.binary(max_size=200))
def test_random_bytes_are_no_cluster(content: bytes) -> None:
    with pytest.raises(ClusterError):
        parse_cluster(content, "x", "x.toml")


def test_unconnected_and_unknown_ranks() -> None:
    cluster = parse(SMALL.replace('{ from = "two.card", to = "middle", link = "net" },', ""))
    with pytest.raises(ClusterError, match=r"nothing leads from one\[0\]/big\[0\] \(rank 0\) to two\[0\]/little"):
        route(cluster, 0, 2)
    for rank in (-1, 10):
        with pytest.raises(ClusterError, match=f"no rank {rank}; expected 0 to 9"):
            route(cluster, 0, rank)


def test_files_are_found_by_name_and_path(tmp_path: Path) -> None:
    assert {"dgx-a100", "dgx-h100", "local-2cpu", "v100-16-tcp"} <= set(cluster_names())
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    assert load_cluster(path).name == "mine"
    with pytest.raises(ClusterError, match=r"no bundled cluster 'dgx-a10' .*; did you mean 'dgx-a100'\?"):
        load_cluster("dgx-a10")
    with pytest.raises(ClusterError, match=r"none\.toml: can't be read \(No such file"):
        load_cluster(tmp_path / "none.toml")
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ClusterError, match="larger than"):
        load_cluster(path)
