"""Paths to sources: files, compressed files, archives and directories, walked once and never written to disk."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from makespan.errors import TraceError
from makespan.simulator.reading.sources import HEAD_BYTES, Source, report
from makespan.simulator.reading.tar_headers import BLOCK, MAGIC, MAGIC_AT, header_of
from makespan.simulator.reading.tar_members import TarWalk
from makespan.simulator.reading.unpacked_stream import BROKEN, UnpackedStream, reason_of
from makespan.simulator.reading.zip_members import zip_members
from makespan.trace import Diagnostics

MEMBERS: Final = 100_000
"""An archive or directory with more files is refused."""
_NO_FILE: Final = "skipped: hidden or no regular file"
_BROKEN_ZIP: Final = "skipped: broken zip archive"


@dataclass(frozen=True, slots=True)
class Found:
    """A source, and whether the user named it (then it must be readable) or it lay in a folder or an archive.

    `damage` is what kept the source's head from being unpacked to its end.
    """

    source: Source
    named: bool
    damage: str = ""


def find_sources(path: str | Path, notes: Diagnostics, strict: bool = False) -> Iterator[Found]:
    """The sources that `path` holds, in order, each to be read before the next one is asked for.

    Members of archives and files of directories come in the order of their names, those of tar archives as they lie
    there. What is no file is counted in `notes`; so is damage, or it raises TraceError where reading is strict.
    Raises TraceError where the path doesn't exist or can't be opened.
    """
    path = Path(path)
    if path.is_dir():
        for file in _files_below(path, notes):
            yield from _file_sources(file, False, notes, strict)
    elif path.exists() and not path.is_file():
        raise TraceError(
            f"{path}: is no regular file, expected a trace file, an archive or a folder; copy it to a file"
        )
    else:
        yield from _file_sources(path, True, notes, strict)


def _files_below(folder: Path, notes: Diagnostics) -> Iterator[Path]:
    count = 0
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            count += 1
            if count > MEMBERS:
                raise TraceError(f"{folder}: more than {MEMBERS} files, expected the traces of one run")
            if name.startswith(".") or not path.is_file():
                notes.add(_NO_FILE, str(path))
            else:
                yield path


def _file_sources(path: Path, named: bool, notes: Diagnostics, strict: bool) -> Iterator[Found]:
    try:
        with UnpackedStream(path.open("rb")) as stream:
            plain = not stream.is_compressed
            head = stream.read(HEAD_BYTES)
            damage = stream.damage
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise TraceError(f"{path}: can't be opened ({error.strerror or error})") from None
    if head.startswith((b"PK\3\4", b"PK\5\6")) and plain:
        yield from _zip_sources(path, named, notes, strict)
    elif _is_tar(head):
        yield from _tar_sources(path, notes, strict)
    elif plain:
        yield Found(Source(str(path), head, lambda: path.open("rb"), path), named)
    else:
        yield Found(Source(str(path), head, _opener(lambda: path.open("rb"))), named, damage)


def _opener(open_raw: Callable[[], BinaryIO]) -> Callable[[], BinaryIO]:
    return lambda: cast(BinaryIO, UnpackedStream(open_raw()))


def _zip_sources(path: Path, named: bool, notes: Diagnostics, strict: bool) -> Iterator[Found]:
    try:
        archive = zipfile.ZipFile(path)
    except BROKEN as error:
        if named:
            raise TraceError(
                f"{path}: broken zip archive ({reason_of(error)}), it may have been cut off; copy it again"
            ) from None
        report(notes, strict, _BROKEN_ZIP, f"{path}: {reason_of(error)}")
        return
    with archive:
        if len(archive.infolist()) > MEMBERS:
            raise TraceError(f"{path}: more than {MEMBERS} files, expected the traces of one run")
        for name, open_member in zip_members(path, archive, notes, strict):
            unpacked = _opener(open_member)
            with UnpackedStream(open_member()) as stream:
                head = stream.read(HEAD_BYTES)
            yield Found(Source(f"{path}:{name}", head, unpacked), False, stream.damage)


def _tar_sources(path: Path, notes: Diagnostics, strict: bool) -> Iterator[Found]:
    """The members in one pass: each is open while it is the current one, and found again by a new pass later."""
    with UnpackedStream(path.open("rb")) as whole:
        for number, member in enumerate(TarWalk(whole, str(path), notes, strict)):
            name = f"{path}:{member.name}"
            if number >= MEMBERS:
                raise TraceError(f"{path}: more than {MEMBERS} files, expected the traces of one run")
            if member.content is not None:
                current = _CurrentMember(path, number, member.content)
                yield Found(Source(name, current.head, current.open), False, current.damage)
                current.passed = True
            elif not member.is_folder:
                notes.add(_NO_FILE, name)


class _CurrentMember:
    """A member of an archive that is being walked: its stream can be handed out once, before the walk goes on."""

    def __init__(self, path: Path, number: int, content: BinaryIO) -> None:
        self._path, self._number = path, number
        self._stream = UnpackedStream(content)
        self.head = self._stream.read(HEAD_BYTES)
        self.damage = self._stream.damage
        self.passed = False

    def open(self) -> BinaryIO:
        """The member from its start."""
        if not self.passed:
            self.passed = True
            self._stream.unread(self.head)
            return cast(BinaryIO, self._stream)
        whole = UnpackedStream(self._path.open("rb"))
        for number, member in enumerate(TarWalk(whole, str(self._path), Diagnostics(), False)):
            if number == self._number and member.content is not None:
                return cast(BinaryIO, UnpackedStream(member.content, within=whole))
        raise TraceError(f"{self._path}: member {self._number} has gone")


def _is_tar(head: bytes) -> bool:
    """Whether the first block is a header; one that is damaged still bears the mark of newer archives."""
    return head[MAGIC_AT:].startswith(MAGIC) or header_of(head[:BLOCK]) is not None
