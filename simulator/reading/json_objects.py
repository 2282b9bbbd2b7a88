"""The objects of one array in a JSON document of any size, damaged or not: execution traces are written so."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar

import msgspec

from makespan.simulator.chrome.reader import BAD_MEMBER, NO_CLOSING, TOO_LARGE
from makespan.simulator.chrome.repair import EXTRA_COMMA, MISSING_COMMA, mend, value_end
from makespan.simulator.chrome.rescue import STRAY_BYTES, TRUNCATED, UNREADABLE
from makespan.simulator.reading.sources import Source, read_pieces, report
from makespan.trace import Diagnostics

READ_BYTES: Final = 1 << 19
LARGEST_BYTES: Final = 1 << 26
"""An object that is larger is left out."""
HEADER_BYTES: Final = 1 << 20
"""How far to look for the array."""
DOUBT_BYTES: Final = 1 << 20
"""How far to look for the end of an object that seems to hold the beginning of another one."""

_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
_OPENS: Final = re.compile(rb'\{\s*(?:"[iI]d"\s*:|"[nN]ame"\s*:\s*' + _TEXT + rb'\s*,\s*"[iI]d"\s*:)')
"""How writers begin such an object. Attributes, which also begin with a name, have no id."""
_BARE_ARRAY: Final = re.compile(rb"\s*\[")
_GAP: Final = re.compile(rb"[\s,]*")
_JUNK: Final = re.compile(rb"[^,{\]\s]+|.", re.DOTALL)

ObjectT = TypeVar("ObjectT", bound=msgspec.Struct)


def as_integer(value: Any) -> int | None:
    """The 64-bit integer that `value` is or spells; unsigned ones beyond 63 bits as the signed they stand for."""
    if isinstance(value, str) and len(value) <= 20:
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        return None
    return int(value) - (1 << 64) * (value >= 1 << 63)


class ObjectStream(Generic[ObjectT]):
    """Iterates over the objects of the array under one of `members`, in file order, as lists of `object_type`.

    Without such a member the document is taken for objects that follow one another with nothing between them.
    `metadata` holds the members of the document beside the array; it is complete once the iteration is over.
    Damage is repaired object by object and reported.
    """

    def __init__(
        self,
        source: Source,
        diagnostics: Diagnostics,
        strict: bool,
        object_type: type[ObjectT],
        members: Sequence[str],
    ) -> None:
        self.metadata: dict[str, Any] = {}
        self._source, self._diagnostics, self._strict = source, diagnostics, strict
        self._array = re.compile(b'"(?:%s)"\\s*:\\s*\\[' % "|".join(map(re.escape, members)).encode())
        self._decode_one = msgspec.json.Decoder(object_type).decode
        self._decode_many = msgspec.json.Decoder(GenericAlias(list, (object_type,))).decode
        self._pieces = read_pieces(source, diagnostics, strict, READ_BYTES)
        self._buffer = b""
        self._position = 0
        self._ended = False
        self._closed = False
        self._in_array = False
        self._in_document = False
        self._comma_due = False
        self._count = 0

    def __iter__(self) -> Iterator[list[ObjectT]]:
        """Lists of objects."""
        self._take_header()
        while not self._closed:
            if len(self._buffer) - self._position < READ_BYTES:
                self._more()
            objects = self._many()
            if objects is None:
                objects = self._one_by_one()
            if objects:
                self._count += len(objects)
                yield objects
        self._take_trailer()

    def _take_header(self) -> None:
        """Move into the array, and keep the members before it."""
        found = None
        while found is None and len(self._buffer) < HEADER_BYTES and self._more():
            found = self._array.search(self._buffer)
        bare = _BARE_ARRAY.match(self._buffer)
        if found is not None:
            self._keep_members(self._buffer[: found.start()].rstrip(b", \t\r\n") + b"}")
            self._position = found.end()
        elif bare is not None:
            self._position = bare.end()
        self._in_array = found is not None or bare is not None
        self._in_document = found is not None

    def _take_trailer(self) -> None:
        """Keep the members behind the array."""
        while len(self._buffer) - self._position < LARGEST_BYTES and self._more():
            pass
        rest = self._buffer[self._position :].strip(b", \t\r\n")
        if self._in_document and not rest:
            self._tell(NO_CLOSING)
        elif self._in_document and rest != b"}":
            self._keep_members(b"{" + rest)
        elif rest and not self._in_document:
            self._tell(STRAY_BYTES)

    def _keep_members(self, text: bytes) -> None:
        for attempt in (text, mend(text)[0]):
            try:
                self.metadata.update(msgspec.json.decode(attempt, type=dict[str, Any]))
                return
            except (msgspec.DecodeError, RecursionError):
                continue
        self._tell(BAD_MEMBER)

    def _many(self) -> list[ObjectT] | None:
        """All whole objects in the buffer at once; None where that fails or there are none."""
        cut = self._last_opening()
        if cut is None or self._comma_due:
            return None
        text = self._buffer[self._position : cut].rstrip()
        if not text.endswith(b","):
            return None
        # Nothing that is decoded here can be part of a cycle, so the collector would only cost time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            objects = self._decode_many(b"[" + text[:-1] + b"]")
        except (msgspec.DecodeError, RecursionError):
            return None
        finally:
            if collecting:
                gc.enable()
        self._position = cut
        return objects

    def _last_opening(self) -> int | None:
        """Where the last object in the buffer begins, other than the next one."""
        place = len(self._buffer)
        for _ in range(256):
            place = self._buffer.rfind(b"{", self._position + 1, place)
            if place < 0:
                return None
            if _OPENS.match(self._buffer, place):
                return place
        return None

    def _one_by_one(self) -> list[ObjectT]:
        """What can be taken from the buffer object by object, up to the last one that more data may complete."""
        objects: list[ObjectT] = []
        while not self._closed:
            gap = _GAP.match(self._buffer, self._position)
            begin = gap.end() if gap else self._position
            commas = self._buffer.count(b",", self._position, begin)
            mark = self._buffer[begin : begin + 1]
            if not mark:
                if self._more():
                    continue
                if self._in_array and TRUNCATED not in self._diagnostics.counts:
                    self._tell(NO_CLOSING)
                self._closed, self._in_document = True, False
                return objects
            if mark == b"]" and self._in_array:
                if commas:
                    self._tell(EXTRA_COMMA, len(objects))
                self._position, self._closed = begin + 1, True
                return objects
            if commas > self._comma_due:
                self._tell(EXTRA_COMMA, len(objects))
            elif self._in_array and self._comma_due and not commas:
                self._tell(MISSING_COMMA, len(objects))
            self._position = begin
            if mark != b"{":
                junk = _JUNK.match(self._buffer, begin)
                self._position = junk.end() if junk else begin + 1
                self._comma_due = False
                self._tell(STRAY_BYTES, len(objects))
                continue
            self._comma_due = self._take_object(objects)
            if len(self._buffer) - self._position < READ_BYTES and not self._ended:
                break
        if self._comma_due and self._in_array:
            self._skip_comma()
        return objects

    def _skip_comma(self) -> None:
        """Past the comma that has to follow an object, so that all the next ones can be taken at once."""
        gap = _GAP.match(self._buffer, self._position)
        if gap and gap[0].count(b",") == 1:
            self._position, self._comma_due = gap.end(), False

    def _take_object(self, objects: list[ObjectT]) -> bool:
        """Append the object at the position, whole or mended, or leave it out; whether a comma has to follow."""
        while True:
            begin = self._position
            end = value_end(self._buffer, begin)
            if end > 0 and self._accept(self._buffer[begin:end], objects):
                self._position = end
                return True
            # An object that seems to hold the beginning of another one was not finished.
            following = _OPENS.search(self._buffer, begin + 1, end if end > 0 else len(self._buffer))
            ahead = len(self._buffer) - begin
            if end > 0 or self._ended or (following and ahead > DOUBT_BYTES):
                break
            if ahead > LARGEST_BYTES:
                self._tell(TOO_LARGE, len(objects))
                self._position = len(self._buffer)
                return False
            # As much again as there is, so that an object of any size is scanned a few times only.
            for _ in range(max(1, ahead // READ_BYTES)):
                self._more()
        limit = following.start() if following else end if end > 0 else len(self._buffer)
        text = self._buffer[begin:limit].rstrip(b", \t\r\n")
        mended, reasons = mend(text)
        kept = self._accept(mended, objects)
        if not kept:
            reasons = [UNREADABLE if following or end > 0 else TRUNCATED]
        for reason in reasons:
            self._tell(reason, len(objects) - kept)
        self._position = begin + len(text) if kept else limit
        return kept or following is None

    def _accept(self, text: bytes, objects: list[ObjectT]) -> bool:
        try:
            objects.append(self._decode_one(text))
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def _more(self) -> bool:
        """Read on; what lies before the position is forgotten."""
        piece = next(self._pieces, b"")
        self._ended = not piece
        self._buffer = self._buffer[self._position :] + piece
        self._position = 0
        return not self._ended

    def _tell(self, reason: str, after: int = 0) -> None:
        report(self._diagnostics, self._strict, reason, f"{self._source.name}:object {self._count + after}")
