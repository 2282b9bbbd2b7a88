"""Draft order: where moved and added ops stand among the others before a graph is numbered anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from makespan.errors import GraphError


class DraftOrder:
    """The order of `count` numbered ops, in which single ops are put right before or after others.

    Further ops, numbered from `count` on, follow at the end unless they are placed. An op that is placed takes
    along those that were placed beside it. Of several ops placed on the same side of one op, the first placed
    comes first.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._anchor: dict[int, int] = {}
        self._before: dict[int, list[int]] = {}
        self._after: dict[int, list[int]] = {}

    def place(self, op: int, after: int | None = None, before: int | None = None) -> None:
        """Put `op` right after or before another one; with neither it stays at its number.

        Raises GraphError where both are given, or where that other one stands beside `op` itself.
        """
        if after is not None and before is not None:
            raise GraphError(f"op {op} can't be placed after {after} and before {before} at once: name one of them")
        anchor = after if after is not None else before
        if anchor is None:
            return
        above: int | None = anchor
        while above is not None:
            if above == op:
                raise GraphError(f"op {op} can't be placed beside op {anchor}, which was placed beside it")
            above = self._anchor.get(above)
        former = self._anchor.get(op)
        if former is not None:
            for side in (self._before, self._after):
                if op in side.get(former, ()):
                    side[former].remove(op)
        self._anchor[op] = anchor
        (self._before if after is None else self._after).setdefault(anchor, []).append(op)

    def positions(self, total: int) -> NDArray[np.int64]:
        """(total,) int64: the place of every op in the order."""
        is_root = np.ones(total, np.bool_)
        is_root[list(self._anchor)] = False
        roots = np.flatnonzero(is_root)
        pieces: list[NDArray[np.int64]] = []
        done = 0
        for root in sorted((self._before.keys() | self._after.keys()) - self._anchor.keys()):
            place = int(np.searchsorted(roots, root))
            pieces += [roots[done:place], np.fromiter(self._around(root), np.int64)]
            done = place + 1
        order = np.concatenate([*pieces, roots[done:]])
        position = np.empty(total, np.int64)
        position[order] = np.arange(total)
        return position

    def _around(self, root: int) -> Iterator[int]:
        """`root` among all that was placed beside it, beside those, and so on; without recursion."""
        waiting = [(root, False)]
        while waiting:
            op, opened = waiting.pop()
            if opened:
                yield op
                continue
            waiting += [(beside, False) for beside in reversed(self._after.get(op, []))]
            waiting.append((op, True))
            waiting += [(beside, False) for beside in reversed(self._before.get(op, []))]
