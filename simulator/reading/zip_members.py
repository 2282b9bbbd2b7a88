"""Zip archives whose members are read to their last byte even where a checksum tells that one is damaged."""

from __future__ import annotations

import copy
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from makespan.simulator.reading.sources import report
from makespan.simulator.reading.unpacked_stream import BROKEN, reason_of
from makespan.trace import Diagnostics

AROUND: Final = "bytes before or behind a zip archive, not read"
LOST: Final = "zip archive whose directory doesn't list all of its members"
ENCRYPTED: Final = "skipped: encrypted member of an archive"
UNREADABLE: Final = "skipped: member of an archive that can't be read"
_END: Final = b"PK\x05\x06"
_END_BYTES: Final = 22
_COMMENT_BYTES: Final = 0xFFFF
_MANY: Final = 0xFFFF
"""A count that stands for any larger one as well."""


class CheckedStream(io.RawIOBase):
    """A member's bytes; behind the last one BadZipFile where their number or their checksum is another than it says."""

    def __init__(self, stream: BinaryIO, member: zipfile.ZipInfo) -> None:
        super().__init__()
        self._stream, self._member = stream, member
        self._size = self._sum = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Some bytes, at most `size` where that is not negative."""
        taken = self._stream.read(size)
        self._size, self._sum = self._size + len(taken), zlib.crc32(taken, self._sum)
        if not taken and size and (self._size, self._sum) != (self._member.file_size, self._member.CRC):
            raise zipfile.BadZipFile("the content differs from its size or its checksum")
        return taken

    def close(self) -> None:
        """Close the stream below as well."""
        self._stream.close()
        super().close()


def zip_members(
    path: Path, archive: zipfile.ZipFile, notes: Diagnostics, strict: bool
) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """Name of each file in an open archive, in the order of the names, and what opens its content.

    Members that can't be opened, and what else the file holds, are reported.
    """
    _report_rest(path, archive, notes, strict)
    for member in sorted(archive.infolist(), key=lambda item: item.filename):
        name = f"{path}:{member.filename}"
        if member.filename.endswith("/"):
            continue
        if member.flag_bits & 1:
            report(notes, strict, ENCRYPTED, name)
            continue
        opener = _opener(archive, member)
        try:
            opener().close()
        except BROKEN as error:
            report(notes, strict, UNREADABLE, f"{name}: {reason_of(error)}")
        else:
            yield member.filename, opener


def _opener(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], BinaryIO]:
    """What opens a member without the reader's own check, which keeps back the last bytes that it was asked for."""
    unchecked = copy.copy(member)
    del unchecked.CRC
    return lambda: cast(BinaryIO, CheckedStream(cast(BinaryIO, archive.open(unchecked)), member))


def _report_rest(path: Path, archive: zipfile.ZipFile, notes: Diagnostics, strict: bool) -> None:
    """Report what the file holds around the archive (another one, say), and members that its directory lost."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_BYTES - _COMMENT_BYTES))
        tail = file.read()
    end = tail.rfind(_END)
    behind = len(tail) - end - _END_BYTES - len(archive.comment)
    before = min((member.header_offset for member in archive.infolist()), default=archive.start_dir)
    if before > 0 or behind > 0:
        report(notes, strict, AROUND, f"{path}: {max(before, 0)} before and {max(behind, 0)} behind")
    counted = int.from_bytes(tail[end + 10 : end + 12], "little")
    if counted not in (len(archive.infolist()) & _MANY, _MANY):
        report(notes, strict, LOST, f"{path}: {counted} are counted, {len(archive.infolist())} are there")
