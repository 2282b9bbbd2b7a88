"""Diagnosis: in which words a user is told that the collectives of several ranks don't fit together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from makespan.simulator.alignment.collectives import Collective
from makespan.units import format_bytes

ADVICE: Final = "record the same steps on every rank, or leave out the files that don't belong together"

_SPOKEN: Final[Mapping[str, str]] = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter", "alltoall": "all-to-all",
}  # fmt: skip

Label = tuple[str, str]
"""Name and size of a collective, as `Collective.label` gives them."""


def spoken(label: Label) -> str:
    """A collective's name and size for people.

    >>> spoken(("allreduce", "25000000"))
    'all-reduce of 25.0 MB'
    """
    what, size = label
    told = _SPOKEN.get(what, what)
    if not size:
        return told
    return f"{told} of {format_bytes(int(size))}" if size.isdigit() else f"{told} of shape {size}"


def name_ranks(ranks: Iterable[int]) -> str:
    """Some ranks for people, long lists cut short.

    >>> name_ranks([3]), name_ranks([0, 1, 2])
    ('rank 3', 'ranks 0, 1, 2')
    """
    told = sorted(ranks)
    shown = ", ".join(map(str, told[:8])) + (f" and {len(told) - 8} more" if len(told) > 8 else "")
    return f"rank{'s' if len(told) != 1 else ''} {shown}"


def name_group(group: tuple[str, str]) -> str:
    """A process group for people; `group` is its name and its ranks as text, "" where not recorded."""
    name, ranks = group
    if not name and not ranks:
        return "no named group"
    return f"group {name!r}" if name else f"the group of {ranks}"


def tell_difference(
    rank: int, mine: Sequence[Label], other: int, theirs: Sequence[Label], group: tuple[str, str]
) -> str:
    """Where the collectives of `rank` and of rank `other` in one group part, and what became of them."""
    told = f"rank {rank} recorded {len(mine)} collectives of {name_group(group)} and rank {other} {len(theirs)}"
    place = next((n for n, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), None)
    if place is None and len(mine) != len(theirs):
        shorter = min(len(mine), len(theirs))
        longer = mine if len(mine) > len(theirs) else theirs
        told += (
            f"; the first {shorter} have equal names and sizes, so which one is extra can't be told "
            f"(the last is {spoken(longer[-1])})"
        )
    elif place is not None:
        told += f"; number {place + 1} is {spoken(mine[place])} on rank {rank} and {spoken(theirs[place])} on {other}"
    return f"{told}: what doesn't fit is left as it was recorded; {ADVICE}"


def tell_missing(missing: Sequence[int], total: int) -> str:
    """That ranks took part whose traces are not there."""
    are = "is" if len(missing) == 1 else "are"
    return (
        f"{name_ranks(missing)} of {total} {are} not among the traces: what the others waited for them counts as "
        "transfer; give their files as well"
    )


def tell_incomplete(group: tuple[str, str], absent: Sequence[int], count: int, first: Collective) -> str:
    """That some ranks of a group lack collectives, by number, that others recorded; `first` is one of those."""
    return (
        f"{name_ranks(absent)} lack {count} collectives of {name_group(group)} that others recorded, the first with "
        f"number {first.sequence} ({spoken(first.label)}): what the others waited for them counts as transfer; {ADVICE}"
    )


def tell_other_kind(rank: int, mine: Collective, other: int, theirs: Collective, count: int) -> str:
    """That ranks recorded different things under one number of their group."""
    more = f" (and {count - 1} more)" if count > 1 else ""
    return (
        f"number {mine.sequence}{more} of {name_group(mine.group)} is {spoken(mine.label)} on rank {rank} and "
        f"{spoken(theirs.label)} on rank {other}: rank {rank}'s is left as it was recorded; {ADVICE}"
    )


def tell_crowded(group: tuple[str, str], size: int, ranks: Sequence[int]) -> str:
    """That more ranks recorded a group than it has."""
    return (
        f"{name_group(group)} has {size} ranks, but {name_ranks(ranks)} recorded it: several groups of one name can't "
        "be told apart, and their collectives are left as recorded; record the groups' ranks as well"
    )


def tell_pair(source: int, target: int, sends: Sequence[Label], receives: Sequence[Label]) -> str:
    """That the sends of one rank and the receives of another don't fit."""
    place = next((n for n, pair in enumerate(zip(sends, receives, strict=False)) if pair[0][1] != pair[1][1]), None)
    where = "" if place is None else f"; number {place + 1} is a {spoken(sends[place])} and a {spoken(receives[place])}"
    return (
        f"rank {source} recorded {len(sends)} sends to rank {target}, which recorded {len(receives)} receives from "
        f"it{where}: all of them are left as recorded; {ADVICE}"
    )
