"""One stream's content, decompressed where its first bytes say so; damage ends it early and is told, never raised."""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

BROKEN: Final = (
    EOFError, OSError, RuntimeError, ValueError, OverflowError, MemoryError, struct.error, zlib.error, lzma.LZMAError,
    zipfile.BadZipFile,
)  # fmt: skip
"""What decompressors and zip archives raise on damaged bytes."""
_ZSTANDARD: Final = b"\x28\xb5\x2f\xfd"
_INPUT_BYTES: Final = 1 << 14
"""Compressed bytes taken at once: small enough that a trap can't unpack them to more than some megabytes."""
_OUTPUT_BYTES: Final = 1 << 11
"""Unpacked bytes asked for at once: of a call that meets damage nothing is left."""


class UnpackedStream(io.RawIOBase):
    """A stream's content, decompressed where its first bytes say so; several compressed members follow one another.

    `read(size)` gives exactly `size` bytes until the end. Broken input ends the stream early and leaves the reason in
    `damage`. Closing it closes the stream, and the archive `within` which that lies, where it is for this stream alone.
    """

    def __init__(self, stream: BinaryIO, within: UnpackedStream | None = None) -> None:
        super().__init__()
        self.damage = ""
        self._stream, self._within = stream, within
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
        """Close what lies below as well."""
        self._stream.close()
        if self._within is not None:
            self._within.close()
        super().close()

    def _take(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except BROKEN as error:
            self.damage = self.damage or reason_of(error)
            return b""

    def _fill(self, size: int) -> None:
        """Get some more of the content into `_ready`."""
        if self._decompressor is None:
            piece = self._input or self._take(_OUTPUT_BYTES if self._zstandard else size)
            self._input = b""
            self._ready += piece
            self._ended = not piece
            return
        piece = self._input or self._take(_INPUT_BYTES)
        self._input = b""
        if piece:
            self._decompress(piece)
        else:
            self._ended = True
            if not self._decompressor.eof:
                self.damage = self.damage or "compressed data ends early"

    def _decompress(self, piece: bytes) -> None:
        if self._decompressor.eof:
            piece = piece.lstrip(b"\0")  # padding
            if not piece:
                return
            self._decompressor = self._new() if self._new else None
        try:
            self._ready += self._decompressor.decompress(piece, _OUTPUT_BYTES)
            while not self._decompressor.eof and not self._decompressor.needs_input:
                self._ready += self._decompressor.decompress(b"", _OUTPUT_BYTES)
            self._input = self._decompressor.unused_data
        except BROKEN as error:
            self.damage, self._ended = reason_of(error), True


def reason_of(error: BaseException) -> str:
    """What an error says, in one line; its name where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def _decompressor(first: bytes) -> Callable[[], Any] | None:
    """What makes a decompressor for data that begins so, None where it is not compressed."""
    if first.startswith(b"\x1f\x8b"):
        return _GzipDecompressor
    if first.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if first.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor
    return None


class _GzipDecompressor:
    """One member of a gzip file, with the face of the other decompressors."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, piece: bytes, size: int) -> bytes:
        unpacked = self._inner.decompress(self._inner.unconsumed_tail + piece, size)
        self.needs_input = len(unpacked) < size
        return unpacked


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

    return cast(BinaryIO, pyarrow.CompressedInputStream(pyarrow.PythonFile(_Chained(first, stream), mode="r"), "zstd"))
