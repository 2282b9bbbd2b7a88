"""Embed: messages and sums take the place of the collectives of a graph, as a draft of the changed graph.

The collective of each rank stays as two ops in its place on its stream: a MARK where it begins, and a COLLECTIVE of no
duration that begins there too and is held until all messages and sums of the rank have ended. So the stream is
busy for as long as the collective takes, whatever its links have to carry besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import NONE, EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Stream
from makespan.rebuild import DRAFTED, Draft, blank_rows
from makespan.simulator.expansion.flow import Flow
from makespan.simulator.expansion.meetings import Meeting, stream_order
from makespan.simulator.expansion.wires import Wires

SOURCE_ATTR: Final = "transfer_source"
TARGET_ATTR: Final = "transfer_target"
_ROLES: Final = {OpKind.MARK: "begin", OpKind.SEND: "send", OpKind.RECV: "receive", OpKind.COMPUTE: "sum"}


def embed(
    graph: Graph, meetings: Sequence[Meeting], flows: Sequence[Flow], wires: Wires, stored_and_forwarded: bool
) -> Draft:
    """The draft in which `flows`, one for each of `meetings`, are carried by `wires`.

    After the old ops come, for all meetings in order, their beginnings, then their held ends, then their messages
    and sums.
    """
    count = len(graph)
    expanded = np.concatenate([np.array(meeting.ops, np.int64) for meeting in meetings])
    begin, end = np.arange(count), np.arange(count)
    begin[expanded] = count + np.arange(len(expanded))
    end[expanded] = begin[expanded] + len(expanded)
    first = count + 2 * len(expanded) + np.cumsum([0, *(len(flow) for flow in flows)])
    # A rank that has no collective is a server's.
    of_rank: list[Mapping[int, int]] = [dict(zip(meeting.ranks, meeting.ops, strict=True)) for meeting in meetings]

    graph = graph.with_attrs(
        **{name: np.full(count, NONE, np.int32) for name in (SOURCE_ATTR, TARGET_ATTR) if name not in graph.attrs}
    )
    names, codes = _names(graph, expanded)
    streams, stream_number = _streams(graph, wires)
    owners = [_owners(flow, ops, meeting.ops[0]) for flow, ops, meeting in zip(flows, of_rank, meetings, strict=True)]
    owner = np.concatenate([expanded, expanded, *owners])
    kind = np.concatenate(
        [np.full(len(expanded), OpKind.MARK), np.full(len(expanded), OpKind.COLLECTIVE), *(flow.kind for flow in flows)]
    )
    zeros = np.zeros(2 * len(expanded), np.int64)
    added: dict[str, NDArray[Any]] = {
        "kind": kind,
        "stream": np.concatenate(
            [graph.stream[expanded], graph.stream[expanded], *(stream_number[flow.stream] for flow in flows)]
        ),
        "duration_ns": np.concatenate([zeros, *(flow.duration_ns for flow in flows)]),
        "size_bytes": np.concatenate(
            [zeros[: len(expanded)], graph.size_bytes[expanded], *(flow.size_bytes for flow in flows)]
        ),
        "name": codes[graph.name[owner], kind],
        "priority": graph.priority[owner],
        "step": graph.step[owner],
        "group": graph.group[owner],
    }
    attrs = {name: np.concatenate([column, blank_rows(column, len(owner))]) for name, column in graph.attrs.items()}
    for name, column in graph.attrs.items():
        attrs[name][end[expanded]] = column[expanded]
    attrs[SOURCE_ATTR][first[0] :] = np.concatenate([flow.source for flow in flows])
    attrs[TARGET_ATTR][first[0] :] = np.concatenate([flow.target for flow in flows])
    edges = [_moved(graph, begin, end), _inside(begin[expanded], end[expanded]), _along(graph, begin, end)]
    for flow, start, ops in zip(flows, first, of_rank, strict=False):
        edges.append(_attached(flow, int(start), ops, begin, end, stored_and_forwarded))
    return Draft(
        graph=graph.replace(names=names),
        columns={
            name: np.concatenate([getattr(graph, name), added[name].astype(getattr(graph, name).dtype)])
            for name in DRAFTED
        },
        attrs=attrs,
        streams=streams,
        edges=Edges.concatenate(edges),
        removed=np.zeros(count, np.bool_),
        replacement=_replacement(count, expanded, end),
        position=_positions(count, meetings, first),
        stands_new=np.arange(count, count + len(owner)),
        stands_old=owner,
    )


def _owners(flow: Flow, ops: Mapping[int, int], otherwise: int) -> NDArray[np.int64]:
    """(k,) the collective that each op of `flow` is told of as: the sender's, where the receiver doesn't see to it."""
    rank = np.where(flow.kind == OpKind.SEND, flow.source, flow.target)
    met, place = np.unique(rank, return_inverse=True)
    return np.array([ops.get(int(each), otherwise) for each in met], np.int64)[place]


def _replacement(count: int, expanded: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int32]:
    replacement = np.full(count, NONE, np.int32)
    replacement[expanded] = end[expanded]
    return replacement


def _names(graph: Graph, expanded: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """All names, and (old names, op kinds) int32: the name of an op of that kind that an op of that name becomes."""
    names = list(graph.names)
    number = {name: code for code, name in reversed(list(enumerate(names)))}
    codes = np.zeros((len(names), max(OpKind) + 1), np.int32)
    for code in np.unique(graph.name[expanded]):
        old = names[code]
        codes[code, OpKind.COLLECTIVE] = code
        for kind, role in _ROLES.items():
            name = f"{old}: {role}"
            if name not in number:
                number[name] = len(names)
                names.append(name)
            codes[code, kind] = number[name]
    return tuple(names), codes


def _streams(graph: Graph, wires: Wires) -> tuple[tuple[Stream, ...], NDArray[np.int32]]:
    """All streams, and the number of each of the wires' among them; links that the graph has already are used again."""
    streams = list(graph.streams)
    number = {stream: place for place, stream in reversed(list(enumerate(streams)))}
    for stream in wires.streams:
        if stream not in number:
            number[stream] = len(streams)
            streams.append(stream)
    return tuple(streams), np.array([number[stream] for stream in wires.streams], np.int32)


def _moved(graph: Graph, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Edges:
    """The old edges: what counts from, or binds, the start of an expanded op does so at its beginning."""
    edges = graph.edges()
    from_start, binds_end = edges.relation & 1 != 0, edges.relation & 2 != 0
    source = np.where(from_start, begin[edges.source], end[edges.source])
    target = np.where(binds_end, end[edges.target], begin[edges.target])
    return Edges(
        source.astype(np.int32), target.astype(np.int32), edges.lag_ns, edges.relation, edges.kind, edges.evidence
    )


def _inside(begin: NDArray[np.int64], end: NDArray[np.int64]) -> Edges:
    return Edges.of(begin, end, kind=EdgeKind.COLLECTIVE, evidence=Evidence.INFERRED)


def _along(graph: Graph, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Edges:
    """The order of streams around expanded ops as edges, since a replay that reorders must not put an op into one."""
    order = stream_order(graph)
    touched = (begin[order.source] != order.source) | (begin[order.target] != order.target)
    pair = order.source.astype(np.int64) * len(graph) + order.target
    after = graph.relation == Relation.FINISH_START
    stated = graph.pred[after].astype(np.int64) * len(graph) + graph.edge_targets()[after]
    order = order.take(touched & ~np.isin(pair, stated))
    return Edges.of(end[order.source], begin[order.target], kind=EdgeKind.STREAM, evidence=Evidence.INFERRED)


def _attached(
    flow: Flow, first: int, ops: Mapping[int, int], begin: NDArray[np.int64], end: NDArray[np.int64], by_start: bool
) -> Edges:
    """The edges of `flow`, whose op 0 is number `first`, and those that tie it to the beginnings and ends of `ops`."""

    def of(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        met, place = np.unique(ranks, return_inverse=True)
        return np.array([ops.get(int(rank), NONE) for rank in met], np.int64)[place]

    come, over = of(flow.begin_rank), of(flow.end_rank)
    relation = Relation.FINISH_START if by_start else Relation.FINISH_FINISH
    kinds = {"kind": EdgeKind.COLLECTIVE, "evidence": Evidence.INFERRED}
    inner = flow.edges
    return Edges.concatenate(
        [
            Edges.of(inner.source + first, inner.target + first, inner.lag_ns, inner.relation, **kinds),
            Edges.of(begin[come[come >= 0]], first + flow.begin_op[come >= 0], **kinds),
            Edges.of(
                first + flow.end_op[over >= 0], end[over[over >= 0]], flow.end_lag_ns[over >= 0], relation, **kinds
            ),
        ]
    )


def _positions(count: int, meetings: Sequence[Meeting], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """(t,) wanted order: beginnings and ends in place of the old op, messages after the last op of their collective.

    Collectives come in the order of `meetings`, so that a link never serves them in an order that edges forbid.
    """
    total = int(first[-1])
    width = total + 3
    expanded = np.concatenate([np.array(meeting.ops, np.int64) for meeting in meetings])
    last = np.maximum.accumulate([max(meeting.ops) for meeting in meetings])
    parts = np.repeat(last, np.diff(first))
    return np.concatenate(
        [
            np.arange(count) * width,
            expanded * width + 1,
            expanded * width + 2,
            parts * width + 3 + np.arange(len(parts)),
        ]
    )
