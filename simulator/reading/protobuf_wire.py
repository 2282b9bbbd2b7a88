"""Protocol Buffers' wire format, as much as a trace needs: bounded, without generated code, every byte distrusted.

Source: the encoding page of the Protocol Buffers documentation (varints, wire types, packed repeated fields).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

LARGEST_BYTES: Final = 1 << 28
"""A message that claims to be larger is taken for damage."""

VARINT: Final = 0
FIXED_64: Final = 1
LENGTH: Final = 2
FIXED_32: Final = 5

_VARINT_BYTES: Final = 10
_MASK_64: Final = (1 << 64) - 1


class WireError(ValueError):
    """Bytes that are no message."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned 64-bit varint at `position` and the position behind it; raises WireError where there is none."""
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & _MASK_64, position + index + 1
    raise WireError("number without an end")


def fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field: an unsigned integer for varints, bytes for all others.

    Raises WireError where the bytes are no message; groups, which are long deprecated, are none.
    """
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        if wire == VARINT:
            value, position = read_varint(message, position)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, position = read_varint(message, position)
        elif wire in (FIXED_64, FIXED_32):
            size = 8 if wire == FIXED_64 else 4
        else:
            raise WireError(f"wire type {wire}")
        if size > len(message) - position:
            raise WireError("field longer than its message")
        yield number, wire, message[position : position + size]
        position += size


def varints(value: int | bytes) -> list[int]:
    """The unsigned integers of a repeated field's occurrence: one, or packed ones."""
    if isinstance(value, int):
        return [value]
    found: list[int] = []
    position = 0
    while position < len(value):
        number, position = read_varint(value, position)
        found.append(number)
    return found


def signed(value: int) -> int:
    """The int32 or int64 that an unsigned varint stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def zigzag(value: int) -> int:
    """The sint32 or sint64 that an unsigned varint stands for."""
    return (value >> 1) ^ -(value & 1)


def fixed(value: bytes, code: str) -> int | float:
    """A fixed-width number, `code` as in `struct`; raises WireError where the width is another one."""
    try:
        return struct.unpack(f"<{code}", value)[0]
    except struct.error as error:
        raise WireError(str(error)) from None


def messages(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The messages of a stream in which each has its length before it.

    Raises WireError where the stream ends inside a message, or one claims more than LARGEST_BYTES.
    """
    source = iter(pieces)
    buffer = b""
    position = 0
    ended = False
    while True:
        try:
            size, begin = read_varint(buffer, position)
        except WireError:
            if not ended and len(buffer) - position < _VARINT_BYTES:
                size, begin = 0, len(buffer) + 1
            elif ended and position == len(buffer):
                return
            else:
                raise
        if size > LARGEST_BYTES:
            raise WireError(f"message of {size} bytes")
        if begin + size <= len(buffer):
            yield buffer[begin : begin + size]
            position = begin + size
            continue
        if ended:
            raise WireError("stream ends inside a message")
        wanted = [buffer[position:]]
        missing = begin + size - len(buffer)
        while missing > 0:
            piece = next(source, b"")
            ended = not piece
            if ended:
                break
            wanted.append(piece)
            missing -= len(piece)
        buffer, position = b"".join(wanted), 0
