"""Step graph: a training job as one graph of all ranks, from forward pass to update, its exchange included.

The global graph of dPRO (Hu et al., MLSys 2022, section 4.1) for a fused group g and rank r:

    operators that feed g on r -> ready(g, r);  ready(g, every rank) -> sync(g) -> queue(g, r) -> copy in(g, r)
    copy in(g, r) -> messages of g on r -> copy out(g, r) -> updates of g on r

with one meeting point where dPRO has edges from each rank to each. A parameter server needs neither the meeting nor
the fusion buffer: ready(g, r) -> push, sum, pull -> updates. Messages are those of an algorithm of
`simulator/collectives`, over the links of a cluster; see `expansion.expand` for how they are laid out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from makespan.cluster import Cluster
from makespan.errors import GraphError
from makespan.graph import NONE, EdgeKind, Edges, Graph, OpKind, Step, Stream, StreamKind, assemble
from makespan.simulator.expansion.expand import expand
from makespan.simulator.orders.dpro_rule import HOLD_ATTR
from makespan.simulator.training.job import RankWork, TrainingJob

FORWARD: Final = 0
BACKWARD: Final = 2
UPDATE: Final = 3
REST: Final = 100
"""Priorities are the classes of dPRO's replayer; other orders take them for breaking ties only."""

_STREAMS: Final = (
    ("compute", StreamKind.DEVICE), ("fusion buffer", StreamKind.DEVICE), ("exchange", StreamKind.SHARED),
)  # fmt: skip
_COMPUTE, _BUFFER, _EXCHANGE = range(len(_STREAMS))
_TAKES, _RELEASES = 1, 2
_COLUMNS: Final = ("kind", "stream", "duration_ns", "name", "size_bytes", "priority", "step", "group", "hold")


def training_graph(job: TrainingJob, cluster: Cluster | None = None, *, stored_and_forwarded: bool = False) -> Graph:
    """The graph of `job`, whose ranks are those of `cluster` (further ones can be servers).

    Each rank has the streams "compute", "fusion buffer" and "exchange", on which its collectives stand side by side.
    Ops tell their `step` and their `group` (number of the fused group, counted on from step to step). Without an
    exchange (backend "none", one rank, or no gradients) no cluster is needed. `priority` holds dPRO's classes and the
    attribute `fusion_buffer` what its rule needs to hold a rank's buffer; in other orders the job's number of
    `buffers` alone holds it, so set that to 0 for dPRO's rule alone, and `stored_and_forwarded` to leave out the edges
    that its order doesn't know. Raises GraphError or ClusterError with one sentence.

    >>> layers = [Operator(f"layer {n}", 1_000_000, {f"weight {n}": 4_000_000}) for n in range(8)]  # doctest: +SKIP
    >>> work = RankWork((Operator("forward", 4_000_000),), tuple(layers))  # doctest: +SKIP
    >>> replay(training_graph(TrainingJob.of_equal_ranks(work, 8), load_cluster("dgx-a100")))  # doctest: +SKIP
    """
    drawing = _Drawing(job)
    for step in range(job.steps):
        drawing.add_step(step)
    graph = drawing.graph(cluster)
    if not drawing.exchanges:
        return graph
    exchange = job.exchange
    if cluster is None:
        raise GraphError(f"gradients are exchanged by {exchange.backend!r}, so a cluster is needed: give one")
    return expand(
        graph, None, exchange.backend, cluster,
        kind="allreduce", slice_bytes=exchange.slice_bytes, servers=exchange.servers,
        sum_bytes_per_s=exchange.sum_bytes_per_s, stored_and_forwarded=stored_and_forwarded,
    ).graph  # fmt: skip


class _Drawing:
    """The ops and edges of a job; ops are drawn in the order in which streams serve them."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._groups = job.groups()
        self.exchanges = job.exchange.backend != "none" and len(job.ranks) > 1 and bool(self._groups)
        self._names: dict[str, int] = {}
        self._rows: list[tuple[int, ...]] = []
        self._edges: list[tuple[int, int, int, int]] = []
        self._steps: list[Step] = []
        self._step = 0

    def add_step(self, step: int) -> None:
        """Draw step number `step` of all ranks, each after its step before."""
        ended = [each.end_op for each in self._steps[-len(self._job.ranks) :]]
        self._step = step
        begins = [self._op(rank, _COMPUTE, OpKind.MARK, "step begins") for rank in range(len(self._job.ranks))]
        for before, after in zip(ended, begins, strict=False):
            self._edge(before, after)
        ends: list[list[int]] = []
        fed: list[dict[str, list[int]]] = []
        for rank, work in enumerate(self._job.ranks):
            last, of_gradient = self._operators(rank, work, begins[rank])
            ends.append(last)
            fed.append(of_gradient)
        given = self._exchange(fed) if self.exchanges else fed
        for rank, work in enumerate(self._job.ranks):
            for update in work.updates:
                op = self._op(rank, _COMPUTE, OpKind.COMPUTE, update.name, update.duration_ns, priority=UPDATE)
                for before in dict.fromkeys(part for name in update.gradients for part in given[rank][name]):
                    self._edge(before, op)
                ends[rank].append(op)
            end = self._op(rank, _COMPUTE, OpKind.MARK, "step ends")
            for before in dict.fromkeys([*ends[rank], *(part for parts in given[rank].values() for part in parts)]):
                self._edge(before, end)
            self._steps.append(Step(f"step {step}", rank, begins[rank], end))

    def graph(self, cluster: Cluster | None) -> Graph:
        """The graph of all that was drawn, each collective being one op on each rank."""
        ranks = range(len(self._job.ranks))
        devices = [NONE if cluster is None else cluster.device_of(rank).number for rank in ranks]
        rows = np.array(self._rows, np.int64)
        columns: dict[str, Any] = {name: rows[:, place] for place, name in enumerate(_COLUMNS)}
        hold = columns.pop("hold").astype(np.uint8)
        source, target, lag_ns, kind = np.array(self._edges, np.int64).reshape(-1, 4).T
        graph, _ = assemble(
            **columns,
            streams=[Stream(rank, name, kind, devices[rank]) for rank in ranks for name, kind in _STREAMS],
            names=list(self._names),
            edges=Edges.of(source, target, lag_ns, kind=kind),
            step_names=[f"step {step}" for step in range(self._job.steps)],
            steps=self._steps,
            attrs={HOLD_ATTR: hold},
        )
        return graph

    def _operators(self, rank: int, work: RankWork, begin: int) -> tuple[list[int], dict[str, list[int]]]:
        """Draw a rank's passes; the ops that nothing waits for, and the ops that feed each gradient."""
        number: dict[str, int] = {}
        fed: dict[str, list[int]] = {}
        awaited: set[int] = set()
        before = begin
        for place, operator in enumerate(work.operators()):
            priority = FORWARD if place < len(work.forward) else BACKWARD
            op = self._op(rank, _COMPUTE, OpKind.COMPUTE, operator.name, operator.duration_ns, priority=priority)
            needed = [before] if operator.after is None else [number[name] for name in operator.after] or [begin]
            for each in needed:
                self._edge(each, op)
            awaited.update(needed)
            for name in operator.gradients:
                fed.setdefault(name, []).append(op)
            number[operator.name] = before = op
        return [op for op in (begin, *number.values()) if op not in awaited], fed

    def _exchange(self, fed: list[dict[str, list[int]]]) -> list[dict[str, list[int]]]:
        """Draw the exchange of all groups; for each rank and gradient the op after which it is the same everywhere."""
        given: list[dict[str, list[int]]] = [{} for _ in self._job.ranks]
        served = self._job.exchange.backend == "parameter-server"
        # With several buffers a group's copy out comes after the copies in of the groups that are let in before it.
        behind = max(self._job.exchange.buffers, 1) - 1
        open_groups: list[tuple[int, list[int]]] = []
        freed: list[list[int]] = []
        for place in range(len(self._groups)):
            blocked_by = freed[place - self._job.exchange.buffers] if self._is_blocked(place) and not served else []
            moving = self._send_group(place, fed, blocked_by, served)
            open_groups.append((place, moving))
            while len(open_groups) > (0 if served else behind):
                freed.append(self._give_group(*open_groups.pop(0), given, served))
        while open_groups:
            self._give_group(*open_groups.pop(0), given, served)
        return given

    def _is_blocked(self, place: int) -> bool:
        return 0 < self._job.exchange.buffers <= place

    def _send_group(
        self, place: int, fed: list[dict[str, list[int]]], blocked_by: list[int], served: bool
    ) -> list[int]:
        """Draw a group up to its collective, whose ops are returned, one for each rank."""
        gradients, size_bytes = self._groups[place]
        exchange, label = self._job.exchange, f"group {place}"
        group = self._step * len(self._groups) + place
        ready: list[int] = []
        for rank, of_gradient in enumerate(fed):
            ready.append(self._op(rank, _EXCHANGE, OpKind.MARK, f"{label}: ready", group=group))
            for before in dict.fromkeys(part for name in gradients for part in of_gradient[name]):
                self._edge(before, ready[rank], exchange.ready_lag_ns)
        sync = NONE
        if not served:
            sync = self._op(0, _EXCHANGE, OpKind.BARRIER, f"{label}: sync", group=group)
            for before in ready:
                self._edge(before, sync, kind=EdgeKind.COLLECTIVE)
        moving: list[int] = []
        for rank, before in enumerate(ready):
            if not served:
                queue = self._op(
                    rank, _BUFFER, OpKind.OTHER, f"{label}: queue", exchange.queue_ns, group=group, hold=_TAKES
                )
                self._edge(sync, queue, kind=EdgeKind.COLLECTIVE)
                for free in blocked_by[rank : rank + 1]:
                    self._edge(free, queue)
                before = self._op(
                    rank, _BUFFER, OpKind.MEMCPY, f"{label}: copy in", exchange.copy_ns(size_bytes), size_bytes,
                    group=group, hold=_TAKES,
                )  # fmt: skip
                self._edge(queue, before)
            moving.append(self._op(rank, _EXCHANGE, OpKind.COLLECTIVE, label, 0, size_bytes, group=group))
            self._edge(before, moving[rank])
        return moving

    def _give_group(self, place: int, moving: list[int], given: list[dict[str, list[int]]], served: bool) -> list[int]:
        """Draw what follows a group's collective, and note it in `given`; the ops that free the buffers."""
        gradients, size_bytes = self._groups[place]
        group = self._step * len(self._groups) + place
        duration_ns = self._job.exchange.copy_ns(size_bytes)
        freed: list[int] = []
        for rank, op in enumerate(moving):
            if not served:
                copy = self._op(
                    rank, _BUFFER, OpKind.MEMCPY, f"group {place}: copy out", duration_ns, size_bytes,
                    group=group, hold=_RELEASES,
                )  # fmt: skip
                self._edge(op, copy)
                op = copy
            freed.append(op)
            given[rank] |= {name: [op] for name in gradients}
        return freed

    def _op(
        self, rank: int, line: int, kind: OpKind, name: str, duration_ns: int = 0, size_bytes: int = 0, *,
        priority: int = REST, group: int = NONE, hold: int = 0,
    ) -> int:  # fmt: skip
        code = self._names.setdefault(name, len(self._names))
        stream = rank * len(_STREAMS) + line
        self._rows.append((kind, stream, duration_ns, code, size_bytes, priority, self._step, group, hold))
        return len(self._rows) - 1

    def _edge(self, source: int, target: int, lag_ns: int = 0, kind: EdgeKind = EdgeKind.DATA) -> None:
        self._edges.append((source, target, lag_ns, kind))
