"""Paces: at which pace each op that contends goes, and when its work will be done, as others come and go.

Paces are constant between the instants at which some op of the rank starts or has its work done. They are set when
all that happens at an instant has happened, so that a kernel that follows another at once changes nothing for
communication. Only where its pace changes is an op's account settled, so that what doesn't concern it can't change its
end: the work it has left (float64 ns) becomes less by time times pace. Work is done at the first whole ns at which
less than 2⁻¹⁶ ns of it is left, which forgives the rounding. On a shared stream work left is kept as a distance in
virtual time (see sharing), which at a change of pace is rounded down to 2⁻³² ns.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from makespan.compiled import compiled
from makespan.simulator.orders.alarms import set_alarm
from makespan.simulator.orders.contention import CHANGED, COMMUNICATES, COMPUTES, FRESH, SLOWEST, STALE, TAKEN_UNIT
from makespan.simulator.orders.heaps import push_op
from makespan.simulator.orders.sharing import join_link, next_done, pass_time

_FORGIVEN_NS: Final = 2.0**-16
_PARTS: Final = 2.0**32
"""Parts of a ns in which virtual time is kept."""


@compiled("numpy")
def begin_work(op: Any, contention: Any) -> None:  # pragma: no cover - compiled
    """Note that `op`, which contends, starts at this instant; `settle` will set it going."""
    contention.fresh[contention.counts[FRESH]] = op
    contention.counts[FRESH] += 1


@compiled("numpy")
def end_work(op: Any, now: Any, ops: Any, contention: Any) -> None:  # pragma: no cover - compiled
    """Note that `op`, which contends, has its work done at `now`; its rank's other ops are told by `settle`."""
    rivals, members = contention.rivals, contention.members
    role, rank = rivals[op].role, contention.rank_of[ops[op].stream]
    before, after = rivals[op].before, rivals[op].after
    if before >= 0:
        rivals[before].after = after
    else:
        members[rank, role] = after
    if after >= 0:
        rivals[after].before = before
    _count(op, rank, np.int64(-1), contention)
    if rivals[op].slowed != 0:
        contention.took_ns[op] = now - ops[op].start


@compiled("numpy")
def settle(
    now: Any, ops: Any, lines: Any, links: Any, contention: Any, alarms: Any
) -> None:  # pragma: no cover - compiled
    """Set the paces that hold from `now` on, and the alarms at which works will be done."""
    rivals, ranks, members, rank_of = contention.rivals, contention.ranks, contention.members, contention.rank_of
    fresh, counts = contention.fresh, contention.counts
    for place in range(counts[FRESH]):
        op = np.int64(fresh[place])
        _count(op, rank_of[ops[op].stream], np.int64(1), contention)
    for place in range(counts[CHANGED]):
        rank = contention.changed_ranks[place]
        ranks[rank].changed = 0
        pace = max(SLOWEST, 1.0 - ranks[rank].taken / TAKEN_UNIT)
        if pace != ranks[rank].pace:
            ranks[rank].pace = pace
            _change_paces(members[rank, COMPUTES], rank, now, ops, lines, links, contention, alarms)
        busy = np.int32(ranks[rank].computing > 0)
        if busy != ranks[rank].busy:
            ranks[rank].busy = busy
            _change_paces(members[rank, COMMUNICATES], rank, now, ops, lines, links, contention, alarms)
    counts[CHANGED] = 0
    for place in range(counts[STALE]):
        link = contention.stale_links[place]
        contention.stale[link] = 0
        _order_link(link, links)
        set_alarm(link, next_done(link, links), alarms)
    counts[STALE] = 0
    for place in range(counts[FRESH]):
        op = np.int64(fresh[place])
        rank = rank_of[ops[op].stream]
        after = members[rank, rivals[op].role]
        rivals[op].before, rivals[op].after = -1, after
        if after >= 0:
            rivals[after].before = op
        members[rank, rivals[op].role] = op
        _set_going(op, _pace(op, rank, contention), now, ops, lines, links, contention, alarms)
    counts[FRESH] = 0


@compiled("numpy")
def _count(op: Any, rank: Any, more: Any, contention: Any) -> None:  # pragma: no cover - compiled
    """Count `op` among the running ops of `rank` (`more` 1), or no longer (-1)."""
    rivals, ranks, counts = contention.rivals, contention.ranks, contention.counts
    if rivals[op].role == COMPUTES:
        ranks[rank].computing += more
    else:
        ranks[rank].taken += more * rivals[op].taken
    if ranks[rank].changed == 0:
        ranks[rank].changed = 1
        contention.changed_ranks[counts[CHANGED]] = rank
        counts[CHANGED] += 1


@compiled("numpy")
def _pace(op: Any, rank: Any, contention: Any) -> Any:  # pragma: no cover - compiled
    """The pace of `op` on `rank` as it is settled now."""
    rivals, ranks = contention.rivals, contention.ranks
    if rivals[op].role == COMPUTES:
        return ranks[rank].pace
    return rivals[op].slow_pace if ranks[rank].busy != 0 else 1.0


@compiled("numpy")
def _set_going(
    op: Any, pace: Any, now: Any, ops: Any, lines: Any, links: Any, contention: Any, alarms: Any
) -> None:  # pragma: no cover - compiled
    """Let `op` begin its work at `pace`."""
    rivals, line, work = contention.rivals, np.int64(ops[op].stream), ops[op].duration
    rivals[op].pace = pace
    if pace < 1.0:
        rivals[op].slowed = 1
    if lines[line].shared == 0:
        rivals[op].left, rivals[op].since = np.float64(work), now
        set_alarm(line, _done_at(op, now, rivals), alarms)
        return
    pass_time(line, now, links)
    if pace == 1.0:
        join_link(line, op, work, links)
    else:
        _aim(op, line, (work - _FORGIVEN_NS) / pace, links)
        links.clock[line, 3] = push_op(
            links.members, links.first[line], links.clock[line, 3], op, links.goal, links.goal_part
        )
    set_alarm(line, next_done(line, links), alarms)


@compiled("numpy")
def _change_paces(
    first: Any, rank: Any, now: Any, ops: Any, lines: Any, links: Any, contention: Any, alarms: Any
) -> None:  # pragma: no cover - compiled
    """Give `first`, and the running ops of `rank` and its role after it, the pace that they have now."""
    rivals, counts = contention.rivals, contention.counts
    op = np.int64(first)
    while op >= 0:
        pace, old = _pace(op, rank, contention), rivals[op].pace
        if pace != old:
            line = np.int64(ops[op].stream)
            if lines[line].shared == 0:
                rivals[op].left -= (now - rivals[op].since) * old
                rivals[op].since, rivals[op].pace = now, pace
                set_alarm(line, _done_at(op, now, rivals), alarms)
            else:
                pass_time(line, now, links)
                ahead = links.goal[op] - links.clock[line, 1] + (links.goal_part[op] - links.clock[line, 2]) / _PARTS
                _aim(op, line, ahead * (old / pace), links)
                rivals[op].pace = pace
                if contention.stale[line] == 0:
                    contention.stale[line] = 1
                    contention.stale_links[counts[STALE]] = line
                    counts[STALE] += 1
            rivals[op].slowed = 1
        op = np.int64(rivals[op].after)


@compiled("numpy")
def _done_at(op: Any, now: Any, rivals: Any) -> Any:  # pragma: no cover - compiled
    """The first instant after `now` at which `op` has less than _FORGIVEN_NS left, if its pace stays."""
    return now + max(np.int64(1), np.int64(np.ceil((rivals[op].left - _FORGIVEN_NS) / rivals[op].pace)))


@compiled("numpy")
def _aim(op: Any, link: Any, ahead: Any, links: Any) -> None:  # pragma: no cover - compiled
    """Let `op` be done when the virtual time of `link` is `ahead` ns further."""
    whole = np.int64(np.floor(ahead))
    part = links.clock[link, 2] + np.int64((ahead - whole) * _PARTS)
    links.goal[op] = links.clock[link, 1] + whole + (part >> 32)
    links.goal_part[op] = part & 0xFFFFFFFF


@compiled("numpy")
def _order_link(link: Any, links: Any) -> None:  # pragma: no cover - compiled
    """Make the ops that `link` serves a heap again, after goals have changed."""
    members, first = links.members, links.first[link]
    for size in range(links.clock[link, 3]):
        push_op(members, first, np.int64(size), members[first + size], links.goal, links.goal_part)
