"""Graphs to networkx and back, for people who want to look at them or make one by hand; never in a hot path."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from makespan.errors import GraphError
from makespan.graph import NONE, EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Stream, StreamKind, assemble
from makespan.resolve import did_you_mean
from makespan.trace import NameTable

if TYPE_CHECKING:
    import networkx as nx

_WHOLE: Final = "makespan"
"""Key in the `graph` dictionary of a networkx graph under which stands what belongs to the graph as a whole."""
_OP_KEYS: Final = (
    "name", "kind", "rank", "stream", "duration_ns", "size_bytes", "priority", "step", "group", "sync",
)  # fmt: skip
_EDGE_KEYS: Final = ("lag_ns", "relation", "kind", "evidence", "edge")


def to_networkx(graph: Graph) -> nx.MultiDiGraph[int]:
    """`graph` with all its facts as attributes; `from_networkx` gives the same graph back.

    Vertices are op numbers with name, kind (as text), rank, stream (number), duration_ns, size_bytes, priority,
    step, group, sync where there is one, and the graph's own attributes. Edges, several between two ops if need
    be, have lag_ns, relation, kind, evidence (as text) and their number `edge`. Streams, steps and the like are
    in the dictionary `result.graph["makespan"]`.
    """
    import networkx as nx

    found: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    found.graph[_WHOLE] = {
        "names": graph.names,
        "streams": graph.streams,
        "step_names": graph.step_names,
        "steps": graph.steps,
        "origin_ns": graph.origin_ns,
        "notes": dict(graph.notes),
        "sync": graph.sync is not None,
        "attr_dtypes": {name: column.dtype for name, column in graph.attrs.items()},
    }
    columns = {key: getattr(graph, key).tolist() for key in _OP_KEYS if getattr(graph, key) is not None}
    columns["name"] = [graph.names[code] for code in columns["name"]]
    columns["kind"] = [OpKind(kind).name for kind in columns["kind"]]
    columns.update({name: column.tolist() for name, column in graph.attrs.items()})
    for op, values in enumerate(zip(*columns.values(), strict=True)):
        found.add_node(op, **dict(zip(columns, values, strict=True)))
    edges = graph.edges()
    for number in range(len(edges)):
        found.add_edge(
            int(edges.source[number]),
            int(edges.target[number]),
            lag_ns=int(edges.lag_ns[number]),
            relation=Relation(edges.relation[number]).name,
            kind=EdgeKind(edges.kind[number]).name,
            evidence=Evidence(edges.evidence[number]).name,
            edge=number,
        )
    return found


def from_networkx(given: nx.DiGraph[Any]) -> Graph:
    """A graph from any directed networkx graph whose vertices have `duration_ns`; the rest may be left out.

    Defaults: the vertex itself as name, COMPUTE, rank 0, and a stream of its own for each op, so that edges
    alone order the ops; `stream` is a text or number that the ops of one queue share. Edges are finish to start,
    DATA, without lag. Further vertex attributes must be numbers, present on every vertex, and become attributes
    of the graph. Vertices are numbered in their own order as far as the edges allow.

    Raises GraphError for a value that doesn't fit, naming its vertex, and for a cycle, printing it.
    """
    if not given.is_directed():
        raise GraphError("an undirected networkx graph has no predecessors: expected a DiGraph or MultiDiGraph")
    whole: dict[str, Any] = given.graph.get(_WHOLE, {})
    ops = _Facts([f"op {vertex!r}" for vertex in given], [dict(data) for _, data in given.nodes(data=True)])
    names = NameTable(whole.get("names", ()))
    name = [names.code(str(data.get("name", vertex))) for vertex, data in given.nodes(data=True)]
    streams, stream = _streams(ops, whole.get("streams", ()))
    dtypes: dict[str, DTypeLike] = dict(whole.get("attr_dtypes", {}))
    for key in sorted(ops.names() - set(_OP_KEYS) - dtypes.keys()):
        is_whole = all(isinstance(data.get(key), int) for data in ops.data)
        dtypes[key] = np.int64 if is_whole else np.float64
    graph, _ = assemble(
        kind=ops.members("kind", OpKind, OpKind.COMPUTE),
        stream=stream,
        duration_ns=ops.numbers("duration_ns", np.int64),
        streams=streams,
        name=name,
        names=names.names(),
        edges=_edges(given),
        size_bytes=ops.numbers("size_bytes", np.int64, 0),
        priority=ops.numbers("priority", np.int32, 0),
        step=ops.numbers("step", np.int32, NONE),
        group=ops.numbers("group", np.int32, NONE),
        step_names=whole.get("step_names", ()),
        steps=whole.get("steps", ()),
        sync=ops.numbers("sync", np.uint8, 0) if whole.get("sync", "sync" in ops.names()) else None,
        attrs={key: ops.numbers(key, dtype) for key, dtype in dtypes.items()},
        origin_ns=whole.get("origin_ns", 0),
        notes=whole.get("notes", {}),
    )
    graph.verify()
    return graph


class _Facts:
    """Attributes of vertices or edges, `data`, with the `labels` that messages call them by."""

    def __init__(self, labels: Sequence[str], data: Sequence[dict[str, Any]]) -> None:
        self.labels = labels
        self.data = data

    def names(self) -> set[str]:
        """All attributes that occur."""
        return {key for data in self.data for key in data}

    def numbers(self, key: str, dtype: DTypeLike, default: int | None = None) -> NDArray[Any]:
        """The values of `key` as they fit `dtype` exactly; raises where one doesn't, or is missing."""
        column = np.empty(len(self.data), dtype)
        for place, (label, data) in enumerate(zip(self.labels, self.data, strict=True)):
            value = data.get(key, default)
            try:
                column[place] = value
                fits = isinstance(value, int | float | np.number) and (column[place] == value or value != value)
            except (TypeError, ValueError, OverflowError):
                fits = False
            if not fits:
                told = f"has {key} {value!r}" if key in data else f"has no {key}"
                raise GraphError(f"{label} {told}, expected a number that fits {column.dtype}")
        return column

    def members(self, key: str, members: type[IntEnum], default: IntEnum) -> NDArray[np.uint8]:
        """The values of `key` as members of an enumeration, stated by name or number."""
        known = {member.name: member for member in members}
        column = np.empty(len(self.data), np.uint8)
        for place, (label, data) in enumerate(zip(self.labels, self.data, strict=True)):
            value = data.get(key, default)
            member = known.get(value) if isinstance(value, str) else value if value in known.values() else None
            if member is None:
                raise GraphError(f"{label} has {key} {value!r}{did_you_mean(str(value), known)}")
            column[place] = member
        return column


def _streams(ops: _Facts, stated: Sequence[Stream]) -> tuple[list[Stream], NDArray[np.int32]]:
    """All streams, first those `stated` for the whole graph, and the stream of each op."""
    streams = list(stated)
    number: dict[tuple[int, Any], int] = {}
    column = np.empty(len(ops.data), np.int32)
    ranks = ops.numbers("rank", np.int32, 0)
    for place, (label, data) in enumerate(zip(ops.labels, ops.data, strict=True)):
        rank, queue = int(ranks[place]), data.get("stream")
        if stated and isinstance(queue, int):
            if not 0 <= queue < len(stated):
                raise GraphError(f"{label} has stream {queue}, expected 0 to {len(stated) - 1}")
            column[place] = queue
            continue
        key = (rank, label if queue is None else queue)
        if key not in number:
            number[key] = len(streams)
            streams.append(Stream(rank, str(key[1]), StreamKind.DEVICE))
        column[place] = number[key]
    return streams, column


def _edges(given: nx.DiGraph[Any]) -> Edges:
    number = {vertex: op for op, vertex in enumerate(given)}
    stated = list(given.edges(data=True))
    if all("edge" in data for _, _, data in stated):
        stated.sort(key=lambda edge: edge[2]["edge"])
    facts = _Facts([f"edge {source!r} -> {target!r}" for source, target, _ in stated], [dict(e[2]) for e in stated])
    for key in sorted(facts.names() - set(_EDGE_KEYS)):
        label = next(label for label, data in zip(facts.labels, facts.data, strict=True) if key in data)
        raise GraphError(f"{label} has an unknown attribute {key!r}{did_you_mean(key, _EDGE_KEYS)}")
    return Edges.of(
        np.array([number[source] for source, _, _ in stated], np.int32),
        np.array([number[target] for _, target, _ in stated], np.int32),
        facts.numbers("lag_ns", np.int64, 0),
        facts.members("relation", Relation, Relation.FINISH_START),
        facts.members("kind", EdgeKind, EdgeKind.DATA),
        facts.members("evidence", Evidence, Evidence.MEASURED),
    )
