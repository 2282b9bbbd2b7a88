"""Ranks: what a file states, where it can be one; else from the user, the file's name, or its place in line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from makespan.errors import TraceError
from makespan.simulator.reading.sources import report
from makespan.trace import NONE, Diagnostics, RankTrace

RANKS: Final = 1 << 31
"""Ranks lie below."""
_SPELLED: Final = re.compile(r"\s*[0-9]{1,10}\s*")
_NAMED: Final = tuple(re.compile(rf"(?<![a-z]){word}[-_.]?(\d+)(?!\d)", re.IGNORECASE) for word in ("rank", "worker"))
_SUFFIXES: Final = re.compile(r"(\.(json|gz|zst|bz2|xz|pt|trace|et|chakra|sqlite|pb|txt))+$", re.IGNORECASE)
_DIGITS: Final = 18
"""A number with more of them is no rank, whatever zeros it begins with."""
_LAST: Final = re.compile(r"(?:^|[-_.])(\d{1,6})$")


def stated_rank(value: Any, what: str, place: str, diagnostics: Diagnostics, strict: bool) -> int:
    """The number that a file states as its `what` ("rank", "world size"); NONE where there is none or it can't be one.

    Text that spells one is taken, and noted; anything else is reported.
    """
    if value is None:
        return NONE
    number = int(value) if isinstance(value, str) and _SPELLED.fullmatch(value) else value
    if type(number) is not int or not 0 <= number < RANKS:
        report(diagnostics, strict, f"stated {what} that can't be one, not used", f"{place}: {_shown(value)}")
        return NONE
    if number is not value:
        diagnostics.add(f"{what} written as text", place)
    return number


def distributed_info(
    metadata: Mapping[str, Any], place: str, diagnostics: Diagnostics, strict: bool
) -> tuple[int, int]:
    """Rank and world size in the distributedInfo of a Chrome JSON, NONE for what it doesn't state."""
    info = metadata.get("distributedInfo")
    if info is not None and not isinstance(info, dict):
        report(diagnostics, strict, "distributedInfo that is no object, not used", f"{place}: {_shown(info)}")
        return NONE, NONE
    told: dict[str, Any] = info or {}
    return (
        stated_rank(told.get("rank"), "rank", place, diagnostics, strict),
        stated_rank(told.get("world_size"), "world size", place, diagnostics, strict),
    )


def assign_ranks(parts: Sequence[RankTrace], ranks: Mapping[str, int], notes: Diagnostics) -> list[RankTrace]:
    """`parts` with a rank each: `ranks` by file name first, then what the file said.

    Where files say nothing, their names decide if all of them tell a rank: "rank-34", "worker0", or, for several
    files, last numbers that count 0, 1, 2, ... without a gap. Otherwise the files get the free ranks in order.
    """
    given = [[rank for name, rank in ranks.items() if _is_named(part, name)] for part in parts]
    parts = [replace(part, rank=found[0]) if found else part for part, found in zip(parts, given, strict=True)]
    silent = [part for part in parts if part.rank == NONE]
    taken = {part.rank for part in parts} - {NONE}
    names = [_file_name(part.source) for part in silent]
    told = [_named_rank(name) for name in names]
    if not all(rank is not None for rank in told):
        told = [_last_number(name) for name in names]
        if len(parts) < 2 or sorted({rank for rank in told if rank is not None} | taken) != list(range(len(parts))):
            told = []
    free = iter(rank for rank in range(len(parts) + len(taken)) if rank not in taken)
    chosen = [rank for rank in told if rank is not None] or [next(free) for _ in silent]
    reason = "rank taken from the file's name" if told else "rank taken from the file's place in line"
    for part in silent:
        notes.add(reason, part.source)
    following = iter(chosen)
    return [replace(part, rank=next(following)) if part.rank == NONE else part for part in parts]


def check_names(parts: Sequence[RankTrace], ranks: Mapping[str, int]) -> None:
    """Raise TraceError where the user's ranks name a file that is not there, or are no ranks."""
    for name, rank in ranks.items():
        if not any(_is_named(part, name) for part in parts):
            told = ", ".join(part.source for part in parts[:3])
            raise TraceError(f"a rank was given for {name}, expected the name of a file that was read, such as {told}")
        if type(rank) is not int or not 0 <= rank < RANKS:
            raise TraceError(f"rank {_shown(rank)} for {name}: expected a whole number from 0 to {RANKS - 1}")


def _shown(value: Any) -> str:
    """A value as messages show it; arrays and objects, which can be deep, by their kind alone."""
    return f"{value!r:.40}" if isinstance(value, str | int | float) else type(value).__name__


def _is_named(part: RankTrace, name: str) -> bool:
    """Whether `name` is the file's name as printed, the end of its path or its last part."""
    return part.source == name or PurePath(part.source.replace(":", "/")).match(name)


def _file_name(source: str) -> str:
    """Folder and file, without the archive that holds them."""
    return "/".join(PurePath(source.rpartition(":")[2]).parts[-2:])


def _named_rank(name: str) -> int | None:
    for part in reversed(name.split("/")):
        for pattern in _NAMED:
            found = pattern.findall(part)
            if found and len(found[-1]) <= _DIGITS and int(found[-1]) < RANKS:
                return int(found[-1])
    return None


def _last_number(name: str) -> int | None:
    found = _LAST.search(_SUFFIXES.sub("", name.split("/")[-1]))
    return int(found[1]) if found else None
