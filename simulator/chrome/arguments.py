"""The members of `args` as sparse columns, gathered chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from makespan.simulator.chrome.events import NO_TEXT, EventArgs
from makespan.simulator.chrome.times import MISSING
from makespan.simulator.chrome.values import Codes, integers, spell, spell_tight
from makespan.trace import SparseColumn


class ArgumentColumns:
    """Collects EventArgs row by row; `columns()` gives a SparseColumn for each member that some event carries."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[NDArray[np.int32], NDArray[Any]]]] = {}
        self._tables = {"shapes": Codes(spell_tight), "shapes_of_2021": Codes(spell_tight)}

    def add(self, rows: NDArray[np.int32], args: Sequence[EventArgs]) -> list[int]:
        """Take over the args of `rows` (k,), ascending; returns the places in it of integers beyond 64 bits."""
        beyond: set[int] = set()
        for member, default, values in zip(
            EventArgs.__struct_fields__,
            EventArgs.__struct_defaults__,
            zip(*map(astuple, args), strict=True),
            strict=False,  # no events, no values
        ):
            if values.count(default) == len(values):
                continue
            if default is MISSING:
                column, large = integers(values)
                there = column != MISSING
                beyond.update(large)
            else:
                there, column = self._text_codes(member, values)
            self.put(member, rows[there], column[there])
        return sorted(beyond)

    def _text_codes(self, member: str, values: Sequence[Any]) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        there = np.array([value is not None and value is not NO_TEXT for value in values])
        told = [value for value, is_there in zip(values, there, strict=True) if is_there]
        if isinstance(told[0], msgspec.Raw):
            told = [bytes(value) for value in told]
        codes = np.zeros(len(values), np.int32)
        codes[there] = self._tables.setdefault(member, Codes(spell)).column(told)
        return there, codes

    def put(self, member: str, rows: NDArray[np.int32], values: NDArray[Any]) -> None:
        """Append values of one member, for rows that are larger than all before."""
        self._parts.setdefault(member, []).append((rows, values))

    def columns(self) -> Mapping[str, SparseColumn]:
        """Everything so far, which is handed over: a large trace should not be in memory twice."""
        found: dict[str, SparseColumn] = {}
        for member in list(self._parts):
            rows, values = (np.concatenate(column) for column in zip(*self._parts.pop(member), strict=True))
            if len(rows):
                table = self._tables[member].texts() if member in self._tables else None
                found[member] = SparseColumn(rows, values, table)
        return found
