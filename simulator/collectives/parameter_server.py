"""Parameter server: workers push to servers, which sum what comes in order of arrival, and pull the sums.

As in BytePS (Jiang et al., OSDI 2020) and ps-lite: each server holds an equal share of the bytes. Every push is summed
by an op of its own that waits for its arrival alone, on the server's one stream for sums: a replay in ready order
serves them in order of arrival, one in recorded order as workers are counted. A server that works as well has its own
share in place; one that only serves copies the first push, at the cost of a sum. With W workers that serve too each
rank sends 2(W - 1)/W · S, as in a ring, but in two rounds.
"""

from __future__ import annotations

from makespan.simulator.expansion.collective import Collective, shares
from makespan.simulator.expansion.exchange import Exchange, Parts


def parameter_server(collective: Collective, exchange: Exchange) -> None:
    """All-reduce through `collective.servers`, by default all of its ranks."""
    collective.expect("parameter-server", "allreduce")
    workers = collective.ranks
    servers = collective.servers or workers
    # Turn by turn each server hears from another worker, so that they don't all crowd at one.
    turns = [
        [(place, server, workers[(place * len(workers) // len(servers) + turn) % len(workers)])
         for place, server in enumerate(servers)]
        for turn in range(1, len(workers) + 1)
    ]  # fmt: skip
    for size_bytes in collective.slices(len(servers)):
        parts = shares(size_bytes, len(servers))
        merged: list[Parts] = [()] * len(servers)
        for turn in turns:
            for place, server, worker in turn:
                if worker != server:
                    pushed = exchange.send(worker, server, parts[place])
                    merged[place] += exchange.add(server, parts[place], pushed)
        for turn in turns:
            for place, server, worker in turn:
                if worker != server:
                    exchange.send(server, worker, parts[place], merged[place])
