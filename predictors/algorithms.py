"""Algorithms: which messages a collective takes under which algorithm, as rounds of messages of one size.

S bytes that one rank puts in, N ranks; a round begins when the one before is over everywhere:

| algorithm | collective | rounds | each carries |
|---|---|---|---|
| ring | allreduce | 2(N - 1) | S/N |
| | allgather, reducescatter | N - 1 | S, S/N |
| | broadcast, in ever finer slices | N - 1 | S/(N - 1) |
| tree (binomial, not sliced) | allreduce, broadcast | 2 ceil(log2 N), ceil(log2 N) | S |
| all-to-all: a rank's N - 1 | alltoall, reducescatter, allgather | 1 | S/N, S/N, S |
| messages at once | allreduce, broadcast | 2, 1 | S/N, S |

An alltoall is direct and a send is one message under every algorithm. Patarasuk and Yuan (JPDC 2009) for the ring;
Thakur, Rabenseifner and Gropp (IJHPCA 2005) for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from makespan.errors import PredictionError
from makespan.resolve import did_you_mean

_TREE: Final = ("allreduce", "broadcast")
_NEXT: Final = range(1, 2)
ALGORITHMS: Final = ("ring", "tree", "all-to-all")


@dataclass(frozen=True, slots=True)
class Phase:
    """`rounds` alike: the ranks at the places `senders` send `share` of S each to those `offsets` places further on.

    Places are those in the list of `count` ranks, counted round. All messages of a round are sent at once.
    """

    rounds: int
    share: float
    senders: range
    offsets: range
    count: int

    @property
    def message_count(self) -> int:
        """Messages of one round."""
        return len(self.senders) * len(self.offsets)

    def hops(self) -> list[tuple[int, int]]:
        """Sender's and receiver's place of every message of one round."""
        return [(place, (place + offset) % self.count) for offset in self.offsets for place in self.senders]


def check_algorithm(algorithm: str) -> None:
    """Raise PredictionError where there is no such algorithm."""
    if algorithm not in ALGORITHMS:
        raise PredictionError(f"unknown algorithm {algorithm!r}{did_you_mean(algorithm, ALGORITHMS)}")


def phases(algorithm: str, collective: str, count: int) -> tuple[Phase, ...]:
    """The phases of `collective` among `count` ranks, none for one rank; a broadcast begins at the first.

    Raises PredictionError where the algorithm is unknown or doesn't carry out the collective.
    """
    check_algorithm(algorithm)
    if count == 1:
        return ()
    everyone, others = range(count), range(1, count)
    if collective == "send":
        return (Phase(1, 1.0, range(1), _NEXT, count),)
    if collective == "alltoall":
        return (Phase(1, 1 / count, everyone, others, count),)
    if algorithm == "tree":
        if collective not in _TREE:
            raise PredictionError(f"a tree doesn't carry out {collective}, only {' and '.join(_TREE)}; take a ring")
        reaches = [1 << level for level in range((count - 1).bit_length())]
        up = [Phase(1, 1.0, range(reach, count, 2 * reach), range(-reach, 1 - reach), count) for reach in reaches]
        down = [Phase(1, 1.0, range(0, count - reach, 2 * reach), range(reach, 1 + reach), count) for reach in reaches]
        return (*(up if collective == "allreduce" else ()), *reversed(down))
    if algorithm == "ring":
        rounds, share = {
            "allreduce": (2 * (count - 1), 1 / count),
            "allgather": (count - 1, 1.0),
            "reducescatter": (count - 1, 1 / count),
            "broadcast": (count - 1, 1 / (count - 1)),
        }[collective]
        senders = range(count - 1) if collective == "broadcast" else everyone
        return (Phase(rounds, share, senders, _NEXT, count),)
    if collective == "broadcast":
        return (Phase(1, 1.0, range(1), others, count),)
    dealt = Phase(1, 1.0 if collective == "allgather" else 1 / count, everyone, others, count)
    return (dealt, dealt) if collective == "allreduce" else (dealt,)


def closed_form(algorithm: str, collective: str, count: int) -> tuple[int, float]:
    """The factors of latency and of S · time per byte on equal links: rounds, and the part of S that a rank sends.

    An allreduce in a ring: 2(N - 1) and 2(N - 1)/N. Raises as `phases` does.
    """
    found = phases(algorithm, collective, count)
    sent = sum(phase.rounds * phase.share * len(phase.offsets) for phase in found)
    return sum(phase.rounds for phase in found), sent
