"""The part of a JSON text that is in memory: one buffer that moves forward over a stream of pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from makespan.simulator.chrome.repair import value_end

_SPACE: Final = re.compile(rb"\s*")
_WORD: Final = re.compile(rb"[^,{}\[\]\s]*")


class JsonWindow:
    """`buffer` holds the text from `position` on, and some before it; `ended` once nothing is left to read.

    The buffer is one piece of memory that is used over and over: what is to be kept must be copied out of it.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.buffer = bytearray()
        self.position = 0
        self.ended = False
        self._pieces = pieces

    def __len__(self) -> int:
        """How many bytes there are from the position on."""
        return len(self.buffer) - self.position

    def more(self) -> bool:
        """Read on, and forget what lies before the position; False at the end."""
        piece = next(self._pieces, b"")
        self.ended = not piece
        del self.buffer[: self.position]
        self.position = 0
        self.buffer += piece
        return not self.ended

    def fill(self, size: int) -> None:
        """Read on until there are `size` bytes, or all."""
        while len(self) < size and self.more():
            pass

    def peek(self) -> bytes:
        """Move to the next byte that is no space and give it, b"" at the end."""
        while True:
            space = _SPACE.match(self.buffer, self.position)
            self.position = space.end() if space else self.position
            if len(self) or not self.more():
                return bytes(self.buffer[self.position : self.position + 1])

    def take_value(self, largest: int) -> bytes | None:
        """The text of the value that comes next; None where it doesn't end, or not within `largest` bytes."""
        first = self.peek()
        while True:
            if first in (b"{", b"[", b'"'):
                end = value_end(self.buffer, self.position)
            else:
                word = _WORD.match(self.buffer, self.position)
                end = word.end() if word and word.end() < len(self.buffer) else -1
            if end > 0:
                value = bytes(self.buffer[self.position : end])
                self.position = end
                return value
            if self.ended or len(self) > largest:
                return None
            self.fill(2 * len(self))

    def skip_past(self, mark: re.Pattern[bytes]) -> bool:
        """Move behind the next match of `mark`; to the end, and False, where there is none."""
        while True:
            found = mark.search(self.buffer, self.position)
            if found:
                self.position = found.end()
                return True
            self.position = max(self.position, len(self.buffer) - 256)
            if not self.more():
                self.position = len(self.buffer)
                return False

    def as_array(self, end: int) -> bytes:
        """The text from the position to `end` in brackets."""
        with memoryview(self.buffer) as whole:
            return b"[%b]" % whole[self.position : end]
