"""Begin and end events, which are told apart only by their order, to spans."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class _Open:
    name: int | None
    row: int
    start_ns: int
    place: str


class SpanPairs:
    """Finds the begin of each end: on one thread the innermost open one, by name where the end has a name.

    `alone` lists the places of ends that have no begin.
    """

    def __init__(self) -> None:
        self._open: dict[Hashable, list[_Open]] = {}
        self._rows: list[int] = []
        self._durations: list[int] = []
        self.alone: list[str] = []

    def begin(self, key: Hashable, name: int | None, row: int, start_ns: int, place: str) -> None:
        """A span begins: event `row`, on the thread or under the number `key`."""
        self._open.setdefault(key, []).append(_Open(name, row, start_ns, place))

    def end(self, key: Hashable, name: int | None, end_ns: int, place: str) -> None:
        """A span ends under `key`; None as `name` closes the innermost one."""
        spans = self._open.get(key, [])
        for at in range(len(spans) - 1, -1, -1):
            if name is None or spans[at].name == name:
                span = spans.pop(at)
                self._rows.append(span.row)
                self._durations.append(end_ns - span.start_ns)
                return
        self.alone.append(place)

    def closed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(k,) rows of closed spans and (k,) their durations in nanoseconds."""
        return np.array(self._rows, np.int64), np.array(self._durations, np.int64)

    def left_open(self) -> list[str]:
        """The places of begins that have no end."""
        return [span.place for spans in self._open.values() for span in spans]
