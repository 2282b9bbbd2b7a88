"""Expand: collectives of a graph are replaced by the messages that an algorithm sends over a cluster's links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.cluster import Cluster
from makespan.errors import GraphError
from makespan.graph import EdgeKind, Graph, OpKind
from makespan.protocols import Rewrite
from makespan.rebuild import rebuild
from makespan.resolve import resolve
from makespan.simulator.analysis.selectors import select
from makespan.simulator.expansion.collective import KINDS, Collective
from makespan.simulator.expansion.embed import embed
from makespan.simulator.expansion.exchange import Exchange
from makespan.simulator.expansion.flow import Flow, lay_out
from makespan.simulator.expansion.meetings import Meeting, find_meetings
from makespan.simulator.expansion.wires import wire
from makespan.simulator.reading.kineto_kinds import canonical_collective

ALGORITHMS: Final = "makespan.simulator.collectives"


def expand(
    graph: Graph,
    ops: ArrayLike | str | None,
    algorithm: str,
    cluster: Cluster,
    *,
    kind: str | None = None,
    size_bytes: int | None = None,
    slice_bytes: int = 0,
    rank_order: Sequence[int] = (),
    root: int | None = None,
    servers: Sequence[int] = (),
    sum_bytes_per_s: float = 0.0,
    stored_and_forwarded: bool = False,
) -> Rewrite:
    """`graph` in which collectives are carried out by `algorithm` over the links of `cluster`, with provenance.

    `ops`: the collectives, as numbers, a (n,) bool mask, a selector ("comm,step:2"), or None for all; the ops of
    several ranks are one collective as `meetings` tells. `algorithm` is a module of `simulator/collectives` or
    "package.module:name". What a collective is and how much each rank puts in follow from the op's name and
    `size_bytes` column unless `kind` (of collective.KINDS) and `size_bytes` are given. `slice_bytes`, `root` and
    `servers` are as in Collective; `rank_order` is the order of ranks in rings and trees, those it doesn't name follow
    in ascending order. Sums run at `sum_bytes_per_s` on a stream of their own, or take no time (0).
    In recorded order a link serves the collectives one after another; ready order lets their messages mix.
    `stored_and_forwarded`: links pass on whole messages, and no edge binds an end, so that the "dpro" order takes it.

    Added ops have the attributes `transfer_source` and `transfer_target` (n,) int32, the ranks of their message, -1 on
    all others; `size_bytes` is what the link carries; they stand for the collective of the sending rank (RECV and
    sums: of the receiving one). Raises GraphError, ClusterError, SelectorError or MakespanError with one sentence.

    >>> expand(graph, None, "ring", load_cluster("dgx-a100"), slice_bytes=4_000_000).graph  # doctest: +SKIP
    """
    if not 0 <= sum_bytes_per_s < np.inf:
        raise GraphError(f"sum_bytes_per_s is {sum_bytes_per_s}, expected 0 or more")
    carry_out = resolve(ALGORITHMS, algorithm)
    meetings = find_meetings(graph, _chosen(graph, ops))
    exchanges: dict[Collective, Exchange] = {}
    asked: list[Collective] = []
    for meeting in meetings:
        collective = Collective(
            kind=_kind_of(graph, meeting) if kind is None else kind,
            size_bytes=_bytes_of(graph, meeting) if size_bytes is None else size_bytes,
            ranks=_ordered(meeting.ranks, rank_order),
            cluster=cluster,
            slice_bytes=slice_bytes,
            root=root,
            servers=tuple(servers),
        )
        if collective not in exchanges:
            exchanges[collective] = Exchange(with_sums=sum_bytes_per_s > 0)
            carry_out(collective, exchanges[collective])
        asked.append(collective)
    pairs = sorted({pair for each in exchanges.values() for pair in zip(each.source, each.target, strict=True)})
    wires = wire(cluster, pairs, sum_bytes_per_s)
    route_of = {pair: number for number, pair in enumerate(pairs)}
    flows: dict[tuple[Collective, bool], Flow] = {}
    found: list[Flow] = []
    for collective, meeting in zip(asked, meetings, strict=True):
        key = (collective, meeting.come_together)
        if key not in flows:
            flows[key] = lay_out(
                exchanges[collective], wires, route_of,
                come_together=meeting.come_together, stored_and_forwarded=stored_and_forwarded,
            )  # fmt: skip
        found.append(flows[key])
    return rebuild(embed(graph, meetings, found, wires, stored_and_forwarded))


def _chosen(graph: Graph, ops: ArrayLike | str | None) -> NDArray[np.bool_]:
    """(n,) bool: the collectives named; by number only collectives may be."""
    is_collective = graph.kind == OpKind.COLLECTIVE
    if ops is None or isinstance(ops, str):
        chosen = is_collective if ops is None else is_collective & select(graph, ops)
    else:
        given = np.atleast_1d(np.asarray(ops))
        chosen = np.zeros(len(graph), np.bool_)
        if given.dtype != np.bool_ and (given.dtype.kind not in "iu" or np.any((given < 0) | (given >= len(graph)))):
            raise GraphError(f"ops to expand are numbers from 0 to {len(graph) - 1}, or a mask")
        chosen[given] = True
        others = np.flatnonzero(chosen & ~is_collective)
        if len(others):
            raise GraphError(f"op {others[0]} {graph.name_of(int(others[0]))!r} is no collective: leave it out")
    if not np.any(chosen):
        raise GraphError("there is no collective to expand among the ops named")
    target = graph.edge_targets()
    inner = chosen[target] & np.isin(graph.kind[graph.pred], (OpKind.SEND, OpKind.RECV))
    inner &= graph.edge_kind == EdgeKind.COLLECTIVE
    if np.any(inner):
        op = int(target[inner][0])
        raise GraphError(f"op {op} {graph.name_of(op)!r} is expanded already: leave it out")
    return chosen


def _kind_of(graph: Graph, meeting: Meeting) -> str:
    name = graph.name_of(meeting.ops[0])
    found = canonical_collective(name)
    if found not in KINDS:
        raise GraphError(f"which collective op {meeting.ops[0]} {name!r} is can't be told from its name: say its kind")
    return found


def _bytes_of(graph: Graph, meeting: Meeting) -> int:
    found = int(graph.size_bytes[list(meeting.ops)].max())
    if not found:
        op = meeting.ops[0]
        raise GraphError(f"how many bytes op {op} {graph.name_of(op)!r} exchanges isn't known: say its size_bytes")
    return found


def _ordered(ranks: tuple[int, ...], rank_order: Sequence[int]) -> tuple[int, ...]:
    place = {rank: number for number, rank in enumerate(rank_order)}
    return tuple(sorted(ranks, key=lambda rank: (place.get(rank, len(place)), rank)))
