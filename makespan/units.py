"""Units: integer nanoseconds and bytes inside; text such as "25 MB" or "1Gbit" only at the border."""

from __future__ import annotations

import re
from typing import Final

from makespan.errors import MakespanError

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
TIME_LIMIT_NS: Final = 1 << 62
"""Times stay below this (146 years), so that the sum of two of them never wraps around unseen."""

_NUMBER: Final = r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*"
_PREFIX: Final = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_TIME: Final = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
}


def parse_bytes(text: str) -> int:
    """Bytes in `text`, such as "25MB", "25 MiB" or "1 GB" (decimal prefixes unless written Ki, Mi, Gi).

    >>> parse_bytes("25 MB"), parse_bytes("1KiB")
    (25000000, 1024)
    """
    match = re.fullmatch(_NUMBER + r"([kmgtp]?i?)b(?:ytes?)?", text.strip(), re.IGNORECASE)
    if match is None or match[2].lower() not in _PREFIX:
        raise MakespanError(f"size {text!r}: expected a number and a unit, such as 25MB or 64KiB")
    return round(float(match[1]) * _PREFIX[match[2].lower()])


def parse_rate(text: str) -> float:
    """Bytes per second in `text`: "1Gbit", "125MB", "100 Gbit/s" (bit and B are told apart).

    >>> parse_rate("1Gbit"), parse_rate("125 MB/s")
    (125000000.0, 125000000.0)
    """
    bare = re.sub(r"(/s|ps)$", "", text.strip())
    match = re.fullmatch(_NUMBER + r"([kmgtp]?i?)(bits?|bytes?|b)", bare, re.IGNORECASE)
    prefix = match[2].lower() if match else ""
    if match is None or prefix not in _PREFIX:
        raise MakespanError(f"rate {text!r}: expected a number and a unit per second, such as 1Gbit or 125MB")
    in_bits = match[3].lower().startswith("bit") or match[3] == "b"
    rate = float(match[1]) * _PREFIX[prefix] / (8 if in_bits else 1)
    if rate <= 0:
        raise MakespanError(f"rate {text!r}: expected more than zero")
    return rate


def parse_quantity(text: str, unit: str) -> float:
    """The number in `text`, which is in `unit` with a decimal prefix: a clock rate, operations per second.

    >>> parse_quantity("1410 MHz", "Hz"), parse_quantity("312TFLOP/s", "FLOP/s")
    (1410000000.0, 312000000000000.0)
    """
    match = re.fullmatch(_NUMBER + r"([kmgtp]?)" + re.escape(unit), text.strip(), re.IGNORECASE)
    if match is None:
        raise MakespanError(f"quantity {text!r}: expected a number and {unit}, such as 1.5G{unit}")
    return float(match[1]) * _PREFIX[match[2].lower()]


def parse_duration(text: str) -> int:
    """Nanoseconds in `text`, such as "5us", "1.5 ms" or "2s".

    >>> parse_duration("1.5 ms")
    1500000
    """
    match = re.fullmatch(_NUMBER + r"(ns|us|µs|ms|s|min)", text.strip())
    if match is None:
        raise MakespanError(f"duration {text!r}: expected a number and a unit, such as 5us or 1.5ms")
    return round(float(match[1]) * _TIME[match[2]])


def format_duration(duration_ns: float) -> str:
    """`duration_ns` for people, three significant digits.

    >>> format_duration(1_234_567), format_duration(12)
    ('1.23 ms', '12 ns')
    """
    magnitude = abs(duration_ns)
    for unit, scale in (("s", NS_PER_S), ("ms", NS_PER_MS), ("µs", NS_PER_US)):
        if magnitude >= scale:
            return f"{_three_digits(duration_ns / scale)} {unit}"
    return f"{duration_ns:.0f} ns"


def format_bytes(size_bytes: float) -> str:
    """`size_bytes` for people, decimal prefixes.

    >>> format_bytes(25_000_000)
    '25.0 MB'
    """
    magnitude = abs(size_bytes)
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if magnitude >= scale:
            return f"{_three_digits(size_bytes / scale)} {unit}"
    return f"{size_bytes:.0f} B"


def _three_digits(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"
