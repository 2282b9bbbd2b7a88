"""Tar archives in one pass and in bounded memory, past damaged headers and ends of archives that others follow."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from makespan.errors import TraceError
from makespan.simulator.reading.sources import STREAM_BYTES, report
from makespan.simulator.reading.tar_headers import (
    BLOCK,
    GLOBAL,
    LONG_LINK,
    LONG_NAME,
    PAX,
    Extended,
    has_data,
    header_of,
    next_header,
    number_of,
)
from makespan.simulator.reading.tar_sparse import SparseStream, check_map, piece_map
from makespan.simulator.reading.unpacked_stream import UnpackedStream, reason_of
from makespan.trace import Diagnostics

ENDS_EARLY: Final = "archive broken off"
NO_HEADER: Final = "bytes of an archive that no header describes, lost"
BAD_EXTENSION: Final = "extended header of an archive that can't be read"
BAD_MAP: Final = "skipped: member of an archive with a map of holes that can't be true"
ARCHIVES: Final = "archive behind another one in the same file, read as well"

_PIECE: Final = 1 << 16
_EXTENSION_BYTES: Final = 1 << 20
_EXTENDED: Final = (LONG_NAME, LONG_LINK, GLOBAL, *PAX)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive; `content` is None where it is no regular file, and is to be read before the next."""

    name: str
    is_folder: bool
    content: BinaryIO | None


class MemberStream(io.RawIOBase):
    """The bytes of the current member; raises EOFError where the archive ends before they do."""

    def __init__(self, walk: TarWalk) -> None:
        super().__init__()
        self._walk = walk

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, all where it is negative."""
        return self._walk.take(size)


class TarWalk:
    """The members of the archives in `stream`, which messages call `name`, in the order in which they lie there.

    Behind a damaged header the next one is looked for, wherever it lies. Damage is reported in `notes`, or raises
    TraceError where reading is strict.
    """

    def __init__(self, stream: UnpackedStream, name: str, notes: Diagnostics, strict: bool) -> None:
        self._stream, self._name, self._notes, self._strict = stream, name, notes, strict
        self._position = 0
        self._left = 0
        self._unused = 0

    def __iter__(self) -> Iterator[Member]:
        """Each member once."""
        ended = False
        extended, default = Extended(), Extended()
        while block := self._read(BLOCK):
            if not block.strip(b"\0"):
                if extended != Extended():
                    self._tell(BAD_EXTENSION, f"byte {self._position - len(block)}: the archive ends behind it")
                self._skip_zeros()
                ended, extended = True, Extended()
                continue
            header = header_of(block)
            if header is None:
                ended = not self._find_header(block)
                extended = Extended()
                continue
            if ended:
                self._notes.add(ARCHIVES, f"{self._name}: byte {self._position - BLOCK}")
                ended, default = False, Extended()
            if header.type in _EXTENDED:
                self._extend(default if header.type == GLOBAL else extended, header)
                continue
            extended.records = default.records | extended.records
            member = self._member(block, header, extended)
            if member is not None:
                yield member
            self._pass_data(header.size)
            extended = Extended()
        if self._stream.damage:
            self._tell(ENDS_EARLY, self._stream.damage)
        elif self._left:
            self._tell(ENDS_EARLY, f"{self._left} bytes are missing")
        elif not ended:
            self._tell(ENDS_EARLY, f"no end mark at byte {self._position}, where the file ends")

    def take(self, size: int) -> bytes:
        """Some of what is left of the current member, at most `size` bytes; all where that is negative."""
        wanted = self._left if size < 0 else min(size, self._left)
        taken = self._read(wanted) if wanted else b""
        if wanted and not taken:
            raise EOFError(self._stream.damage or f"the archive ends {self._left} bytes before its member does")
        self._left -= len(taken)
        return taken

    def _member(self, block: bytes, header: tarfile.TarInfo, extended: Extended) -> Member | None:
        """What `header` and those before it describe; None, reported, where its content can't be told."""
        records = extended.records
        name = records.get("GNU.sparse.name") or records.get("path") or extended.name or header.name
        try:
            header.size = number_of(records, "size", header.size) if has_data(header) else 0
        except ValueError as error:
            self._tell(BAD_EXTENSION, f"{name}: {reason_of(error)}")
        self._left = header.size
        if not header.isreg():
            return Member(name, header.isdir(), None)
        content = cast(BinaryIO, MemberStream(self))
        old = header.type == tarfile.GNUTYPE_SPARSE
        if old or extended.is_sparse:
            try:
                pieces, size = piece_map(block, extended, self._read if old else self.take)
                check_map(pieces, size, self._left)
            except (ValueError, EOFError) as error:
                self._tell(BAD_MAP, f"{name}: {reason_of(error)}")
                return None
            content = cast(BinaryIO, SparseStream(content, pieces, size))
        return Member(name, False, content)

    def _extend(self, extended: Extended, header: tarfile.TarInfo) -> None:
        """Take over an extended header; one that is damaged or absurdly long is reported."""
        self._left = header.size
        try:
            if header.size > _EXTENSION_BYTES:
                raise ValueError(f"{header.size} bytes long")
            extended.add(header.type, self.take(header.size))
        except (ValueError, EOFError) as error:
            self._tell(BAD_EXTENSION, f"byte {self._position}: {reason_of(error)}")
        self._pass_data(header.size)

    def _pass_data(self, size: int) -> None:
        """Go on to the next header, behind what is left of `size` bytes and what fills their last block."""
        while self._left:
            passed = self._read(min(self._left, _PIECE))
            if not passed:
                return
            self._left -= len(passed)
        self._read(-size % BLOCK)

    def _skip_zeros(self) -> None:
        while piece := self._read(_PIECE):
            rest = piece.lstrip(b"\0")
            if rest:
                self._unread(piece[(len(piece) - len(rest)) // BLOCK * BLOCK :])
                return
            self._count_unused(len(piece))

    def _find_header(self, block: bytes) -> bool:
        """Go on to the next header behind a damaged one, and report what lies between; False where there is none."""
        begin, passed, window = self._position - len(block), 0, block
        while (at := next_header(window)) < 0 and (piece := self._read(_PIECE)):
            kept = window[1 - BLOCK :]
            passed += len(window) - len(kept)
            window = kept + piece
            self._count_unused(len(piece))
        if at >= 0:
            self._unread(window[at:])
        lost = passed + (at if at >= 0 else len(window.rstrip(b"\0")))
        self._tell(NO_HEADER, f"{lost} bytes from byte {begin} on")
        return at >= 0

    def _count_unused(self, size: int) -> None:
        self._unused += size
        if self._unused > STREAM_BYTES:
            raise TraceError(
                f"{self._name}: more than {STREAM_BYTES >> 30} GiB of it belong to no member, no archive is like that"
            )

    def _read(self, size: int) -> bytes:
        taken = self._stream.read(size)
        self._position += len(taken)
        return taken

    def _unread(self, taken: bytes) -> None:
        self._stream.unread(taken)
        self._position -= len(taken)

    def _tell(self, reason: str, place: str) -> None:
        report(self._notes, self._strict, reason, f"{self._name}: {place}")
