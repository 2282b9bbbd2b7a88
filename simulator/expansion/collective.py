"""Collective: what some ranks exchange, as an algorithm is asked to carry it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from makespan.cluster import Cluster
from makespan.errors import GraphError
from makespan.resolve import did_you_mean

KINDS: Final = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall")
MAX_SLICES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective: `kind` of KINDS among `ranks` of `cluster`, in the order in which an algorithm counts them.

    `size_bytes` is what one rank puts in: of a broadcast the root's message, of an all-gather each rank's part, of
    the others the whole that is summed or dealt out. Messages longer than `slice_bytes` are cut into slices that
    follow each other through the algorithm (0: never). `root` is the rank that broadcasts, the first where not
    given; `servers` are the ranks that hold the sums of a parameter server, all of `ranks` where not given.
    Raises GraphError where these contradict each other, ClusterError for a rank that the cluster doesn't have.
    """

    kind: str
    size_bytes: int
    ranks: tuple[int, ...]
    cluster: Cluster = field(compare=False)
    slice_bytes: int = 0
    root: int | None = None
    servers: tuple[int, ...] = ()
    hosts: tuple[tuple[int, ...], ...] = field(init=False)
    """The ranks of each host, hosts in the order in which `ranks` first names them."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise GraphError(f"there is no collective {self.kind!r}{did_you_mean(self.kind, KINDS)}")
        if len(self.ranks) < 2 or len(set(self.ranks)) < len(self.ranks):
            raise GraphError(f"a collective of ranks {list(self.ranks)}: expected at least two, each once")
        for name, value in (("size_bytes", self.size_bytes), ("slice_bytes", self.slice_bytes)):
            if value < 0:
                raise GraphError(f"{name} is {value}, expected 0 or more")
        if self.root is not None and self.root not in self.ranks:
            raise GraphError(f"root {self.root} is none of the ranks {list(self.ranks)}")
        if len(set(self.servers)) < len(self.servers):
            raise GraphError(f"servers {list(self.servers)} name a rank twice")
        hosts: dict[str, list[int]] = {}
        for rank in self.ranks:
            hosts.setdefault(self.cluster.device_of(rank).host, []).append(rank)
        object.__setattr__(self, "hosts", tuple(map(tuple, hosts.values())))

    def expect(self, algorithm: str, *kinds: str) -> None:
        """Raise GraphError unless the collective is one of `kinds`, those that `algorithm` knows."""
        if self.kind not in kinds:
            raise GraphError(f"the algorithm {algorithm} knows no {self.kind}: expected {' or '.join(kinds)}")

    def from_root(self) -> tuple[int, ...]:
        """`ranks`, turned so that the root comes first."""
        place = 0 if self.root is None else self.ranks.index(self.root)
        return self.ranks[place:] + self.ranks[:place]

    def slices(self, messages: int = 1, bundled: int = 1) -> list[int]:
        """The bytes in parts, so that no message is longer than a slice.

        An algorithm deals a part out in `messages` equal messages, or sends `bundled` parts of several ranks as one.
        Raises GraphError beyond MAX_SLICES.
        """
        if not self.slice_bytes or not self.size_bytes:
            return [self.size_bytes]
        longest = max(1, self.slice_bytes * messages // bundled)
        count = -(-self.size_bytes // longest)
        if count > MAX_SLICES:
            raise GraphError(f"{self.size_bytes:,} bytes in slices of {self.slice_bytes:,}: take larger slices")
        return shares(self.size_bytes, count)


def shares(size_bytes: int, count: int) -> list[int]:
    """`size_bytes` in `count` parts that differ by at most one byte, the longer ones first."""
    each, rest = divmod(size_bytes, count)
    return [each + 1] * rest + [each] * (count - rest)
