"""Contended order straight from its definition: at every instant each op's pace, and its work left as a fraction."""

from __future__ import annotations

from fractions import Fraction

from brute_force import Standstill

from makespan.graph import Graph, Relation, StreamKind

_BINDS_START = (Relation.FINISH_START, Relation.START_START)
_FROM_START = (Relation.START_START, Relation.START_FINISH)
_FORGIVEN = Fraction(1, 1 << 16)
_SLOWEST = Fraction(1, 20)


class ContendedRun:
    """A simulation of `graph` in which whatever runs is asked at every instant; `run` it once."""

    def __init__(self, graph: Graph) -> None:
        self.ops = range(len(graph))
        self.into: dict[int, list[tuple[int, Relation, int]]] = {op: [] for op in self.ops}
        for edge, op in enumerate(graph.edge_targets().tolist()):
            self.into[op].append((int(graph.pred[edge]), Relation(graph.relation[edge]), int(graph.lag_ns[edge])))
        self.stream, self.work = graph.stream.tolist(), graph.duration_ns.tolist()
        self.priority, self.rank = graph.priority.tolist(), graph.rank.tolist()
        self.shared = [stream.kind == StreamKind.SHARED for stream in graph.streams]
        told = {name: column.tolist() for name, column in graph.attrs.items()}
        self.role = told.get("contention", [0] * len(graph))
        self.stretch = list(map(Fraction, told.get("stretch", [1] * len(graph))))
        self.share_left = list(map(Fraction, told.get("share_left", [1] * len(graph))))
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.left: dict[int, Fraction] = {}

    def pace(self, op: int) -> Fraction:
        """At which rate `op` works now, given all that have work left."""
        beside = [other for other in self.left if self.rank[other] == self.rank[op]]
        served = sum(self.stream[other] == self.stream[op] for other in self.left)
        share = Fraction(1, served) if self.shared[self.stream[op]] else Fraction(1)
        if self.role[op] == 1:
            return share * max(_SLOWEST, 1 - sum(1 - self.share_left[item] for item in beside if self.role[item] == 2))
        if self.role[op] == 2 and any(self.role[item] == 1 for item in beside):
            return share / self.stretch[op]
        return share

    def asked(self, op: int, of_start: bool) -> int | None:
        """The instant that the edges into `op` ask for; None while it can't be known."""
        latest = 0
        for before, relation, lag in self.into[op]:
            if (relation in _BINDS_START) == of_start:
                moment = (self.start if relation in _FROM_START else self.end).get(before)
                if moment is None:
                    return None
                latest = max(latest, moment + lag)
        return latest

    def drain(self, now: int) -> None:
        """End what ends at `now`, until nothing more does."""
        ended = [-1]
        while ended:
            self.left = {op: left for op, left in self.left.items() if left >= _FORGIVEN}
            ended = []
            for op in self.start:
                floor = self.asked(op, of_start=False)
                if op not in self.end and op not in self.left and floor is not None and floor <= now:
                    ended.append(op)
            self.end.update(dict.fromkeys(ended, now))

    def dispatch(self, now: int) -> bool:
        """Start one op on each idle stream, all on shared ones; whether any started."""
        busy = {self.stream[op] for op in self.start if op not in self.end}
        eligible: dict[int, list[tuple[int, int, int]]] = {}
        for op in self.ops:
            ready = None if op in self.start else self.asked(op, of_start=True)
            if ready is not None and ready <= now:
                eligible.setdefault(self.stream[op], []).append((ready, self.priority[op], op))
        chosen: list[int] = []
        for number, candidates in eligible.items():
            if self.shared[number]:
                chosen += [op for _, _, op in candidates]
            elif number not in busy:
                chosen.append(min(candidates)[2])
        self.start.update(dict.fromkeys(chosen, now))
        self.left.update({op: Fraction(self.work[op]) for op in chosen})
        return bool(chosen)

    def coming(self, now: int, pace: dict[int, Fraction]) -> list[int]:
        """All instants after `now` at which something happens unless something happens before."""
        asked = [self.asked(op, of_start=op not in self.start) for op in self.ops if op not in self.end]
        done = [now + 1 + (left - _FORGIVEN) // pace[op] for op, left in self.left.items()]
        return [instant for instant in [*asked, *done] if instant is not None and instant > now]

    def run(self) -> tuple[list[int], list[int]]:
        """Start and end of every op, ns; raises Standstill."""
        now = 0
        while True:
            self.drain(now)
            while self.dispatch(now):
                self.drain(now)
            pace = {op: self.pace(op) for op in self.left}
            following = min(self.coming(now, pace), default=None)
            if following is None:
                break
            self.left = {op: left - (following - now) * pace[op] for op, left in self.left.items()}
            now = following
        if len(self.end) < len(self.ops):
            raise Standstill(f"{len(self.ops) - len(self.end)} of {len(self.ops)} ops remain")
        return [self.start[op] for op in self.ops], [self.end[op] for op in self.ops]
