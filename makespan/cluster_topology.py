"""Topology: a cluster's parts and links as a networkx graph, whole or just around two ranks, and routes on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from makespan.cluster import Cluster, Enclosure, LinkType, Wiring
from makespan.errors import ClusterError

if TYPE_CHECKING:
    import networkx as nx

ROUTE_BYTES: Final = 1_000_000
"""Routes are the quickest ones for a message of this size."""
MAX_EQUAL_ROUTES: Final = 256
MAX_PARTS: Final = 2_000_000
MAX_LINKS: Final = 4_000_000

_Place = tuple[tuple[str, int], ...]
"""Names and numbers from the root inward: (("pod", 3), ("dgx", 12), ("a100", 5))."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link as a route goes along it, from place `source` to place `target`; `lanes` act as one."""

    source: str
    target: str
    type: LinkType
    lanes: int

    @property
    def bytes_per_s(self) -> float:
        """Rate of all lanes, in this direction."""
        return self.type.bytes_per_s * self.lanes

    @property
    def resource(self) -> tuple[str, str, str]:
        """What transfers along this link compete for: one for each direction where it is full duplex."""
        ends = (self.source, self.target)
        if not self.type.full_duplex:
            ends = (min(ends), max(ends))
        return (*ends, self.type.name)

    def duration_ns(self, size_bytes: int) -> int:
        """Latency and transfer of `size_bytes` on the idle link, nanoseconds."""
        return self.type.latency_ns + round(size_bytes * 1e9 / self.bytes_per_s)


def expand(cluster: Cluster) -> nx.MultiGraph[str]:
    """All parts and links: vertices are places, "pod[3]/dgx[12]/a100[5]".

    Vertices have `kind` ("device" or "switch") and `type` (part name); edges have `link` (LinkType) and `lanes`.
    Raises ClusterError beyond MAX_PARTS or MAX_LINKS.
    """
    return _topology(cluster, ())


def route(cluster: Cluster, rank_a: int, rank_b: int, choice: int = 0) -> tuple[Link, ...]:
    """The links from `rank_a` to `rank_b`; empty where both are on one device.

    It is the quickest route for ROUTE_BYTES. `choice` picks one of several that are equally quick, counted
    round (equal-cost multipath). Raises ClusterError where nothing leads there.
    """
    found = routes(cluster, rank_a, rank_b)
    return found[choice % len(found)]


def routes(cluster: Cluster, rank_a: int, rank_b: int) -> list[tuple[Link, ...]]:
    """All equally quick routes, at most MAX_EQUAL_ROUTES, in a fixed order.

    They lead over switches, not through other devices, and stay within the enclosures that hold the two ends
    and the switches of those around them, as traffic in a tree or a Clos network does. Only where nothing leads
    through these, the whole cluster may help, and then other devices too (rings and tori).
    """
    source, target = cluster.device_of(rank_a).place, cluster.device_of(rank_b).place
    if source == target:
        return [()]
    found = _quickest(_topology(cluster, (_parsed(source), _parsed(target))), source, target, through_devices=False)
    if not found:
        whole = expand(cluster)
        found = _quickest(whole, source, target, through_devices=False)
        found = found or _quickest(whole, source, target, through_devices=True)
    if not found:
        raise ClusterError(
            f"{cluster.source}: nothing leads from {source} (rank {rank_a}) to {target} (rank {rank_b}); connect them"
        )
    return found


def _quickest(
    topology: nx.MultiGraph[str], source: str, target: str, *, through_devices: bool
) -> list[tuple[Link, ...]]:
    import networkx as nx

    def quickest_link(one: str, other: str) -> Link:
        links = [Link(one, other, edge["link"], edge["lanes"]) for edge in topology[one][other].values()]
        return min(links, key=lambda link: link.duration_ns(ROUTE_BYTES))

    def weight(one: str, other: str, _: Any) -> int | None:
        """None hides a link: it would lead into a device on the way."""
        if not through_devices and other != target and topology.nodes[other]["kind"] == "device":
            return None
        return quickest_link(one, other).duration_ns(ROUTE_BYTES)

    try:
        paths = islice(nx.all_shortest_paths(topology, source, target, weight), MAX_EQUAL_ROUTES)
        return [tuple(quickest_link(*hop) for hop in pairwise(path)) for path in paths]
    except nx.NetworkXNoPath:
        return []


def _topology(cluster: Cluster, around: tuple[_Place, ...]) -> nx.MultiGraph[str]:
    """The topology, with all inner enclosures, or with those alone that hold one of the places `around`."""
    import networkx as nx

    topology: nx.MultiGraph[str] = nx.MultiGraph()
    waiting: list[tuple[Enclosure, _Place]] = [(cluster.root, ())]
    enclosures: list[tuple[Enclosure, _Place]] = []
    while waiting:
        enclosure, place = waiting.pop()
        enclosures.append((enclosure, place))
        for kind, counts in (("device", enclosure.devices), ("switch", enclosure.switches)):
            for name, count in counts.items():
                _expect_room(cluster, len(topology) + count, MAX_PARTS, "parts")
                topology.add_nodes_from(
                    (_text((*place, (name, index))) for index in range(count)), kind=kind, type=name
                )
        for inner, count in enclosure.inner:
            _expect_room(cluster, len(waiting) + count, MAX_PARTS, "parts")
            waiting += [
                (inner, (*place, (inner.name, index)))
                for index in range(count)
                if _is_near((*place, (inner.name, index)), around)
            ]
    link_count = 0
    for enclosure, place in enclosures:
        for wiring in enclosure.wirings:
            link = cluster.links[wiring.link]
            for source, target in _wires(enclosure, place, wiring, around):
                link_count += 1
                _expect_room(cluster, link_count, MAX_LINKS, "links")
                topology.add_edge(source, target, link=link, lanes=wiring.lanes)
    return topology


def _wires(
    enclosure: Enclosure, place: _Place, wiring: Wiring, around: tuple[_Place, ...]
) -> Iterator[tuple[str, str]]:
    sources, source_count = _ends(enclosure, place, wiring.source, around)
    targets, target_count = _ends(enclosure, place, wiring.target, around)
    numbered: dict[int, list[_Place]] = defaultdict(list)
    for end in targets:
        numbered[end[-1][1]].append(end)
    alike = wiring.source == wiring.target
    joined: dict[int, list[int]] = defaultdict(list)
    if isinstance(wiring.pairs, tuple):
        for one, other in wiring.pairs:
            joined[one].append(other)
            if alike:
                joined[other].append(one)
    for source in sources:
        number = source[-1][1]
        if wiring.pairs == "all":
            partners = list(range(target_count))
        elif wiring.pairs == "match":
            partners = _matched(number, source_count, target_count)
        else:
            partners = joined[number]
        for partner in partners:
            for target in numbered[partner]:
                # Between parts of one name each pair is met from both sides.
                if not alike or source < target:
                    yield _text(source), _text(target)


def _matched(number: int, source_count: int, target_count: int) -> list[int]:
    """The share of `target_count` numbers that falls to `number` of `source_count`."""
    if source_count >= target_count:
        return [number * target_count // source_count]
    return [other for other in range(target_count) if other * source_count // target_count == number]


def _ends(
    enclosure: Enclosure, place: _Place, path: tuple[str, ...], around: tuple[_Place, ...]
) -> tuple[list[_Place], int]:
    """All parts at the end of `path`, and how many of them each enclosure there has."""
    holders = [(enclosure, place)]
    for name in path[:-1]:
        holders = [
            (inner, (*outer_place, (name, index)))
            for outer, outer_place in holders
            for inner, count in outer.inner
            if inner.name == name
            for index in range(count)
            if _is_near((*outer_place, (name, index)), around)
        ]
    if not holders:
        return [], 0
    parts = {**holders[0][0].devices, **holders[0][0].switches}
    count = parts[path[-1]]
    return [(*outer, (path[-1], index)) for _, outer in holders for index in range(count)], count


def _is_near(place: _Place, around: tuple[_Place, ...]) -> bool:
    return not around or any(end[: len(place)] == place for end in around)


def _text(place: _Place) -> str:
    return "/".join(f"{name}[{index}]" for name, index in place)


def _parsed(place: str) -> _Place:
    parts = (part.removesuffix("]").split("[") for part in place.split("/"))
    return tuple((name, int(index)) for name, index in parts)


def _expect_room(cluster: Cluster, count: int, limit: int, what: str) -> None:
    if count > limit:
        raise ClusterError(f"{cluster.source}: more than {limit:,} {what}; such a cluster can't be drawn part by part")
