"""Links: what a cluster's links alone say of a collective, with nothing measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.cluster import Cluster
from makespan.cluster_topology import route
from makespan.communication_table import HOST_WORK
from makespan.errors import ClusterError, PredictionError
from makespan.predictors.algorithms import Phase, check_algorithm, phases
from makespan.predictors.requests import check_sizes, check_transfer, whole_ns
from makespan.resolve import did_you_mean
from makespan.units import NS_PER_S

MAX_ROUTES: Final = 20_000
"""Messages of one collective whose routes are looked up; beyond, it takes minutes (all pairs of 140 ranks)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Leg:
    """`rounds` of messages of `share` of the bytes, as long as the slowest of (m,) latency and time per byte."""

    rounds: int
    share: float
    latency_ns: NDArray[np.float64]
    ns_per_byte: NDArray[np.float64]


class Links:
    """Closed forms over the routes that a collective's messages take on a cluster.

    A message takes the latencies of its links and its bytes over the slowest of them. A link in one direction, or in
    both where it is half duplex, carries all messages of a round that cross it: shared fairly or one after another, the
    last ends when all their bytes are through. A round alone lasts as long as its slowest message. The rounds of a ring
    overlap where its links are unlike: the slowest link sets the pace, while latencies add up around the ring, so that
    each round has their mean. Exact on like full-duplex links that serve one message after another; where rounds
    overlap on shared links, a replay of the expanded collective tells more.

    Of equally quick routes a message takes that of its sender's number; within a device it is read and written in
    memory. Needs a cluster; world size, bandwidth, latency and topology are changed there
    (`dataclasses.replace(cluster, ranks=range(64))`).

    The rates are those of the cluster file: protocols, hosts and sums cost nothing, so that this is what a
    network could do rather than what it does. Host work takes no time, and nothing hinders anything.
    """

    def __init__(self, algorithm: str = "ring") -> None:
        """Messages as `algorithm` sends them; raises PredictionError where there is none of that name."""
        check_algorithm(algorithm)
        self._algorithm = algorithm
        # Routes are looked up once for each collective and group of the cluster asked about last.
        self._cluster: Cluster | None = None
        self._legs: dict[tuple[str, tuple[int, ...]], list[_Leg]] = {}

    @property
    def algorithm(self) -> str:
        """How collectives are carried out."""
        return self._algorithm

    @property
    def validity(self) -> str:
        """What is modelled, and that it is a bound."""
        return (
            f"collectives in {self._algorithm} form, of any size, on clusters whose file states rates and latencies; "
            f"no protocol, host or summing costs, so less than a real network takes"
        )

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds; raises PredictionError without a cluster, or for ranks that it doesn't join."""
        sizes = check_transfer(collective, size_bytes, ranks)
        times = np.zeros(sizes.shape)
        for leg in self._legs_of(collective, ranks, cluster):
            each = leg.latency_ns[:, None] + leg.ns_per_byte[:, None] * (leg.share * sizes)
            times += leg.rounds * each.max(axis=0)
        return whole_ns(collective, times)

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(k,) and (k,) ones. Raises as `transfer_ns` does."""
        sizes = check_transfer(collective, size_bytes, ranks)
        self._legs_of(collective, ranks, cluster)
        return np.ones(sizes.shape), np.ones(sizes.shape)

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(k,) zeros; raises PredictionError for unknown work."""
        if work not in HOST_WORK:
            raise PredictionError(f"unknown host work {work!r}{did_you_mean(work, HOST_WORK)}")
        return np.zeros(check_sizes(work, size_bytes).shape, np.int64)

    def _legs_of(self, collective: str, ranks: Sequence[int], cluster: Cluster | None) -> list[_Leg]:
        if cluster is None:
            raise PredictionError("Links reads rates from a cluster, but none is given; name a cluster file")
        if cluster is not self._cluster:
            self._cluster, self._legs = cluster, {}
        key = (collective, tuple(ranks))
        if key not in self._legs:
            self._legs[key] = _legs(phases(self._algorithm, collective, len(ranks)), ranks, cluster)
        return self._legs[key]


def _legs(steps: Sequence[Phase], ranks: Sequence[int], cluster: Cluster) -> list[_Leg]:
    messages = sum(phase.message_count for phase in steps)
    if messages > MAX_ROUTES:
        raise PredictionError(
            f"{messages:,} messages among {len(ranks):,} ranks, more than the {MAX_ROUTES:,} whose routes are looked "
            f"up; use a ring, or AlphaBeta"
        )
    known: dict[tuple[int, int], _Route] = {}
    legs: list[_Leg] = []
    for phase in steps:
        routes: list[_Route] = []
        for sender, receiver in phase.hops():
            ends = ranks[sender], ranks[receiver]
            if ends not in known:
                known[ends] = _route(cluster, *ends)
            routes.append(known[ends])
        crossing = Counter(resource for found in routes for resource in found.ns_per_byte)
        costs = [
            (found.latency_ns, max(each * crossing[resource] for resource, each in found.ns_per_byte.items()))
            for found in routes
        ]
        # Most messages of a regular cluster are alike; only unlike ones are worth comparing.
        latency_ns, ns_per_byte = np.array(sorted(set(costs)), np.float64).T
        if phase.rounds > 1:
            latency_ns = np.array([sum(latency for latency, _ in costs) / len(costs)])
            ns_per_byte = ns_per_byte.max(keepdims=True)
        legs.append(_Leg(phase.rounds, phase.share, latency_ns, ns_per_byte))
    return legs


@dataclass(frozen=True, slots=True)
class _Route:
    """Sum of latencies, and time per byte on each resource that is used."""

    latency_ns: int
    ns_per_byte: dict[tuple[str, str, str], float]


def _route(cluster: Cluster, sender: int, receiver: int) -> _Route:
    try:
        found = route(cluster, sender, receiver, choice=sender)
        device = cluster.device_of(sender)
    except ClusterError as error:
        raise PredictionError(str(error)) from None
    if found:
        return _Route(
            sum(link.type.latency_ns for link in found), {link.resource: NS_PER_S / link.bytes_per_s for link in found}
        )
    memory = device.type.memory_bytes_per_s
    return _Route(0, {(device.place, device.place, "memory"): 2 * NS_PER_S / memory if memory else 0.0})
