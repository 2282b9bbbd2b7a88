"""Sources: a trace's content behind one face, whether plain or compressed, and how to read it in bounded memory."""

from __future__ import annotations

import lzma
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from makespan.errors import TraceError
from makespan.trace import Diagnostics

HEAD_BYTES: Final = 1 << 16
PIECE_BYTES: Final = 1 << 23
WHOLE_BYTES: Final = 1 << 31
"""What `read_whole` takes into memory at most."""
STREAM_BYTES: Final = 1 << 37
"""What a source may unpack to; a small file that unpacks to more is taken for a trap."""

BROKEN_OFF: Final = "compressed data broken off"


@dataclass(frozen=True, slots=True)
class Source:
    """One file's content as an importer meets it.

    `name` is what messages call it (path, or archive:member); `head` its first decompressed bytes, at most
    HEAD_BYTES; `open` a fresh decompressed stream from the start; `path` the real file where the content is a
    plain file on disk (databases need one), else None.
    """

    name: str
    head: bytes
    open: Callable[[], BinaryIO]
    path: Path | None = None


def report(diagnostics: Diagnostics, strict: bool, reason: str, place: str, count: int = 1) -> None:
    """Count damage that was repaired or set aside, or raise TraceError where reading is strict.

    Facts that are no damage (a rank taken from a file name) go to `diagnostics.add`, which never raises.
    """
    if count == 0:
        return
    if strict:
        raise TraceError(f"{place}: {reason} ({count} time(s)); read it without strict to recover the rest")
    diagnostics.add(reason, place, count)


def told(diagnostics: Diagnostics) -> str:
    """All that was counted, for the middle of a sentence: each reason ends with a semicolon and a space."""
    firsts = {reason: f" ({places[0]})" for reason, places in diagnostics.places.items() if places}
    return "".join(
        f"{count} time(s) {reason}{firsts.get(reason, '')}; " for reason, count in diagnostics.counts.items()
    )


def read_pieces(source: Source, diagnostics: Diagnostics, strict: bool, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """The whole content in pieces of at most `size` bytes; a stream that breaks off is reported and ends there.

    Raises TraceError where the content unpacks to more than STREAM_BYTES.
    """
    total = 0
    with source.open() as stream:
        while True:
            try:
                piece = stream.read(size)
            except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
                report(diagnostics, strict, BROKEN_OFF, f"{source.name}: {error}")
                return
            if not piece:
                damage = getattr(stream, "damage", "")
                if damage:
                    report(diagnostics, strict, BROKEN_OFF, f"{source.name}: {damage}")
                return
            total += len(piece)
            if total > STREAM_BYTES:
                raise TraceError(
                    f"{source.name}: unpacks to more than {STREAM_BYTES >> 30} GiB, no trace is that large"
                )
            yield piece


def read_whole(source: Source, diagnostics: Diagnostics, strict: bool, limit: int = WHOLE_BYTES) -> bytes:
    """The whole content at once, for formats that can't be streamed; raises TraceError beyond `limit` bytes."""
    pieces: list[bytes] = []
    total = 0
    for piece in read_pieces(source, diagnostics, strict):
        total += len(piece)
        if total > limit:
            raise TraceError(f"{source.name}: larger than {limit >> 20} MiB, the most that is read at once")
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def as_path(source: Source, diagnostics: Diagnostics, strict: bool) -> Generator[Path]:
    """A real file with the content: the source's own, or a temporary copy that is removed afterwards."""
    if source.path is not None:
        yield source.path
        return
    with tempfile.NamedTemporaryFile(prefix="makespan-", suffix=".trace") as copy:
        for piece in read_pieces(source, diagnostics, strict):
            copy.write(piece)
        copy.flush()
        yield Path(copy.name)
