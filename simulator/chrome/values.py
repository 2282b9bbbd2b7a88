"""Values as profilers spell them: text that should be numbers, numbers that should be text, integers beyond 64 bits."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.times import MISSING

_LARGEST: Final = 1 << 63


class Codes(dict[Any, int]):
    """Numbers values in the order in which they are met; different spellings of one text share a number."""

    def __init__(self, spell: Callable[[Any], Any]) -> None:
        super().__init__()
        self._spell = spell
        self._spelled: dict[Any, int] = {}

    def __missing__(self, value: Any) -> int:
        code = self[value] = self._spelled.setdefault(self._spell(value), len(self._spelled))
        return code

    def column(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """(n,) codes of (n,) values; those that can't be hashed are spelled first."""
        try:
            return np.fromiter(map(self.__getitem__, values), np.int32, len(values))
        except TypeError:
            return np.fromiter((self[self._spell(value)] for value in values), np.int32, len(values))

    def texts(self) -> tuple[Any, ...]:
        """The spelled values, in the order of their codes."""
        return tuple(self._spelled)


def spell(value: Any) -> str:
    """A name, a number, a list or JSON bytes as text; nothing as empty text."""
    if isinstance(value, str):
        return value
    if value is None or value == MISSING:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else msgspec.json.encode(value).decode()


def spell_tight(value: Any) -> str:
    """As `spell`, without white space: lists of numbers that differ only in layout become equal."""
    return "".join(spell(value).split())


def integers(values: Sequence[Any]) -> tuple[NDArray[np.int64], list[int]]:
    """(n,) integers, MISSING for what is none, and the positions of those beyond 64 bits.

    Text is read as a number where it is one ("2560", "0x0"). What a profiler wrote as an unsigned 64-bit number is
    read as the signed one that it stands for (2**64 - 1 is -1).
    """
    try:
        return np.frombuffer(array("q", values), np.int64), []
    except (TypeError, OverflowError):
        read = [_integer(value) for value in values]
    large = [at for at, value in enumerate(read) if not -_LARGEST <= value < _LARGEST]
    for at in large:
        read[at] = read[at] - 2 * _LARGEST if 0 < read[at] < 2 * _LARGEST else MISSING
    return np.array(read, np.int64), large


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else MISSING
    try:
        return int(value, 0) if isinstance(value, str) and len(value) < 32 else MISSING
    except ValueError:
        return MISSING
