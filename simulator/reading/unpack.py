"""Paths to sources: files, compressed files, archives and directories, walked once and never written to disk."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from makespan.errors import TraceError
from makespan.simulator.reading.sources import HEAD_BYTES, Source
from makespan.trace import Diagnostics

MEMBERS: Final = 100_000
"""An archive or directory with more files is refused."""
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_INPUT_BYTES: Final = 1 << 14
"""Compressed bytes taken at once: small enough that a trap can't unpack them to more than some megabytes."""
_BROKEN: Final = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)


@dataclass(frozen=True, slots=True)
class Found:
    """A source, and whether the user named it (then it must be readable) or it lay in a folder or an archive."""

    source: Source
    named: bool


class UnpackedStream(io.RawIOBase):
    """A stream's content, decompressed where its first bytes say so; several compressed members follow one another.

    `read(size)` gives exactly `size` bytes until the end. Broken input ends the stream early and leaves the reason in
    `damage`.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self.damage = ""
        self._stream = stream
        self._input = self._take(_INPUT_BYTES)
        self._ready = bytearray()
        self._ended = False
        self._new = _decompressor(self._input)
        self._decompressor: Any = self._new() if self._new else None
        self._zstandard = self._input.startswith(_ZSTANDARD)
        if self._zstandard:
            self._stream = _zstandard(self._input, stream)
            self._input = b""

    @property
    def is_compressed(self) -> bool:
        """Whether the content differs from the stream's own bytes."""
        return self._decompressor is not None or self._zstandard

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Exactly `size` bytes, fewer only at the end; everything where `size` is negative."""
        while not self._ended and (size < 0 or len(self._ready) < size):
            self._fill(max(size, _INPUT_BYTES))
        with memoryview(self._ready) as ready:
            taken = bytes(ready if size < 0 else ready[:size])
        del self._ready[: len(taken)]
        return taken

    def unread(self, taken: bytes) -> None:
        """Put back what was read last."""
        self._ready[:0] = taken

    def close(self) -> None:
        """Close the stream below as well."""
        self._stream.close()
        super().close()

    def _take(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except _BROKEN as error:
            self.damage = str(error) or type(error).__name__
            return b""

    def _fill(self, size: int) -> None:
        """Get some more of the content into `_ready`."""
        piece = self._input or self._take(_INPUT_BYTES if self._decompressor else size)
        self._input = b""
        if self._decompressor is None:
            self._ready += piece
            self._ended = not piece
        elif not piece:
            self._ended = True
            if not self._decompressor.eof:
                self.damage = self.damage or "compressed data ends early"
        else:
            self._decompress(piece)

    def _decompress(self, piece: bytes) -> None:
        if self._decompressor.eof:
            piece = piece.lstrip(b"\0")  # padding
            if not piece:
                return
            self._decompressor = self._new() if self._new else None
        try:
            self._ready += self._decompressor.decompress(piece)
            self._input = self._decompressor.unused_data
        except _BROKEN as error:
            self.damage, self._ended = str(error), True


def find_sources(paths: Iterable[str | Path], notes: Diagnostics) -> Iterator[Found]:
    """The sources that `paths` hold, in order, each to be read before the next one is asked for.

    Members of archives and files of directories come in the order of their names. What is no file is counted in
    `notes`. Raises TraceError where a path doesn't exist or can't be opened.
    """
    for path in map(Path, paths):
        if path.is_dir():
            for file in _files_below(path, notes):
                yield from _file_sources(file, False, notes)
        elif path.exists() and not path.is_file():
            raise TraceError(
                f"{path}: is no regular file, expected a trace file, an archive or a folder; copy it to a file"
            )
        else:
            yield from _file_sources(path, True, notes)


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
                notes.add("skipped: hidden or no regular file", str(path))
            else:
                yield path


def _file_sources(path: Path, named: bool, notes: Diagnostics) -> Iterator[Found]:
    try:
        with UnpackedStream(path.open("rb")) as stream:
            plain = not stream.is_compressed
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise TraceError(f"{path}: can't be opened ({error.strerror or error})") from None
    if zipfile.is_zipfile(path) and head[:2] == b"PK":
        yield from _zip_sources(path, notes)
    elif _is_tar(head):
        yield from _tar_sources(path, notes)
    else:
        if plain:
            yield Found(Source(str(path), head, lambda: path.open("rb"), path), named)
        else:
            yield Found(Source(str(path), head, _opener(lambda: path.open("rb"))), named)


def _opener(open_raw: Callable[[], Any]) -> Callable[[], BinaryIO]:
    return lambda: cast(BinaryIO, UnpackedStream(open_raw()))


def _zip_sources(path: Path, notes: Diagnostics) -> Iterator[Found]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MEMBERS:
                raise TraceError(f"{path}: more than {MEMBERS} files, expected the traces of one run")
            for member in sorted(members, key=lambda item: item.filename):
                name = f"{path}:{member.filename}"
                if member.is_dir() or member.flag_bits & 1:
                    if not member.is_dir():
                        notes.add("skipped: encrypted member of an archive", name)
                    continue
                open_member = _opener(_member_opener(archive, member))
                with open_member() as stream:
                    head = stream.read(HEAD_BYTES)
                yield Found(Source(name, head, open_member), False)
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise TraceError(f"{path}: broken zip archive ({error})") from None


def _member_opener(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], Any]:
    return lambda: archive.open(member)


def _tar_sources(path: Path, notes: Diagnostics) -> Iterator[Found]:
    """The members in one pass: each is open while it is the current one, and found again by a new pass later."""
    with UnpackedStream(path.open("rb")) as whole:
        try:
            with tarfile.open(fileobj=cast(Any, whole), mode="r|") as archive:
                yield from _members(path, archive, notes)
        except tarfile.TarError as error:
            notes.add("archive broken off", f"{path}: {error}")
        if whole.damage:
            notes.add("archive broken off", f"{path}: {whole.damage}")


def _members(path: Path, archive: tarfile.TarFile, notes: Diagnostics) -> Iterator[Found]:
    for number, member in enumerate(archive):
        name = f"{path}:{member.name}"
        if number >= MEMBERS:
            raise TraceError(f"{path}: more than {MEMBERS} files, expected the traces of one run")
        content = archive.extractfile(member) if member.isreg() else None
        if content is not None:
            current = _CurrentMember(path, number, cast(BinaryIO, content))
            yield Found(Source(name, current.head, current.open), False)
            current.passed = True
        elif not member.isdir():
            notes.add("skipped: hidden or no regular file", name)


class _CurrentMember:
    """A member of an archive that is being walked: its stream can be handed out once, before the walk goes on."""

    def __init__(self, path: Path, number: int, content: BinaryIO) -> None:
        self._path, self._number = path, number
        self._stream = UnpackedStream(content)
        self.head = self._stream.read(HEAD_BYTES)
        self.passed = False

    def open(self) -> BinaryIO:
        """The member from its start."""
        if not self.passed:
            self.passed = True
            self._stream.unread(self.head)
            return cast(BinaryIO, self._stream)
        whole = UnpackedStream(self._path.open("rb"))
        archive = tarfile.open(fileobj=cast(Any, whole), mode="r|")  # noqa: SIM115 - the stream below needs it open
        for number, member in enumerate(archive):
            if number == self._number:
                return cast(BinaryIO, UnpackedStream(cast(BinaryIO, archive.extractfile(member))))
        raise TraceError(f"{self._path}: member {self._number} has gone")


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _decompressor(first: bytes) -> Callable[[], Any] | None:
    """What makes a decompressor for data that begins so, None where it is not compressed."""
    if first.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(31)
    if first.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if first.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor
    return None


class _Chained(io.RawIOBase):
    """Bytes that were already read, and the stream that they came from."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        super().__init__()
        self._first, self._stream = first, stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        taken, self._first = self._first, b""
        return taken or self._stream.read(size)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _zstandard(first: bytes, stream: BinaryIO) -> BinaryIO:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(_Chained(first, stream), mode="r"), "zstd")
