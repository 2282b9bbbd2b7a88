"""Hierarchical: within each host, then between hosts, then within hosts again, each a ring.

Horovod's and BlueConnect's scheme (Cho et al., MLSys 2019). An all-reduce of S bytes among H hosts of n ranks each
reduce-scatters within the hosts, all-reduces each of the n shares among the ranks that hold it, and all-gathers within:
2(n - 1) · (latency + S/n / rate) on the links of a host and 2(H - 1) · (latency + S/(nH) / rate) between hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from makespan.errors import GraphError
from makespan.simulator.collectives.ring import gather_around, pass_along, sum_around
from makespan.simulator.expansion.collective import Collective, shares
from makespan.simulator.expansion.exchange import Exchange, Parts

_Around = Callable[[Exchange, Sequence[int], Sequence[int], Sequence[Parts]], list[Parts]]


def hierarchical(collective: Collective, exchange: Exchange) -> None:
    """All-reduce, all-gather, reduce-scatter or broadcast; raises GraphError unless hosts have as many ranks each."""
    collective.expect("hierarchical", "allreduce", "allgather", "reducescatter", "broadcast")
    hosts = collective.hosts
    counts = sorted({len(host) for host in hosts})
    if len(counts) > 1:
        raise GraphError(
            f"hierarchical needs as many ranks on every host, but they have from {counts[0]} to {counts[-1]}"
        )
    per_host = counts[0]
    if collective.kind == "broadcast":
        for size_bytes in collective.slices():
            _broadcast(exchange, collective, size_bytes)
    elif collective.kind == "allgather":
        for size_bytes in collective.slices(bundled=len(hosts)):
            nothing: list[list[Parts]] = [[()] * per_host for _ in hosts]
            between = _between(exchange, hosts, [[size_bytes] * len(hosts)] * per_host, nothing, gather_around)
            bundles = [size_bytes * len(hosts)] * per_host
            for host, ready in zip(hosts, between, strict=True):
                gather_around(exchange, host, bundles, ready)
    else:
        for size_bytes in collective.slices(per_host):
            _reduce(exchange, collective, size_bytes)


def _reduce(exchange: Exchange, collective: Collective, size_bytes: int) -> None:
    """A slice of an all-reduce, or of a reduce-scatter, which ends before anything is gathered."""
    hosts = collective.hosts
    parts = shares(size_bytes, len(hosts[0]))
    finer = [shares(part, len(hosts)) for part in parts]
    within = [sum_around(exchange, host, parts, [()] * len(host)) for host in hosts]
    summed = _between(exchange, hosts, finer, within, sum_around)
    if collective.kind == "reducescatter":
        return
    gathered = _between(exchange, hosts, finer, summed, gather_around)
    for host, ready in zip(hosts, gathered, strict=True):
        gather_around(exchange, host, parts, ready)


def _between(
    exchange: Exchange,
    hosts: Sequence[Sequence[int]],
    share_bytes: Sequence[Sequence[int]],
    ready: Sequence[Sequence[Parts]],
    around: _Around,
) -> list[list[Parts]]:
    """One ring for each place on a host, through the ranks of that place; `ready` and the result are by host, place."""
    result: list[list[Parts]] = [[] for _ in hosts]
    for place, sizes in enumerate(share_bytes):
        column = [host[place] for host in hosts]
        for number, parts in enumerate(around(exchange, column, sizes, [host[place] for host in ready])):
            result[number].append(parts)
    return result


def _broadcast(exchange: Exchange, collective: Collective, size_bytes: int) -> None:
    """From the root through one rank of every host, and from there through the host."""
    root = collective.from_root()[0]
    place = next(host.index(root) for host in collective.hosts if root in host)
    hosts = sorted(collective.hosts, key=lambda host: root not in host)
    held = pass_along(exchange, [host[place] for host in hosts], size_bytes, ())
    for host, ready in zip(hosts, held, strict=True):
        pass_along(exchange, host[place:] + host[:place], size_bytes, ready)
