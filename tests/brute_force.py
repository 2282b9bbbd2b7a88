"""Ready order straight from its definition: a slow event simulation that asks every op in every round."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from makespan.graph import Graph, Relation, StreamKind

_BINDS_START = (Relation.FINISH_START, Relation.START_START)
_FROM_START = (Relation.START_START, Relation.START_FINISH)
_UNIT = 1 << 32
_FORGIVEN = 1 << 16


class Standstill(Exception):
    """Ops remain that nothing will ever start or end."""


@dataclass
class SharedLink:
    """A link that keeps an account of the work (2**-32 ns) that each op it serves has left.

    Accounts are settled when the number of ops changes, each op then getting its share of the time since: rounded
    down to a unit, or as an exact fraction with `exact`.
    """

    exact: bool
    settled_at: int = 0
    left: dict[int, int | Fraction] = field(default_factory=dict)

    def left_at(self, now: int) -> dict[int, int | Fraction]:
        """What every op has left at `now`."""
        time = (now - self.settled_at) * _UNIT
        served = len(self.left)
        share = 0 if not served else Fraction(time, served) if self.exact else time // served
        return {op: left - share for op, left in self.left.items()}

    def done_at(self, now: int) -> list[int]:
        """The ops whose work is done: less than 2**-16 ns is left, or nothing was to do."""
        return [op for op, left in self.left_at(now).items() if left <= 0 or left < _FORGIVEN]

    def change(self, now: int, joining: dict[int, int], leaving: list[int]) -> None:
        """Settle all accounts at `now`, let ops with their work (ns) join and others leave."""
        self.left = self.left_at(now) | {op: work * _UNIT if work else -1 for op, work in joining.items()}
        self.settled_at = now
        for op in leaving:
            del self.left[op]

    def next_done(self, now: int) -> int | None:
        """The first ns after `now` at which an op is done if nothing changes, by bisection; None if it serves none."""
        if not self.left:
            return None
        early, late = now, now + 1
        while not self.done_at(late):
            early, late = late, late + 2 * (late - now)
        while late - early > 1:
            middle = (early + late) // 2
            early, late = (early, middle) if self.done_at(middle) else (middle, late)
        return late


def simulate_ready(graph: Graph, exact_sharing: bool = False) -> tuple[list[int], list[int]]:
    """Start and end of every op in ready order, ns; raises Standstill."""
    ops = range(len(graph))
    into: dict[int, list[tuple[int, Relation, int]]] = {op: [] for op in ops}
    for edge, op in enumerate(graph.edge_targets().tolist()):
        into[op].append((int(graph.pred[edge]), Relation(graph.relation[edge]), int(graph.lag_ns[edge])))
    stream, work, priority = graph.stream.tolist(), graph.duration_ns.tolist(), graph.priority.tolist()
    links = {
        number: SharedLink(exact_sharing) for number, item in enumerate(graph.streams) if item.kind == StreamKind.SHARED
    }
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    work_done: dict[int, int] = {}
    agenda = {0}

    def asked(op: int, of_start: bool) -> int | None:
        """The instant that the edges into `op` ask for; None while it can't be known."""
        latest = 0
        for before, relation, lag in into[op]:
            if (relation in _BINDS_START) == of_start:
                moment = (start if relation in _FROM_START else end).get(before)
                if moment is None:
                    return None
                latest = max(latest, moment + lag)
        return latest

    def drain(now: int) -> None:
        """End what ends at `now`, until nothing more does; note when the others will end."""
        something = True
        while something:
            something = False
            for number, link in links.items():
                for op in link.done_at(now):
                    link.change(now, {}, [op])
                    work_done[op] = now
                    something = True
                following = link.next_done(now)
                if following is not None:
                    agenda.add(following)
                assert all(stream[op] == number for op in link.left)
            for op in [op for op in start if op not in end]:
                own = work_done.get(op) if stream[op] in links else start[op] + work[op]
                floor = asked(op, of_start=False)
                if own is not None and floor is not None:
                    if max(own, floor) <= now:
                        end[op] = now
                        something = True
                    else:
                        agenda.add(max(own, floor))

    def dispatch(now: int) -> bool:
        """Start one op on each idle stream, all on shared ones; whether any started."""
        busy = {stream[op] for op in start if op not in end and stream[op] not in links}
        eligible: dict[int, list[tuple[int, int, int]]] = {}
        for op in [op for op in ops if op not in start]:
            ready = asked(op, of_start=True)
            if ready is not None and ready <= now:
                eligible.setdefault(stream[op], []).append((ready, priority[op], op))
            elif ready is not None:
                agenda.add(ready)
        chosen = []
        for number, candidates in eligible.items():
            if number in links:
                links[number].change(now, {op: work[op] for _, _, op in candidates}, [])
                chosen += [op for _, _, op in candidates]
            elif number not in busy:
                chosen.append(min(candidates)[2])
        start.update(dict.fromkeys(chosen, now))
        return bool(chosen)

    while agenda:
        now = min(agenda)
        agenda.remove(now)
        drain(now)
        while dispatch(now):
            drain(now)
    if len(end) < len(graph):
        raise Standstill(f"{len(graph) - len(end)} of {len(graph)} ops remain")
    return [start[op] for op in ops], [end[op] for op in ops]
