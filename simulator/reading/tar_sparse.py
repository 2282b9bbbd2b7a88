"""Members of tar archives that are stored without their holes, in the four spellings that GNU tar and bsdtar write."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, Final

from makespan.simulator.reading.tar_headers import BLOCK, Extended, Pieces, number_of

HOLES: Final = 1 << 31
"""More bytes in holes are no trace's: a map of a few bytes could claim any number."""
_ENTRY: Final = 24
_MAP_BYTES: Final = 1 << 20


class SparseStream(io.RawIOBase):
    """The content with zeros for its holes; `stored` gives the `pieces` one behind the other."""

    def __init__(self, stored: BinaryIO, pieces: Pieces, size: int) -> None:
        super().__init__()
        self._stored, self._pieces, self._size = stored, [*pieces, (size, 0)], size
        self._position = self._piece = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Some bytes, at most `size`; none at the end only."""
        while self._position >= sum(self._pieces[self._piece]):
            if self._position == self._size:
                return b""
            self._piece += 1
        offset, length = self._pieces[self._piece]
        if self._position < offset:
            taken = bytes(min(size if size >= 0 else BLOCK, offset - self._position))
        else:
            taken = self._stored.read(min(size if size >= 0 else BLOCK, offset + length - self._position))
        self._position += len(taken)
        return taken

    def close(self) -> None:
        """Close the stream below as well."""
        self._stored.close()
        super().close()


def piece_map(block: bytes, extended: Extended, read: Callable[[int], bytes]) -> tuple[Pieces, int]:
    """Where the pieces of a sparse member lie, and how long it really is; raises ValueError for a map that is none.

    `read` gives what follows the header: further blocks of the map (before the data, or as its beginning).
    """
    records = extended.records
    if not extended.is_sparse:
        return _map_of_blocks(block, read)
    size = number_of(records, "GNU.sparse.realsize", number_of(records, "GNU.sparse.size", 0))
    if "GNU.sparse.map" in records:
        numbers = [int(text) for text in records["GNU.sparse.map"].split(",")]
    elif "GNU.sparse.major" in records:
        numbers = _numbers_before_data(read)
    else:
        return extended.pieces, size
    return list(zip(numbers[::2], numbers[1::2], strict=True)), size


def check_map(pieces: Pieces, size: int, stored: int) -> None:
    """Raise ValueError where the pieces overlap, lie beyond the end or aren't what is `stored`."""
    end = total = 0
    for offset, length in pieces:
        if offset < end or length < 0:
            raise ValueError("its pieces overlap")
        end, total = offset + length, total + length
    if end > size or total != stored or size - total > HOLES:
        raise ValueError("its size can't be true")


def _map_of_blocks(block: bytes, read: Callable[[int], bytes]) -> tuple[Pieces, int]:
    """The oldest form: four entries in the header, 21 in each further block, and a mark where another one follows."""
    pieces, more, size = _entries(block[386:482]), block[482], _number(block[483:495])
    while more:
        block = read(BLOCK)
        if len(block) < BLOCK or len(pieces) * _ENTRY > _MAP_BYTES:
            raise ValueError("it does not end")
        pieces += _entries(block[:504])
        more = block[504]
    return pieces, size


def _entries(block: bytes) -> Pieces:
    fields = [_number(block[at : at + 12]) for at in range(0, len(block), 12)]
    return [(offset, length) for offset, length in zip(fields[::2], fields[1::2], strict=True) if length]


def _number(field: bytes) -> int:
    """Octal text, or big-endian behind a set first bit."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") - (0x80 << 8 * (len(field) - 1))
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _numbers_before_data(read: Callable[[int], bytes]) -> list[int]:
    """Lines of decimal numbers in whole blocks; the first one says how many pairs follow."""
    text, lines = b"", 1
    while text.count(b"\n") < lines:
        block = read(BLOCK)
        if not block or len(text) > _MAP_BYTES:
            raise ValueError("it does not end")
        text += block
        if b"\n" in text:
            lines = 1 + 2 * int(text[: text.index(b"\n")])
    return [int(line) for line in text.split(b"\n")[1:lines]]
