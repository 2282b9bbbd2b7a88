"""Ring: every rank passes shares on to the next, so that all links of a ring are busy all the time.

The bandwidth-optimal algorithm of Patarasuk and Yuan (JPDC 2009), which NCCL, gloo and Horovod use. An all-reduce of S
bytes among N ranks takes N - 1 rounds that leave each rank with one summed share of S/N, and N - 1 that pass
those around: each rank sends 2(N - 1)/N · S, and on equal links that nothing else uses it takes
2(N - 1) · (latency + S/N / rate). A broadcast goes along the ring from the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from makespan.simulator.expansion.collective import Collective, shares
from makespan.simulator.expansion.exchange import Exchange, Parts


def ring(collective: Collective, exchange: Exchange) -> None:
    """All-reduce, all-gather, reduce-scatter or broadcast around the ring of `collective.ranks`."""
    collective.expect("ring", "allreduce", "allgather", "reducescatter", "broadcast")
    ranks = collective.ranks
    nothing: list[Parts] = [()] * len(ranks)
    if collective.kind == "broadcast":
        for size_bytes in collective.slices():
            pass_along(exchange, collective.from_root(), size_bytes, ())
    elif collective.kind == "allgather":
        for size_bytes in collective.slices():
            gather_around(exchange, ranks, [size_bytes] * len(ranks), nothing)
    else:
        for size_bytes in collective.slices(len(ranks)):
            parts = shares(size_bytes, len(ranks))
            summed = sum_around(exchange, ranks, parts, nothing)
            if collective.kind == "allreduce":
                gather_around(exchange, ranks, parts, summed)


def sum_around(
    exchange: Exchange, ranks: Sequence[int], share_bytes: Sequence[int], ready: Sequence[Parts]
) -> list[Parts]:
    """Reduce-scatter: for each of `ranks` what its own sum, of `share_bytes` there, waits for.

    `ready` says for each what must be over before its data can be sent or added to.
    """
    count = len(ranks)
    summed: list[Parts] = []
    for place, size_bytes in enumerate(share_bytes):
        # The share begins its way behind its owner, and is summed at every rank it comes to.
        held = ready[(place + 1) % count]
        for step in range(1, count):
            source, target = (place + step) % count, (place + step + 1) % count
            arrived = exchange.send(ranks[source], ranks[target], size_bytes, held)
            held = exchange.add(ranks[target], size_bytes, (*arrived, *ready[target]))
        summed.append(held)
    return summed


def gather_around(
    exchange: Exchange, ranks: Sequence[int], share_bytes: Sequence[int], ready: Sequence[Parts]
) -> list[Parts]:
    """All-gather: for each of `ranks` what the shares of all others, once there, wait for.

    `ready` says for each what must be over before its own share of `share_bytes` can be sent.
    """
    count = len(ranks)
    complete = list(ready)
    for place, size_bytes in enumerate(share_bytes):
        held = ready[place]
        for step in range(count - 1):
            source, target = (place + step) % count, (place + step + 1) % count
            held = exchange.send(ranks[source], ranks[target], size_bytes, held)
            complete[target] = (*complete[target], *held)
    return complete


def pass_along(exchange: Exchange, ranks: Sequence[int], size_bytes: int, ready: Parts) -> list[Parts]:
    """Broadcast from the first of `ranks`, where it waits for `ready`, to each next; what waits for it at each."""
    held = [ready]
    for source, target in pairwise(ranks):
        held.append(exchange.send(source, target, size_bytes, held[-1]))
    return held
