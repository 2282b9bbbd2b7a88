"""Sharing: a link that serves k ops at once, each at 1/k of its rate (processor sharing), in whole ns.

The link keeps a virtual time: the work, in ns at full rate, that an op served since the link's beginning would
have received. Between two changes of k, an interval of t ns adds floor(t · 2³² / k) / 2³² to it. An op that
joins at virtual time v with w ns of work is done at the first ns at which less than 2⁻¹⁶ ns of it is left, hence
when virtual time reaches v + w - (2¹⁶ - 1) / 2³². Numbers are kept as whole ns and a part in 2⁻³² ns; the part of
2⁻¹⁶ ns forgives the rounding of 65,000 intervals, so that three ops of 10 ns that join together end at 30, not 31.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from makespan.compiled import compiled
from makespan.simulator.orders.heaps import pop_op, push_op
from makespan.units import TIME_LIMIT_NS

_PART_BITS: Final = 32
_FORGIVEN: Final = (1 << 16) - 1


class Links(NamedTuple):
    """The shared streams among s streams; all arrays are empty where there is none.

    `clock` (s, 5) int64: instant of the last change, virtual time (whole, part), number of ops served, instant at
    which the next of them is done (TIME_LIMIT_NS for never). `members` (n,) int32: the ops that stream i serves,
    as a heap from `first[i]` by `goal` and `goal_part` (n,) int64, the virtual time at which an op is done.
    """

    clock: NDArray[np.int64]
    first: NDArray[np.int64]
    members: NDArray[np.int32]
    goal: NDArray[np.int64]
    goal_part: NDArray[np.int64]


@compiled(error_model="numpy")
def pass_time(link: Any, now: Any, links: Any) -> None:  # pragma: no cover - compiled
    """Bring the virtual time of `link` to the instant `now`."""
    clock = links.clock
    elapsed, served = now - clock[link, 0], clock[link, 3]
    if served > 0:
        part = clock[link, 2] + ((elapsed % served) << _PART_BITS) // served
        clock[link, 1] += elapsed // served + (part >> _PART_BITS)
        clock[link, 2] = part & ((1 << _PART_BITS) - 1)
    clock[link, 0] = now


@compiled(error_model="numpy")
def join_link(link: Any, op: Any, work: Any, links: Any) -> None:  # pragma: no cover - compiled
    """Let `link`, brought to this instant, serve `op` as well, for `work` ns at full rate."""
    clock, goal, goal_part = links.clock, links.goal, links.goal_part
    whole, part = clock[link, 1] + work, clock[link, 2]
    if work > 0:
        part -= _FORGIVEN
        if part < 0:
            whole, part = whole - 1, part + (1 << _PART_BITS)
    goal[op], goal_part[op] = whole, part
    clock[link, 3] = push_op(links.members, links.first[link], clock[link, 3], op, goal, goal_part)


@compiled(error_model="numpy")
def leave_link(link: Any, links: Any) -> Any:  # pragma: no cover - compiled
    """An op whose work on `link` is done at the instant it was brought to, now no longer served; -1 for none."""
    clock, goal, goal_part = links.clock, links.goal, links.goal_part
    if clock[link, 3] == 0:
        return np.int64(-1)
    op = np.int64(links.members[links.first[link]])
    if goal[op] > clock[link, 1] or (goal[op] == clock[link, 1] and goal_part[op] > clock[link, 2]):
        return np.int64(-1)
    clock[link, 3] = pop_op(links.members, links.first[link], clock[link, 3], goal, goal_part)
    return op


@compiled(error_model="numpy")
def next_done(link: Any, links: Any) -> Any:  # pragma: no cover - compiled
    """The instant at which the next op of `link` is done if nothing joins, TIME_LIMIT_NS for never."""
    clock, goal, goal_part = links.clock, links.goal, links.goal_part
    served = clock[link, 3]
    if served == 0:
        return np.int64(TIME_LIMIT_NS)
    op = links.members[links.first[link]]
    whole, part = goal[op] - clock[link, 1], goal_part[op] - clock[link, 2]
    if part < 0:
        whole, part = whole - 1, part + (1 << _PART_BITS)
    if whole < 0:
        return clock[link, 0]
    if whole >= (np.int64(TIME_LIMIT_NS) - clock[link, 0]) // served - 1:
        return np.int64(TIME_LIMIT_NS)
    return clock[link, 0] + whole * served + ((part * served + (1 << _PART_BITS) - 1) >> _PART_BITS)
