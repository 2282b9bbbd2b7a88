"""Search: how to cut the gradients, in the order in which they become ready, into buckets.

A cut is the ascending list of the places at which buckets end; the last place is always the number of gradients. An
exact dynamic programme solves the problem for a link that reduces bucket after bucket and hinders nothing; what it
finds, and what people usually take, are then improved move by move, each confirmed by a replay of the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.protocols import Progress

Cut = tuple[int, ...]
MAX_EVALUATIONS: Final = 240
"""Replays that a search takes at most, the named cuts included."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best `cut` and its replayed `iteration_ns`; those of all named cuts; how many cuts were replayed."""

    cut: Cut
    iteration_ns: int
    named_ns: dict[str, int]
    evaluations: int


def fewest_exposed(ready_ns: NDArray[np.int64], cost_ns: Callable[[int, int], int]) -> tuple[Cut, int]:
    """The cut whose last reduction ends first, and that end, on a link that works through buckets in turn.

    `ready_ns` (k,) when each gradient is ready, never falling; `cost_ns(i, j)` what the bucket of gradients i to
    j - 1 takes. A bucket starts when its last gradient is ready and the bucket before it is done. An exact dynamic
    programme over prefixes, k² / 2 costs: of two ways to reduce a prefix the earlier done is never worse.
    """
    count = len(ready_ns)
    done = [0] + [np.iinfo(np.int64).max] * count
    came_from = [0] * (count + 1)
    for end in range(1, count + 1):
        for begin in range(end):
            until = max(done[begin], int(ready_ns[end - 1])) + cost_ns(begin, end)
            if until < done[end]:
                done[end], came_from[end] = until, begin
    places = [count]
    while came_from[places[-1]] > 0:
        places.append(came_from[places[-1]])
    return tuple(reversed(places)), int(done[count])


def capped_cut(sizes: Sequence[int], caps: Sequence[int]) -> Cut:
    """The cut that DDP makes of gradients of `sizes` bytes: a bucket is closed once its bytes reach its cap.

    The last of `caps` holds for all further buckets.
    """
    places: list[int] = []
    held = 0
    for place, size in enumerate(sizes, 1):
        held += size
        if held >= caps[min(len(places), len(caps) - 1)]:
            places.append(place)
            held = 0
    if not places or places[-1] != len(sizes):
        places.append(len(sizes))
    return tuple(places)


def improve(
    named: Mapping[str, Cut],
    evaluate: Callable[[Cut], int],
    sizes: Sequence[int],
    *,
    seed: int,
    progress: Progress,
    limit: int = MAX_EVALUATIONS,
) -> Found:
    """The best cut found from the `named` ones by moves that a replay (`evaluate`, ns) confirms.

    The best of the named cuts is taken, and changed by single moves (a bucket end left out, added or shifted)
    for as long as one shortens the iteration. At most `limit` cuts are replayed, so the search may be broken off
    at any time; it gives the same for the same `seed`.
    """
    generator = np.random.default_rng(seed)
    known: dict[Cut, int] = {}

    def told(cut: Cut) -> int:
        if cut not in known:
            known[cut] = evaluate(cut)
            progress(len(known), limit, f"bucket plans, best {min(known.values()) / 1e6:.2f} ms")
        return known[cut]

    named_ns = {name: told(cut) for name, cut in named.items()}
    best = min(known, key=lambda cut: (known[cut], len(cut), cut))
    improved = True
    while improved and len(known) < limit:
        improved = False
        for cut in _neighbours(best, sizes, generator):
            if len(known) >= limit:
                break
            if told(cut) < known[best]:
                best, improved = cut, True
                break
    return Found(best, known[best], named_ns, len(known))


def _neighbours(cut: Cut, sizes: Sequence[int], generator: np.random.Generator) -> Iterator[Cut]:
    """Cuts one move away from `cut`, in random order; what concerns the last buckets first.

    What follows the last gradients is what nothing hides, so that is where moves pay most.
    """
    count = len(sizes)
    inner = cut[:-1]
    moves: list[tuple[int, Cut]] = []
    for place in inner:
        rest = tuple(other for other in inner if other != place)
        moves.append((place, (*rest, count)))
        for shift in (-4, -1, 1, 4):
            moved = place + shift
            if 0 < moved < count and moved not in inner:
                moves.append((place, (*sorted((*rest, moved)), count)))
    held = np.concatenate([[0], np.cumsum(sizes)])
    for begin, end in zip((0, *inner), cut, strict=True):
        if end - begin > 1:
            for share in (0.25, 0.5, 0.75):
                goal = held[begin] + share * (held[end] - held[begin])
                middle = int(np.clip(np.searchsorted(held, goal), begin + 1, end - 1))
                moves.append((middle, (*sorted({*inner, middle}), count)))
    order = generator.permutation(len(moves))
    seen: set[Cut] = set()
    for number in sorted(order.tolist(), key=lambda number: -moves[number][0] * 4 // max(count, 1)):
        if moves[number][1] not in seen:
            seen.add(moves[number][1])
            yield moves[number][1]
