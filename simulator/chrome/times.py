"""Chrome's microseconds, however they are spelled, to exact integer nanoseconds; and stamps that can't be true."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.units import NS_PER_S

MISSING: Final = -(1 << 62)
"""In a column of times: the event has none."""
FAR_NS: Final = (1 << 62) - 1
"""What times beyond 146 years are clipped to; such an event is always beyond `bulk_reach`."""

_EXACT_US: Final = float(1 << 43)
"""Below this many microseconds (101 days) a double names the nanosecond; above, the number's text must be read."""
_LARGEST_US: Final = FAR_NS // 1000


class NotExactError(Exception):
    """A double can't hold these stamps to the nanosecond: decode their text instead."""


def nanoseconds(text: bytes | memoryview) -> int | None:
    """Exact nanoseconds of a number of microseconds as a file spells it, bare or in quotes; None for anything else.

    >>> nanoseconds(b"1711667379483817.823")
    1711667379483817823
    """
    spelled = bytes(text).strip(b'" ')
    whole, dot, fraction = spelled.partition(b".")
    if len(whole) < 17 and len(fraction) < 4:
        try:
            return int(whole + fraction) * 10 ** (3 - len(fraction)) if dot else int(whole) * 1000
        except ValueError:
            pass
    try:
        value = Decimal(spelled.decode())
    except (ArithmeticError, ValueError):
        return None
    if not value.is_finite():
        return None
    if value.adjusted() > 18:
        return FAR_NS if value > 0 else -FAR_NS
    return max(-FAR_NS, min(FAR_NS, int((value * 1000).to_integral_value())))


def nanoseconds_of_texts(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """(n,) from (n,) spelled numbers; MISSING where there is none."""
    values = map(nanoseconds, map(bytes, texts))
    return np.fromiter((MISSING if value is None else value for value in values), np.int64, len(texts))


def nanoseconds_of_numbers(numbers: Sequence[Any]) -> NDArray[np.int64]:
    """(n,) from (n,) decoded integers and floats, with MISSING standing for itself.

    Raises NotExactError where a float is too large to be exact, TypeError where something is no number.
    """
    try:
        column = np.frombuffer(array("q", numbers), np.int64)
    except (TypeError, OverflowError):
        return _from_floats(np.frombuffer(array("d", numbers), np.float64), numbers)
    if len(column) and column.min() >= -_LARGEST_US and column.max() <= _LARGEST_US:
        return column * 1000
    bounded = np.minimum(np.maximum(column, -_LARGEST_US), _LARGEST_US)
    return np.where(column == MISSING, MISSING, bounded * 1000)


def _from_floats(column: NDArray[np.float64], numbers: Sequence[Any]) -> NDArray[np.int64]:
    there = column != MISSING
    if np.any(there & (np.abs(column) >= _EXACT_US)):
        raise NotExactError
    whole = np.floor(column)
    fraction_ns = np.rint((column - whole) * 1000).astype(np.int64)
    return np.where(there, whole.astype(np.int64) * 1000 + fraction_ns, MISSING)


def bulk_reach(start_ns: NDArray[np.int64]) -> tuple[int, int]:
    """The earliest and latest believable time: an hour and a thousand times the bulk's width away from it.

    The bulk is the middle half of the stamps (n,), so up to a quarter of them may be wrong on either side.
    """
    if not len(start_ns):
        return -FAR_NS, FAR_NS
    low, high = np.quantile(start_ns, (0.25, 0.75), method="nearest")
    reach = (int(high) - int(low)) * 1000 + 3600 * NS_PER_S
    return max(1 - FAR_NS, int(low) - reach), min(FAR_NS - 1, int(high) + reach)
