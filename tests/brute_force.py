"""Ready order straight from its definition: a slow event simulation that looks at every op in every round."""

from __future__ import annotations

import heapq
from fractions import Fraction

from makespan.graph import Graph, Relation, StreamKind

STARTS = (Relation.FINISH_START, Relation.START_START)
FROM_START = (Relation.START_START, Relation.START_FINISH)
UNIT = 1 << 32


class Standstill(Exception):
    """Ops remain that nothing will ever start or end."""


def simulate_ready(graph: Graph, exact_sharing: bool = False) -> tuple[list[int], list[int]]:
    """Start and end of every op in ready order, ns.

    Each instant is found by asking every op what it waits for, without any bookkeeping of open constraints.
    On shared streams each op keeps an account of the work it received: after each interval in which k ops
    were served, floor(t * 2**32 / k) units of 2**-32 ns, or exactly t / k with `exact_sharing`.
    """
    ops = range(len(graph))
    into: dict[int, list[tuple[int, Relation, int]]] = {op: [] for op in ops}
    for edge, op in enumerate(graph.edge_targets().tolist()):
        into[op].append((int(graph.pred[edge]), Relation(graph.relation[edge]), int(graph.lag_ns[edge])))
    stream = graph.stream.tolist()
    shared = [graph.streams[line].kind == StreamKind.SHARED for line in stream]
    work = graph.duration_ns.tolist()
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    received: dict[int, Fraction | int] = {}
    work_done_at: dict[int, int] = {}
    agenda = [0]

    def asked(op: int, of_start: bool) -> int | None:
        """The instant that the edges into `op` ask for; None while it is not known."""
        latest = 0
        for before, relation, lag in into[op]:
            if (relation in STARTS) != of_start:
                continue
            moment = (start if relation in FROM_START else end).get(before)
            if moment is None:
                return None
            latest = max(latest, moment + lag)
        return latest

    def share_rate(line: int) -> list[int]:
        return [op for op in received if stream[op] == line]

    def is_done(op: int) -> bool:
        left = work[op] * UNIT - received[op]
        return left <= 0 if work[op] == 0 else left < 1 << 16

    def let_time_pass(span: int) -> None:
        for line in range(len(graph.streams)):
            served = share_rate(line)
            for op in served:
                pending[op] = pending.get(op, 0) + span
        # An account is settled only when the number of ops that are served changes.

    def settle(line: int) -> None:
        served = share_rate(line)
        for op in served:
            span = pending.pop(op, 0)
            received[op] += Fraction(span * UNIT, len(served)) if exact_sharing else span * UNIT // len(served)

    def look_ahead(line: int) -> None:
        """Put on the agenda the first ns at which an op of `line` will be done if nothing changes."""
        served = share_rate(line)
        for op in served:
            left = work[op] * UNIT - received[op] - (0 if work[op] == 0 else (1 << 16) - 1)
            if exact_sharing and work[op]:
                left = work[op] * UNIT - received[op] - (1 << 16)
                span = int(left * len(served) // UNIT) + 1 if left >= 0 else 0
            else:
                span = max(0, -(-(left * len(served)) // UNIT))
            heapq.heappush(agenda, now + int(span))

    pending: dict[int, int] = {}
    now = 0
    while agenda:
        instant = heapq.heappop(agenda)
        let_time_pass(instant - now)
        now = instant
        while True:
            drained = True
            while drained:
                drained = False
                for line in {stream[op] for op in received}:
                    probe = [(op, pending.get(op, 0)) for op in share_rate(line)]
                    served = len(probe)
                    for op, span in probe:
                        gained = Fraction(span * UNIT, served) if exact_sharing else span * UNIT // served
                        left = work[op] * UNIT - received[op] - gained
                        if left <= 0 or (work[op] and left < 1 << 16):
                            settle(line)
                            for finished in [member for member in share_rate(line) if is_done(member)]:
                                del received[finished]
                                work_done_at[finished] = now
                            look_ahead(line)
                            drained = True
                            break
                for op in ops:
                    if op in start and op not in end:
                        own = work_done_at.get(op) if shared[op] else start[op] + work[op]
                        floor = asked(op, of_start=False)
                        if own is None or floor is None:
                            continue
                        if max(own, floor) <= now:
                            end[op] = now
                            drained = True
                        else:
                            heapq.heappush(agenda, max(own, floor))
            busy = {stream[op] for op in start if op not in end and not shared[op]}
            eligible: dict[int, list[tuple[int, int, int]]] = {}
            for op in ops:
                ready = None if op in start else asked(op, of_start=True)
                if ready is not None and ready <= now:
                    eligible.setdefault(stream[op], []).append((ready, int(graph.priority[op]), op))
                elif ready is not None:
                    heapq.heappush(agenda, ready)
            begun = False
            for line, candidates in eligible.items():
                if shared[candidates[0][2]]:
                    settle(line)
                    for _, _, op in candidates:
                        start[op], received[op] = now, 0
                    look_ahead(line)
                    begun = True
                elif line not in busy:
                    start[min(candidates)[2]] = now
                    begun = True
            if not begun:
                break
        while agenda and agenda[0] == now:
            heapq.heappop(agenda)
    if len(end) < len(graph):
        raise Standstill(f"{len(graph) - len(end)} ops remain")
    return [start[op] for op in ops], [end[op] for op in ops]
