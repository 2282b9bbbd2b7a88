"""Provenance: which ops of an older graph each op of a newer one stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.errors import GraphError


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """For each of n new ops, the old ops it stands for: `old[pointer[i]:pointer[i + 1]]`, ascending.

    `pointer` (n+1,) int64, `old` (k,) int32 with values below `old_count`. A new op may stand for several old
    ones (fusion) or for none (it was added), and an old op may have several heirs (a split) or none (removed).
    """

    pointer: NDArray[np.int64]
    old: NDArray[np.int32]
    old_count: int

    def __post_init__(self) -> None:
        self.pointer.setflags(write=False)
        self.old.setflags(write=False)

    def __len__(self) -> int:
        return len(self.pointer) - 1

    @staticmethod
    def identity(count: int) -> Provenance:
        """Each of `count` ops stands for itself."""
        return Provenance(np.arange(count + 1, dtype=np.int64), np.arange(count, dtype=np.int32), count)

    @staticmethod
    def from_pairs(new: ArrayLike, old: ArrayLike, new_count: int, old_count: int) -> Provenance:
        """From parallel arrays: op `new[i]` stands for op `old[i]`; pairs may come in any order, and twice."""
        newer, older = np.asarray(new, np.int64), np.asarray(old, np.int64)
        for label, ops, count in (("new", newer, new_count), ("old", older, old_count)):
            if np.any((ops < 0) | (ops >= count)):
                raise GraphError(f"provenance: {label} op outside the {count} there are")
        pairs = np.sort(newer * max(old_count, 1) + older)
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        newer, older = np.divmod(pairs, max(old_count, 1))
        pointer = np.zeros(new_count + 1, np.int64)
        np.cumsum(np.bincount(newer, minlength=new_count), out=pointer[1:])
        return Provenance(pointer, older.astype(np.int32), old_count)

    def of(self, op: int) -> NDArray[np.int32]:
        """The old ops that new op `op` stands for."""
        return self.old[self.pointer[op] : self.pointer[op + 1]]

    def pairs(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Parallel (k,) int32 arrays: each new op beside each old op it stands for, by new op."""
        new = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.pointer))
        return new, self.old

    def inverse(self) -> Provenance:
        """The same relation read backwards: for each old op, the new ops that stand for it."""
        new, old = self.pairs()
        return Provenance.from_pairs(old, new, self.old_count, len(self))

    def then(self, later: Provenance) -> Provenance:
        """This relation followed by `later`, whose old ops are the new ops here.

        Told of a chain of passes, the result names ops of the first graph, and so events of the trace.
        Raises GraphError where the two don't fit together.
        """
        if later.old_count != len(self):
            raise GraphError(
                f"provenance of {len(self)} ops can't be followed by one that starts from {later.old_count}; "
                "compose them in the order in which the graphs were made"
            )
        newest, middle = later.pairs()
        counts = np.diff(self.pointer)[middle]
        # Each pair (newest, middle) becomes one pair for every old op of the middle one.
        begin = np.repeat(self.pointer[:-1][middle], counts)
        within = np.arange(len(begin), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        old = self.old[begin + within]
        return Provenance.from_pairs(np.repeat(newest, counts), old, len(later), self.old_count)

    def added(self) -> NDArray[np.int64]:
        """New ops that stand for no old op."""
        return np.flatnonzero(np.diff(self.pointer) == 0)

    def removed(self) -> NDArray[np.int64]:
        """Old ops that no new op stands for."""
        return np.flatnonzero(np.bincount(self.old, minlength=self.old_count) == 0)

    def is_identity(self) -> bool:
        """True where every op stands for itself alone."""
        count = self.old_count
        return len(self) == count == len(self.old) and bool(np.all(self.old == np.arange(count)))

    def verify(self) -> None:
        """Raise GraphError naming the first broken invariant."""
        pointer, old = self.pointer, self.old
        whole = len(pointer) > 0 and pointer[0] == 0 and pointer[-1] == len(old)
        if not whole or np.any(np.diff(pointer) < 0):
            raise GraphError(f"provenance: pointer doesn't cut {len(old)} old ops into runs, one for each new op")
        if np.any((old < 0) | (old >= self.old_count)):
            raise GraphError(f"provenance names an old op outside the {self.old_count} there are")
        inner = np.ones(len(old), np.bool_)
        inner[pointer[:-1][pointer[:-1] < len(old)]] = False
        if np.any((np.diff(old, prepend=0) <= 0) & inner):
            raise GraphError("provenance: the old ops of a new op are not ascending and distinct")


def compose(parts: Sequence[Provenance]) -> Provenance:
    """The provenance of a chain of rewrites, the first rewrite first; raises GraphError on an empty chain."""
    if not parts:
        raise GraphError("no provenance to compose: expected at least one rewrite")
    whole = parts[0]
    for later in parts[1:]:
        whole = whole.then(later)
    return whole
