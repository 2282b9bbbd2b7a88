"""Wires: the links of a cluster that messages between its ranks hold, as streams of a graph.

A message holds every link of its route at once, and flows: its first byte enters a link one latency after it entered
the one before, and its last byte likewise. Each link is a stream for each direction where it is full duplex, for
both together where not; it shares its rate where the cluster says that transfers are fair, and else serves one
message after another. A route of one link also gets the receiving end of it, so that a message is always a SEND
and at least one RECV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from makespan.cluster import Cluster
from makespan.cluster_topology import Link, route
from makespan.graph import NONE, Stream, StreamKind


@dataclass(frozen=True, slots=True, eq=False)
class Wires:
    """Routes as CSR: the stations of route i are `pointer[i]` to `pointer[i + 1]` - 1.

    `stream` (k,) int32 into `streams`, `bytes_per_s` (k,) float64 (infinite: takes no time) and `latency_ns` (k,)
    int64 of each station; `pointer` (routes+1,) int64. A stream is of the rank whose device its link begins at,
    else of that at which it ends; links between switches are nobody's, of rank -1.
    """

    streams: tuple[Stream, ...]
    pointer: NDArray[np.int64]
    stream: NDArray[np.int32]
    bytes_per_s: NDArray[np.float64]
    latency_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Station:
    """A stream that a message holds, its rate, and the latency from there to what comes next."""

    stream: Stream
    bytes_per_s: float
    latency_ns: int


def wire(cluster: Cluster, pairs: Sequence[tuple[int, int]], sum_bytes_per_s: float) -> Wires:
    """The routes from rank to rank for each of `pairs`; of a rank to itself, its stream of sums.

    Of several equally quick routes a pair takes that of its sending rank's number, counted round. Ranks on one
    device exchange through its memory, which is read and written (no time where the cluster file doesn't state
    its rate). Raises ClusterError where ranks are not joined.
    """
    rank_at: dict[str, int] = {}
    for rank in sorted({rank for pair in pairs for rank in pair}):
        rank_at.setdefault(cluster.device_of(rank).place, rank)
    routes: list[list[_Station]] = []
    for source, target in pairs:
        if source == target:
            sums = Stream(source, "sums", StreamKind.DEVICE)
            routes.append([_Station(sums, sum_bytes_per_s or np.inf, 0)])
            continue
        stations = [_on_link(link, rank_at) for link in route(cluster, source, target, choice=source)]
        if not stations:
            device = cluster.device_of(source)
            memory = Stream(rank_at[device.place], f"{device.place} memory", StreamKind.SHARED)
            stations.append(_Station(memory, device.type.memory_bytes_per_s / 2 or np.inf, 0))
        if len(stations) == 1:
            sent = stations[0]
            arriving = Stream(target, f"{sent.stream.name}, arriving at rank {target}", sent.stream.kind)
            stations.append(_Station(arriving, sent.bytes_per_s, 0))
        routes.append(stations)
    return _packed(routes)


def _on_link(link: Link, rank_at: Mapping[str, int]) -> _Station:
    owners = [rank_at[place] for place in (link.source, link.target) if place in rank_at]
    if not link.type.full_duplex:
        owners.sort()
    one, other, kind = link.resource
    name = f"{one} {'→' if link.type.full_duplex else '↔'} {other} ({kind})"
    shares_rate = StreamKind.SHARED if link.type.fair else StreamKind.LINK
    return _Station(Stream(owners[0] if owners else NONE, name, shares_rate), link.bytes_per_s, link.type.latency_ns)


def _packed(routes: Sequence[Sequence[_Station]]) -> Wires:
    flat = [station for stations in routes for station in stations]
    number: dict[Stream, int] = {}
    for station in flat:
        number.setdefault(station.stream, len(number))
    pointer = np.zeros(len(routes) + 1, np.int64)
    np.cumsum([len(stations) for stations in routes], out=pointer[1:])
    return Wires(
        tuple(number),
        pointer,
        np.array([number[station.stream] for station in flat], np.int32),
        np.array([station.bytes_per_s for station in flat], np.float64),
        np.array([station.latency_ns for station in flat], np.int64),
    )
