"""Tree: the simple binomial tree, in which the ranks that have the message double from round to round.

Not the double binary tree of newer NCCL: one tree, whose inner ranks send and receive more than its leaves. An
all-reduce of S bytes sums toward the root and broadcasts back, and takes 2 · ceil(log2 N) · (latency + S / rate)
where no slices overlap: fewer rounds than a ring, hence quicker for short messages, and 2(N - 1) · S bytes in all,
as many as a ring.
"""

from __future__ import annotations

from makespan.simulator.expansion.collective import Collective
from makespan.simulator.expansion.exchange import Exchange, Parts


def tree(collective: Collective, exchange: Exchange) -> None:
    """All-reduce or broadcast along the binomial tree that grows from the root (of an all-reduce: the first rank)."""
    collective.expect("tree", "allreduce", "broadcast")
    ranks = collective.from_root()
    for size_bytes in collective.slices():
        held: list[Parts] = [()] * len(ranks)
        if collective.kind == "allreduce":
            reach = 1
            while reach < len(ranks):
                for place in range(0, len(ranks) - reach, 2 * reach):
                    child = place + reach
                    arrived = exchange.send(ranks[child], ranks[place], size_bytes, held[child])
                    held[place] = exchange.add(ranks[place], size_bytes, (*arrived, *held[place]))
                reach *= 2
        reach = 1 << (len(ranks) - 1).bit_length() - 1
        while reach:
            for place in range(0, len(ranks) - reach, 2 * reach):
                held[place + reach] = exchange.send(ranks[place], ranks[place + reach], size_bytes, held[place])
            reach //= 2
