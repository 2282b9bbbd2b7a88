import struct

import pytest
from chakra_files import bytes_field, number_field, prefixed, varint
from hypothesis import given
from hypothesis import strategies as st

from makespan.simulator.reading.protobuf_wire import (
    FIXED_32,
    FIXED_64,
    LENGTH,
    VARINT,
    WireError,
    fields,
    fixed,
    messages,
    read_varint,
    signed,
    varints,
    zigzag,
)

unsigned = st.integers(0, 2**64 - 1)


@given(unsigned)
def test_varints_round_trip(value: int) -> None:
    encoded = varint(value)
    assert read_varint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\x80" * 20])
def test_varints_without_an_end(data: bytes) -> None:
    with pytest.raises(WireError):
        read_varint(data, 0)


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.one_of(unsigned, st.binary(max_size=20))), max_size=6))
def test_fields_round_trip(told: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(
        number_field(number, value) if isinstance(value, int) else bytes_field(number, value) for number, value in told
    )
    expected = [(number, VARINT if isinstance(value, int) else LENGTH, value) for number, value in told]
    assert list(fields(message)) == expected


def test_fixed_widths() -> None:
    message = varint(3 << 3 | 1) + struct.pack("<d", 1.5) + varint(23 << 3 | 5) + struct.pack("<i", -7)
    (first, second) = fields(message)
    assert first[:2] == (3, FIXED_64) and isinstance(first[2], bytes) and fixed(first[2], "d") == 1.5
    assert second[:2] == (23, FIXED_32) and isinstance(second[2], bytes) and fixed(second[2], "i") == -7
    with pytest.raises(WireError):
        fixed(b"123", "i")


@pytest.mark.parametrize(
    "message", [b"\x00\x01", b"\x0b", b"\x0e", b"\x12\x05abc", b"\x09abc", b"\x15ab", b"\x08", b"\x12"]
)
def test_what_is_no_message(message: bytes) -> None:
    with pytest.raises(WireError):
        list(fields(message))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signs(value: int) -> None:
    assert signed(value & (2**64 - 1)) == value
    assert zigzag((value << 1 ^ value >> 63) & (2**64 - 1)) == value


@given(st.lists(unsigned, max_size=10))
def test_packed_numbers(values: list[int]) -> None:
    assert varints(b"".join(map(varint, values))) == values
    assert varints(7) == [7]


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 40))
def test_messages_across_pieces(told: list[bytes], size: int) -> None:
    content = prefixed(*told)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert list(messages(pieces)) == told


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5), st.data())
def test_whole_messages_before_a_cut_are_found(told: list[bytes], data: st.DataObject) -> None:
    content = prefixed(*told)
    cut = data.draw(st.integers(0, len(content) - 1))
    ends = [len(prefixed(*told[: number + 1])) for number in range(len(told))]
    found: list[bytes] = []
    if cut in (0, *ends):
        assert list(messages([content[:cut]])) == [m for m, end in zip(told, ends, strict=True) if end <= cut]
        return
    with pytest.raises(WireError):
        for message in messages([content[:cut]]):
            found.append(message)
    assert found == [m for m, end in zip(told, ends, strict=True) if end <= cut]


def test_a_length_beyond_reason_reads_nothing() -> None:
    with pytest.raises(WireError, match="message of"):
        next(messages(iter([varint(1 << 40), b"x"])))
