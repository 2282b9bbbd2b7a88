"""Rebuild: a drafted change of a graph becomes a graph again, with new numbers, legal order and provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.bridging import bridge, merge_parallel
from makespan.errors import GraphError
from makespan.graph import NONE, OP_COLUMNS, EdgeKind, Edges, Graph, OpKind, Stream, StreamKind, assemble
from makespan.protocols import Rewrite
from makespan.provenance import Provenance
from makespan.topology import topological_order

DRAFTED: Final = tuple(name for name in OP_COLUMNS if name != "rank")
"""Columns of ops in a draft; the rank follows from the stream."""
MARKS_NOTE: Final = "zero-time mark left in the place of a removed op"


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A graph of n ops with k added ones, t = n + k, before anything is numbered anew.

    `graph` has all changed columns and names, but not the added ops; `columns` (t,) under the names of
    DRAFTED and `attrs` (t,) have those too. `edges` are among all t ops. `removed` (n,) bool;
    `replacement` (n,) int32 is the added op that takes an op's place, else -1; `position` (t,) int64 is the
    wanted order, all different; added op `stands_new[i]` stands for old op `stands_old[i]` (s,).
    """

    graph: Graph
    columns: Mapping[str, NDArray[Any]]
    attrs: Mapping[str, NDArray[Any]]
    streams: tuple[Stream, ...]
    edges: Edges
    removed: NDArray[np.bool_]
    replacement: NDArray[np.int32]
    position: NDArray[np.int64]
    stands_new: NDArray[np.int64]
    stands_old: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.position)


def rebuild(draft: Draft) -> Rewrite:
    """The graph that `draft` describes, verified, with its provenance; raises GraphError on a cycle."""
    old, total = draft.graph, len(draft)
    heir = np.arange(total, dtype=np.int32)
    replaced = np.flatnonzero(draft.replacement != NONE)
    heir[replaced] = draft.replacement[replaced]
    edges = _redirected(draft.edges, heir)
    present = np.ones(total, np.bool_)
    present[replaced] = False
    order = _stream_order(draft, present)
    position = _numbered(draft, edges, order)

    removed, lasting = np.zeros((2, total), np.bool_)
    removed[: len(old)] = draft.removed
    lasting[[heir[op] for step in old.steps for op in (step.begin_op, step.end_op)]] = True
    bridged = bridge(edges, order, removed, lasting, position)
    columns = dict(draft.columns)
    for name, value in (("kind", OpKind.MARK), ("duration_ns", 0), ("size_bytes", 0)):
        columns[name] = np.where(bridged.marks, np.asarray(value, columns[name].dtype), columns[name])
    notes = dict(old.notes)
    if np.any(bridged.marks):
        notes[MARKS_NOTE] = notes.get(MARKS_NOTE, 0) + int(np.count_nonzero(bridged.marks))

    left = np.flatnonzero(present & (~removed | bridged.marks))
    number = np.full(total, NONE, np.int32)
    number[left] = np.arange(len(left), dtype=np.int32)
    sync = None
    if old.sync is not None:
        sync = np.concatenate([old.sync, np.zeros(total - len(old), np.uint8)])[left]
    graph, final = assemble(
        **{name: column[left] for name, column in columns.items()},
        streams=draft.streams,
        names=old.names,
        edges=replace(bridged.edges, source=number[bridged.edges.source], target=number[bridged.edges.target]),
        order_ns=position[left],
        step_names=old.step_names,
        steps=[
            replace(step, begin_op=int(number[heir[step.begin_op]]), end_op=int(number[heir[step.end_op]]))
            for step in old.steps
        ],
        sync=sync,
        attrs={name: column[left] for name, column in draft.attrs.items()},
        origin_ns=old.origin_ns,
        notes=notes,
    )
    graph.verify()
    return Rewrite(graph, _provenance(draft, left, final))


def _redirected(edges: Edges, heir: NDArray[np.int32]) -> Edges:
    """Edges of replaced ops lead to or from what replaces them; those within a replaced set are gone."""
    source, target = heir[edges.source], heir[edges.target]
    touched = (source != edges.source) | (target != edges.target)
    if not np.any(touched):
        return edges
    moved = replace(edges, source=source, target=target)
    return Edges.concatenate([moved.take(~touched), merge_parallel(moved.take(touched & (source != target)))])


def _stream_order(draft: Draft, present: NDArray[np.bool_]) -> Edges:
    """From each present op to the next on its stream, in the wanted order; shared links have none."""
    ordered = np.fromiter((s.kind != StreamKind.SHARED for s in draft.streams), np.bool_, len(draft.streams))
    stream = draft.columns["stream"]
    ops = np.flatnonzero(present & ordered[stream])
    ops = ops[np.lexsort((draft.position[ops], stream[ops]))]
    same = stream[ops[1:]] == stream[ops[:-1]]
    return Edges.of(ops[:-1][same], ops[1:][same], kind=EdgeKind.STREAM)


def _numbered(draft: Draft, edges: Edges, order: Edges) -> NDArray[np.int64]:
    """(t,) a topological numbering that also keeps every stream in order, close to the wanted positions."""
    source = np.concatenate([edges.source, order.source])
    target = np.concatenate([edges.target, order.target])
    sequence = topological_order(len(draft), source, target, draft.position)
    if len(sequence) < len(draft):
        _raise_cycle(draft, edges, order)
    position = np.empty(len(draft), np.int64)
    position[sequence] = np.arange(len(draft))
    return position


def _raise_cycle(draft: Draft, edges: Edges, order: Edges) -> None:
    """Let `assemble` print the cycle, first without and then with the order of the streams."""
    columns: dict[str, Any] = dict(draft.columns)
    contradiction = "the recorded order of a stream contradicts an edge, so move one of these ops: "
    for told, parts in (("", [edges]), (contradiction, [edges, order])):
        try:
            assemble(
                **columns, streams=draft.streams, names=draft.graph.names, edges=Edges.concatenate(parts),
                order_ns=draft.position,
            )  # fmt: skip
        except GraphError as error:
            raise GraphError(f"{told}{error}") from None


def _provenance(draft: Draft, left: NDArray[np.int64], final: NDArray[np.int32]) -> Provenance:
    """`left` (l,) are the draft numbers of the ops that remain, `final` (l,) their new numbers."""
    new_of = np.full(len(draft), NONE, np.int64)
    new_of[left] = final
    kept = left[left < len(draft.graph)]
    news = np.concatenate([new_of[kept], new_of[draft.stands_new]])
    return Provenance.from_pairs(news, np.concatenate([kept, draft.stands_old]), len(left), len(draft.graph))


def blank_rows(column: NDArray[Any], count: int) -> NDArray[Any]:
    """(count, ...) values like those of attribute `column` for ops that have none: -1, NaN where floating, else 0."""
    blank = {"f": np.nan, "i": NONE}.get(column.dtype.kind, 0)
    return np.full((count, *column.shape[1:]), blank, column.dtype)
