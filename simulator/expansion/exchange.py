"""Exchange: the messages and sums that carry out a collective, as an algorithm tells them one after another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from makespan.errors import GraphError

MAX_PARTS: Final = 4_000_000

Parts = tuple[int, ...]
"""Numbers of messages and sums that must be over before something else begins; none: the rank's own arrival."""


@dataclass(slots=True)
class Exchange:
    """Messages and sums, numbered as they are told; each can wait only for earlier ones.

    `with_sums`: whether sums take time. A message of `size_bytes` leads from `source` to another rank `target`; a
    sum has one rank as both. `after[i]` names the parts that end at the `source` of part i before it begins.
    `round[i]` is the length of the longest such chain before it: a rank sends what belongs to earlier rounds first.
    """

    with_sums: bool = False
    source: list[int] = field(default_factory=list[int])
    target: list[int] = field(default_factory=list[int])
    size_bytes: list[int] = field(default_factory=list[int])
    after: list[Parts] = field(default_factory=list[Parts])
    round: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.source)

    def send(self, source: int, target: int, size_bytes: int, after: Parts = ()) -> Parts:
        """Rank `source` sends to `target` once `after`, which ended there, is over; what waits for the arrival."""
        if source == target:
            raise GraphError(f"rank {source} sends a message to itself: this is a fault of the algorithm")
        return self._tell(source, target, size_bytes, after)

    def add(self, rank: int, size_bytes: int, after: Parts) -> Parts:
        """`rank` adds up two lots of `size_bytes` once `after` is over; what waits for the sum.

        Where sums take no time this is `after` itself.
        """
        return self._tell(rank, rank, size_bytes, after) if self.with_sums else after

    def sent_bytes(self) -> dict[int, int]:
        """What each rank sends in all, by rank."""
        source, target = np.array(self.source, np.int64), np.array(self.target, np.int64)
        size_bytes = np.array(self.size_bytes, np.int64)
        return {int(rank): int(size_bytes[(source == rank) & (target != rank)].sum()) for rank in np.unique(source)}

    def _tell(self, source: int, target: int, size_bytes: int, after: Parts) -> Parts:
        number = len(self.source)
        if number >= MAX_PARTS:
            raise GraphError(f"more than {MAX_PARTS:,} messages in one collective: take larger slices")
        self.source.append(source)
        self.target.append(target)
        self.size_bytes.append(size_bytes)
        self.after.append(after)
        self.round.append(1 + max((self.round[part] for part in after), default=-1))
        return (number,)
