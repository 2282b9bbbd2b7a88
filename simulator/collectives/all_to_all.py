"""All to all: every rank sends to every other one directly, to its next neighbour first, then to the one after.

What libraries do for a personalised exchange (each rank deals out N shares of S/N, sends N - 1 of them, and takes
(N - 1) · (latency + S/N / rate) or, as its messages follow each other without waiting, less latency). The other
collectives in one round of direct messages: few rounds, but many partners at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from makespan.simulator.expansion.collective import Collective, shares
from makespan.simulator.expansion.exchange import Exchange, Parts


def all_to_all(collective: Collective, exchange: Exchange) -> None:
    """Any collective by direct messages; an all-reduce is a reduce-scatter and an all-gather."""
    collective.expect("all-to-all", "alltoall", "allgather", "reducescatter", "allreduce", "broadcast")
    ranks = collective.from_root()
    count = len(ranks)
    nothing: list[Parts] = [()] * count
    if collective.kind == "broadcast":
        for size_bytes in collective.slices():
            for target in ranks[1:]:
                exchange.send(ranks[0], target, size_bytes)
        return
    if collective.kind == "allgather":
        for size_bytes in collective.slices():
            _deal(exchange, ranks, [[size_bytes] * count] * count, nothing)
        return
    for size_bytes in collective.slices(count):
        parts = shares(size_bytes, count)
        arrived = _deal(exchange, ranks, [parts] * count, nothing)
        if collective.kind == "alltoall":
            continue
        summed: list[Parts] = []
        for place, rank in enumerate(ranks):
            held: Parts = ()
            for part in arrived[place]:
                held += exchange.add(rank, parts[place], (part,))
            summed.append(held)
        if collective.kind == "allreduce":
            _deal(exchange, ranks, [[size] * count for size in parts], summed)


def _deal(
    exchange: Exchange, ranks: Sequence[int], share_bytes: Sequence[Sequence[int]], ready: Sequence[Parts]
) -> list[list[int]]:
    """From each of `ranks` its share for each other one, once `ready` there is over; what arrives at each."""
    count = len(ranks)
    arrived: list[list[int]] = [[] for _ in ranks]
    for step in range(1, count):
        for source in range(count):
            target = (source + step) % count
            arrived[target] += exchange.send(ranks[source], ranks[target], share_bytes[source][target], ready[source])
    return arrived
