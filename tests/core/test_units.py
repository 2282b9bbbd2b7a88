"""Units: the examples in the module, and that what is printed reads back."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makespan import units
from makespan.errors import MakespanError
from makespan.units import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
    parse_quantity,
    parse_rate,
)


def test_examples_in_the_docstrings_are_true() -> None:
    result = doctest.testmod(units)
    assert result.failed == 0
    assert result.attempted >= 6


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0), ("1 b", 1), ("1kB", 1000), ("1KB", 1000), ("1 KiB", 1024), ("80GB", 80 * 10**9), ("1.5MiB", 3 << 19),
        ("2TB", 2 * 10**12), ("1e3 MB", 10**9), (" 7 bytes ", 7), ("1PB", 10**15),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1Gbit", 125e6), ("1Gb", 125e6), ("1GB", 1e9), ("100 Gbit/s", 12.5e9), ("900GB/s", 900e9), ("10Gbps", 1.25e9),
        ("125 MB/s", 125e6), ("8bits", 1.0), ("1MiB/s", float(1 << 20)), ("2 Gbytes", 2e9),
    ],
)  # fmt: skip
def test_rates_tell_bits_from_bytes(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("5us", 5000), ("5µs", 5000), ("1.5 ms", 1_500_000), ("2s", 2 * 10**9), ("1min", 60 * 10**9), ("7 ns", 7)],
)
def test_durations(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("parse", [parse_bytes, parse_rate, parse_duration, lambda text: parse_quantity(text, "Hz")])
@pytest.mark.parametrize(
    "text", ["", "5", "GB", "-1GB", "1 1GB", "1XB", "nan s", "inf GB", "1e", "1GHZz", "0x10B", "²B"]
)
def test_what_is_no_quantity_is_told_with_an_example(parse, text: str) -> None:
    with pytest.raises(MakespanError, match=r"expected a number and .*, such as "):
        parse(text)


def test_rates_are_more_than_zero() -> None:
    with pytest.raises(MakespanError, match="expected more than zero"):
        parse_rate("0GB")


@given(size=st.integers(1, 10**15))
def test_printed_sizes_read_back_to_three_digits(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.006)


@given(duration_ns=st.integers(1, 10**13))
def test_printed_durations_read_back_to_three_digits(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == pytest.approx(duration_ns, rel=0.006)


@given(text=st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_sentence(text: str) -> None:
    for parse in (parse_bytes, parse_rate, parse_duration):
        try:
            assert parse(text) >= 0
        except MakespanError as error:
            assert repr(text) in str(error)
