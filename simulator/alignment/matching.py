"""Matching: which events of several ranks are one collective, and what doesn't fit together, in words.

By group and sequence number where both were recorded, else the k-th of a name and size on one rank with the k-th on
the others. A rank that differs from the rest is left out and told; it is never paired with what it may not belong to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from makespan.simulator.alignment.collectives import MEETS, Collective, Meets, recorded_collectives
from makespan.simulator.alignment.diagnosis import (
    Label,
    tell_crowded,
    tell_difference,
    tell_incomplete,
    tell_missing,
    tell_other_kind,
    tell_pair,
)
from makespan.trace import NONE, RankTrace

_NO_STREAM: Final = (NONE, NONE)


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective: the `parts` of the ranks that took part, by their places in the list of ranks.

    `root`: the place of the root of a rooted collective, and of the sender of a pair; -1 where not recorded.
    """

    meets: Meets
    parts: Mapping[int, Collective]
    root: int = NONE

    @property
    def what(self) -> str:
        """Its name, as in MEETS."""
        return next(iter(self.parts.values())).what

    def roles(self, root: int | None = None) -> tuple[set[int], set[int]]:
        """Places of those that are awaited and of those that wait for them; nobody's where the root isn't known.

        `root` stands in for one that was not recorded.
        """
        places = set(self.parts)
        chosen = self.root if root is None else root
        if self.meets == Meets.ALL:
            return places, places
        if chosen not in places:
            return set(), set()
        return (places, {chosen}) if self.meets == Meets.TO_ROOT else ({chosen}, places - {chosen})


@dataclass(slots=True)
class Matched:
    """`meetings` found; `problems`: what doesn't fit, sentence -> events that it is about; `notes`: what else was
    left as recorded, reason -> events.
    """

    meetings: list[Meeting] = field(default_factory=list[Meeting])
    problems: dict[str, int] = field(default_factory=dict[str, int])
    notes: dict[str, int] = field(default_factory=dict[str, int])

    def note(self, reason: str, count: int) -> None:
        """Count `count` more events of `reason`."""
        if count:
            self.notes[reason] = self.notes.get(reason, 0) + count


Channel = tuple[tuple[str, str], int]
"""Collectives that come in one order on all their ranks: a process group; where groups were not recorded, a stream."""


def match_collectives(ranks: Sequence[RankTrace]) -> Matched:
    """Match the communications of `ranks` with each other."""
    matched = Matched()
    recorded = [recorded_collectives(part) for part in ranks]
    for parts in recorded:
        for part in parts:
            if part.what not in MEETS:
                matched.note(f"communications that don't say what they do ({part.what}), left as recorded", 1)
    _tell_missing(ranks, recorded, matched)
    for (group, _), by_place in _channels(recorded).items():
        size = max(part.group_size for parts in by_place.values() for part in parts)
        present = [ranks[place].rank for place in by_place]
        if 0 < size < len(by_place):
            matched.problems[tell_crowded(group, size, present)] = sum(map(len, by_place.values()))
        elif len(by_place) > 1:
            numbered = all(part.sequence >= 0 for parts in by_place.values() for part in parts)
            match = _by_number if numbered else _by_order
            for parts in match(group, by_place, [part.rank for part in ranks], matched):
                matched.meetings.append(_meeting(parts, ranks))
    matched.meetings.extend(_pairs(ranks, recorded, matched))
    return matched


def _tell_missing(ranks: Sequence[RankTrace], recorded: Sequence[Sequence[Collective]], matched: Matched) -> None:
    given = {part.rank for part in ranks}
    expected = {rank for parts in recorded for part in parts for rank in part.members or ()}
    if any(recorded):
        expected.update(range(max(part.world_size for part in ranks)))
    missing = sorted(expected - given)
    if missing:
        matched.problems[tell_missing(missing, len(expected | given))] = len(missing)


def _channels(recorded: Sequence[Sequence[Collective]]) -> dict[Channel, dict[int, list[Collective]]]:
    """The collectives of each channel by place, in time order."""
    unnamed = [
        sorted({part.stream for part in parts if part.group == ("", "") and part.stream != _NO_STREAM})
        for parts in recorded
    ]
    # Without groups the streams tell communicators apart, if all ranks have as many.
    by_stream = len({len(streams) for streams in unnamed if streams}) == 1
    channels: dict[Channel, dict[int, list[Collective]]] = {}
    for place, parts in enumerate(recorded):
        for part in parts:
            if part.what not in MEETS or MEETS[part.what] == Meets.PAIR:
                continue
            own = part.group == ("", "") and part.stream != _NO_STREAM and by_stream
            number = unnamed[place].index(part.stream) if own else NONE
            channels.setdefault((part.group, number), {}).setdefault(place, []).append(part)
    return channels


def _by_number(
    group: tuple[str, str], by_place: Mapping[int, Sequence[Collective]], ranks: Sequence[int], matched: Matched
) -> Iterator[dict[int, Collective]]:
    """Parts with equal sequence numbers, the k-th of a number on each rank together."""
    numbered: dict[tuple[int, int], dict[int, Collective]] = {}
    for place, parts in by_place.items():
        again: Counter[int] = Counter()
        for part in parts:
            numbered.setdefault((part.sequence, again[part.sequence]), {})[place] = part
            again[part.sequence] += 1
    lacking: dict[tuple[int, ...], list[Collective]] = defaultdict(list)
    differing: dict[int, list[tuple[Collective, int]]] = defaultdict(list)
    for _, parts in sorted(numbered.items()):
        together = _agreeing(parts)
        usual = next(iter(together or parts))
        for place in parts.keys() - together.keys() - {usual}:
            differing[place].append((parts[place], usual))
        absent = tuple(ranks[place] for place in by_place if place not in parts)
        if absent:
            lacking[absent].append(next(iter(parts.values())))
        if len(together) > 1:
            yield together
    for place, found in differing.items():
        mine, other = found[0]
        theirs = next(part for part in by_place[other] if part.sequence == mine.sequence)
        told = tell_other_kind(ranks[place], mine, ranks[other], theirs, len(found))
        matched.problems[told] = len(found)
    for absent, parts in lacking.items():
        matched.problems[tell_incomplete(group, absent, len(parts), parts[0])] = len(parts)


def _agreeing(parts: Mapping[int, Collective]) -> dict[int, Collective]:
    """Those of `parts` that most agree with in name and size; none where there is no majority."""
    labels = Counter(part.label for part in parts.values())
    usual, count = labels.most_common(1)[0]
    return {place: part for place, part in parts.items() if part.label == usual} if 2 * count > len(parts) else {}


def _by_order(
    group: tuple[str, str], by_place: Mapping[int, Sequence[Collective]], ranks: Sequence[int], matched: Matched
) -> Iterator[dict[int, Collective]]:
    """The k-th part of each name and size on one rank with the k-th on the others."""
    labels = {place: [part.label for part in parts] for place, parts in by_place.items()}
    if any(not any(size for _, size in mine) for mine in labels.values()):
        # A rank that recorded no sizes can be compared by names alone.
        labels = {place: [(what, "") for what, _ in mine] for place, mine in labels.items()}
    counts = {place: Counter(mine) for place, mine in labels.items()}
    usual: dict[Label, int] = {}
    for label in dict.fromkeys(label for mine in labels.values() for label in mine):
        count, places = Counter(counts[place][label] for place in labels).most_common(1)[0]
        usual[label] = count if 2 * places > len(labels) else NONE
    shared = {label for label in usual if all(counts[place][label] == usual[label] for place in labels)}
    in_order = {place: tuple(label for label in mine if label in shared) for place, mine in labels.items()}
    order, places = Counter(in_order.values()).most_common(1)[0]
    kept = set(labels)
    if places < len(labels):
        if all(len({part.stream for part in parts} - {_NO_STREAM}) == 1 for parts in by_place.values()):
            # One stream runs them in the order of the calls, which must be the same on all ranks.
            kept = {place for place in labels if in_order[place] == order} if 2 * places > len(labels) else set[int]()
        else:
            matched.note("collectives that began in another order on some rank, matched by name and size", len(order))
    fits = {place for place in kept if counts[place] == +Counter(usual)}
    other = min(fits or labels)
    for place in sorted(labels.keys() - fits - {other}):
        told = tell_difference(ranks[place], labels[place], ranks[other], labels[other], group)
        matched.problems[told] = len(labels[place])
    together: dict[tuple[Label, int], dict[int, Collective]] = {}
    for place in labels:
        again: Counter[Label] = Counter()
        for label, part in zip(labels[place], by_place[place], strict=True):
            if place in kept and counts[place][label] == usual[label]:
                together.setdefault((label, again[label]), {})[place] = part
                again[label] += 1
    yield from (parts for parts in together.values() if len(parts) > 1)


def _meeting(parts: Mapping[int, Collective], ranks: Sequence[RankTrace]) -> Meeting:
    first = next(iter(parts.values()))
    meets = MEETS[first.what]
    root = first.root
    if meets in (Meets.FROM_ROOT, Meets.TO_ROOT) and root >= 0:
        number = first.members[root] if first.members is not None and root < len(first.members) else root
        root = next((place for place in parts if ranks[place].rank == number), NONE)
    return Meeting(meets, parts, root)


def _pairs(ranks: Sequence[RankTrace], recorded: Sequence[Sequence[Collective]], matched: Matched) -> Iterator[Meeting]:
    """The k-th send from one rank to another, of a group and tag, with the k-th receive there."""
    place_of = {part.rank: place for place, part in enumerate(ranks)}
    pairs: dict[tuple[tuple[str, str], int, int, int], tuple[list[Collective], list[Collective]]] = {}
    for place, parts in enumerate(recorded):
        for part in parts:
            if MEETS.get(part.what) != Meets.PAIR:
                continue
            if part.peer not in place_of:
                known = "is not among the traces" if part.peer >= 0 else "was not recorded"
                matched.note(f"sends and receives whose other end {known}, left as recorded", 1)
                continue
            here, there = place, place_of[part.peer]
            ends = (here, there) if part.what == "send" else (there, here)
            pairs.setdefault((part.group, *ends, part.tag), ([], []))[part.what == "recv"].append(part)
    for (_, source, target, _), (sends, receives) in pairs.items():
        labels = [part.label for part in sends], [part.label for part in receives]
        sizes = [[size for _, size in side] for side in labels]
        known = all(any(side) for side in sizes)
        if source == target or len(sends) != len(receives) or (known and sizes[0] != sizes[1]):
            told = tell_pair(ranks[source].rank, ranks[target].rank, *labels)
            matched.problems[told] = len(sends) + len(receives)
            continue
        for send, receive in zip(sends, receives, strict=True):
            yield Meeting(Meets.PAIR, {source: send, target: receive}, source)
