"""Headers of tar archives: one block each, and the extended ones that tell a member's long name, size or holes."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = tarfile.BLOCKSIZE
MAGIC: Final = b"ustar"
MAGIC_AT: Final = 257
LONG_NAME, LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
GLOBAL: Final = tarfile.XGLTYPE
PAX: Final = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)

Pieces = list[tuple[int, int]]
"""Offset and length of each part of a sparse member that is stored, in order."""


def header_of(block: bytes) -> tarfile.TarInfo | None:
    """What a block describes, None where its checksum or its size can't be true."""
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return None
    return header if header.size >= 0 else None


def next_header(window: bytes) -> int:
    """Where the first header in `window` begins, wherever it lies; -1 where there is none."""
    at = window.find(MAGIC)
    while at >= 0:
        start = at - MAGIC_AT
        if start >= 0 and header_of(window[start : start + BLOCK]) is not None:
            return start
        at = window.find(MAGIC, at + 1)
    return -1


def has_data(header: tarfile.TarInfo) -> bool:
    """Whether content follows: links, folders and devices have none, whatever their size says."""
    return header.isreg() or header.type not in tarfile.SUPPORTED_TYPES


@dataclass(slots=True)
class Extended:
    """What extended headers say about the member behind them."""

    name: str | None = None
    records: dict[str, str] = field(default_factory=dict[str, str])
    pieces: Pieces = field(default_factory=list[tuple[int, int]])
    """Of a sparse member in the spelling that repeats its keywords."""

    @property
    def is_sparse(self) -> bool:
        """Whether the member is stored without its holes."""
        return any(key.startswith("GNU.sparse.") for key in self.records)

    def add(self, kind: bytes, content: bytes) -> None:
        """Take over one extended header of a member; raises ValueError where it is damaged."""
        if kind == LONG_NAME:
            self.name = content.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        elif kind == GLOBAL or kind in PAX:
            for key, value in records_of(content):
                if key == "GNU.sparse.offset":
                    self.pieces.append((int(value), 0))
                elif key == "GNU.sparse.numbytes" and self.pieces:
                    self.pieces[-1] = (self.pieces[-1][0], int(value))
                self.records[key] = value


def records_of(content: bytes) -> list[tuple[str, str]]:
    """The records "length keyword=value" of an extended header; raises ValueError where one isn't written so."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(content) and content[position]:
        digits = content[position : position + 20].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        record = content[position : position + length]
        key, equals, value = record.partition(b" ")[2].partition(b"=")
        if not key or not equals or len(record) < length or record[-1:] != b"\n":
            raise ValueError(f"no record at byte {position}")
        found.append((key.decode("utf-8", "surrogateescape"), value[:-1].decode("utf-8", "surrogateescape")))
        position += length
    return found


def number_of(records: Mapping[str, str], key: str, default: int) -> int:
    """A record's number from 0 up, `default` where there is none; raises ValueError for anything else."""
    text = records.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{key} is no number")
    return int(text)
