"""Sources: a trace's files behind one face, whether plain, compressed, inside an archive or a directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

HEAD_BYTES: Final = 1 << 16


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
