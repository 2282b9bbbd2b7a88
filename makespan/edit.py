"""GraphEdit: collect changes to a graph, then make the changed graph and its provenance in one go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from makespan.draft_order import DraftOrder
from makespan.errors import GraphError
from makespan.graph import NONE, EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Stream
from makespan.protocols import Rewrite
from makespan.provenance import Provenance
from makespan.rebuild import DRAFTED, Draft, blank_rows, rebuild
from makespan.units import TIME_LIMIT_NS

_SETTABLE: Final = ("kind", "size_bytes", "priority", "step", "group", "name")


class GraphEdit:
    """Changes to `graph` (n ops, m edges), applied together by `finish()`; `graph` itself stays as it is.

    Ops are named by their numbers in `graph`, or by the number that `add_op` or `replace_ops` returned. Where
    several ops or edges can be named, numbers or a bool mask over all of `graph` will do.

    >>> edit = GraphEdit(graph)  # doctest: +SKIP
    >>> edit.scale_duration(graph.kind == OpKind.COMPUTE, 0.5)  # doctest: +SKIP
    >>> edit.remove_ops([17, 18])  # doctest: +SKIP
    >>> faster, provenance = edit.finish().graph, edit.finish().provenance  # doctest: +SKIP
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._changed: dict[str, NDArray[Any]] = {}
        self._changed_attrs: dict[str, NDArray[Any]] = {}
        self._streams = list(graph.streams)
        self._names = list(graph.names)
        self._name_codes: dict[str, int] = {}
        self._rows: list[dict[str, int]] = []
        self._row_attrs: list[Mapping[str, Any]] = []
        self._stands_for: list[NDArray[np.int64]] = []
        self._edges: list[Edges] = []
        self._edge_gone = np.zeros(graph.edge_count, np.bool_)
        self._removed = np.zeros(len(graph), np.bool_)
        self._replacement = np.full(len(graph), NONE, np.int32)
        self._order = DraftOrder(len(graph))
        self._structural = False

    def set_duration(self, ops: ArrayLike, duration_ns: ArrayLike) -> None:
        """Give `ops` new durations, one for all or one for each."""
        self._column("duration_ns")[self._ops(ops)] = np.asarray(duration_ns, np.int64)

    def scale_duration(self, ops: ArrayLike, factor: ArrayLike) -> None:
        """Multiply the durations of `ops` by `factor`, rounded to a whole nanosecond (half to even)."""
        chosen = self._ops(ops)
        column = self._column("duration_ns")
        column[chosen] = _scaled(column[chosen], factor)

    def set_lag(self, edges: ArrayLike, lag_ns: ArrayLike) -> None:
        """Give `edges` (numbers in the order of `graph.pred`, or a mask) new lags."""
        self._column("lag_ns")[self._edge_numbers(edges)] = np.asarray(lag_ns, np.int64)

    def scale_lag(self, edges: ArrayLike, factor: ArrayLike) -> None:
        """Multiply the lags of `edges` by `factor`, rounded to a whole nanosecond (half to even)."""
        chosen = self._edge_numbers(edges)
        column = self._column("lag_ns")
        column[chosen] = _scaled(column[chosen], factor)

    def set_column(self, column: str, ops: ArrayLike, values: ArrayLike) -> None:
        """Set another column of `ops`: kind, size_bytes, priority, step, group, name (text) or an attribute.

        `sync` too, where the graph has it.
        Streams change by `move`, durations by
        `set_duration`.
        """
        chosen = self._ops(ops)
        if column == "name":
            texts = np.broadcast_to(np.asarray(values, object), chosen.shape)
            self._column("name")[chosen] = [self._name_code(str(text)) for text in texts]
        elif column in _SETTABLE or (column == "sync" and self._graph.sync is not None):
            self._column(column)[chosen] = values
        elif column in self._graph.attrs:
            if column not in self._changed_attrs:
                self._changed_attrs[column] = self._graph.attrs[column].copy()
            self._changed_attrs[column][chosen] = values
        else:
            known = ", ".join((*_SETTABLE, *self._graph.attrs))
            raise GraphError(f"column {column!r} can't be set: expected one of {known}")

    def add_stream(self, stream: Stream) -> int:
        """Add a stream and return its number, for `add_op` and `move`."""
        self._structural = True
        self._streams.append(stream)
        return len(self._streams) - 1

    def add_op(
        self,
        *,
        kind: OpKind,
        stream: int,
        duration_ns: int,
        name: str,
        size_bytes: int = 0,
        priority: int = 0,
        step: int = NONE,
        group: int = NONE,
        attrs: Mapping[str, Any] | None = None,
        after: int | None = None,
        before: int | None = None,
        stands_for: ArrayLike = (),
    ) -> int:
        """Add an op and return its number for further calls.

        It comes right `after` or `before` another op in the numbering, and so in the order of its stream; else
        at the end. `stands_for`: the ops of `graph` it is to be told of as (provenance). Attributes that are not
        given are -1, or NaN where they are floating.
        """
        self._expect_stream(stream)
        unknown = set(attrs or {}) - set(self._graph.attrs)
        if unknown:
            raise GraphError(f"attribute {min(unknown)!r} is none of the graph's: add the column by with_attrs first")
        self._structural = True
        number = len(self._graph) + len(self._rows)
        self._stands_for.append(self._ops(stands_for))
        self._row_attrs.append(dict(attrs or {}))
        self._rows.append(
            {
                "kind": kind, "stream": stream, "duration_ns": duration_ns, "size_bytes": size_bytes,
                "name": self._name_code(name), "priority": priority, "step": step, "group": group,
            }
        )  # fmt: skip
        self._order.place(number, after, before)
        return number

    def add_edge(
        self,
        source: ArrayLike,
        target: ArrayLike,
        lag_ns: ArrayLike = 0,
        relation: ArrayLike = Relation.FINISH_START,
        kind: ArrayLike = EdgeKind.DATA,
        evidence: ArrayLike = Evidence.MEASURED,
    ) -> None:
        """Add an edge, or many from arrays, among old and added ops."""
        edges = Edges.of(source, target, lag_ns, relation, kind, evidence)
        total = len(self._graph) + len(self._rows)
        for label, end in (("source", edges.source), ("target", edges.target)):
            if np.any((end < 0) | (end >= total)):
                raise GraphError(f"an added edge has {label} {end.min()} or {end.max()}, expected 0 to {total - 1}")
        self._structural = True
        self._edges.append(edges)

    def remove_edges(self, edges: ArrayLike) -> None:
        """Drop `edges` (numbers in the order of `graph.pred`, or a mask); nothing takes their place."""
        self._structural = True
        self._edge_gone[self._edge_numbers(edges)] = True

    def remove_ops(self, ops: ArrayLike) -> None:
        """Take `ops` out: they cost no time any more, and what waited for them waits for what they waited for.

        Exactly how is told in `makespan.bridging`. A few stay in their place on their stream as zero-time
        MARKs, counted in the notes of the new graph: ops that begin or end a step, that nothing precedes though
        a lag counts from them, or whose removal would make many more edges than they had.
        """
        chosen = self._ops(ops)
        self._expect_present(chosen)
        self._structural = True
        self._removed[chosen] = True

    def move(
        self, ops: ArrayLike, stream: int | None = None, *, after: int | None = None, before: int | None = None
    ) -> None:
        """Put `ops` on another stream, or elsewhere in the recorded order, or both.

        The order of a stream is that of op numbers: without `after` or `before` the ops keep their place in
        it, with one of them they come right beside that op, in the order given.
        """
        chosen = self._ops(ops)
        if stream is not None:
            self._expect_stream(stream)
            self._column("stream")[chosen] = stream
        self._structural = True
        if after is not None or before is not None:
            for op in chosen:
                self._order.place(int(op), after, before)

    def replace_ops(
        self,
        ops: ArrayLike,
        *,
        kind: OpKind,
        duration_ns: int,
        name: str,
        stream: int | None = None,
        size_bytes: int | None = None,
        priority: int | None = None,
        attrs: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> int:
        """Fuse `ops` into one new op and return its number.

        Edges into or out of the set lead to or from the new op, edges within it vanish. Unless told otherwise
        it stands where the last of `ops` stood, on that stream, with the sum of their bytes, the most urgent
        priority, and the step and group that they share (else none).
        """
        chosen = np.unique(self._ops(ops))
        if not len(chosen):
            raise GraphError("no ops to replace: expected at least one")
        self._expect_present(chosen)
        columns = {key: self._current(key)[chosen] for key in ("stream", "size_bytes", "priority", "step", "group")}
        fused = self.add_op(
            kind=kind,
            stream=int(columns["stream"][-1]) if stream is None else stream,
            duration_ns=duration_ns,
            name=name,
            size_bytes=int(columns["size_bytes"].sum()) if size_bytes is None else size_bytes,
            priority=int(columns["priority"].min()) if priority is None else priority,
            step=_common(columns["step"]),
            group=_common(columns["group"]),
            attrs=attrs,
            after=int(chosen[-1]) if after is None else after,
            stands_for=chosen,
        )
        self._replacement[chosen] = fused
        return fused

    def finish(self) -> Rewrite:
        """The changed graph, numbered anew and verified, with its provenance; it has no decisions.

        Raises GraphError on a cycle, also on one through the recorded order of a stream, and on illegal values.
        """
        graph = self._graph
        changed = graph.replace(**self._changed, names=tuple(self._names), attrs={**graph.attrs, **self._changed_attrs})
        if not self._structural:
            changed.verify()
            return Rewrite(changed, Provenance.identity(len(graph)))
        total = len(graph) + len(self._rows)
        return rebuild(
            Draft(
                graph=changed,
                columns={key: self._with_rows(key) for key in DRAFTED},
                attrs={key: self._attr_with_rows(key) for key in graph.attrs},
                streams=tuple(self._streams),
                edges=Edges.concatenate([changed.edges().take(~self._edge_gone), *self._edges]),
                removed=self._removed,
                replacement=self._replacement,
                position=self._order.positions(total),
                stands_new=np.repeat(np.arange(len(graph), total), [len(ops) for ops in self._stands_for]),
                stands_old=np.concatenate([np.empty(0, np.int64), *self._stands_for]),
            )
        )

    def _column(self, name: str) -> NDArray[Any]:
        """The column of `graph` as it may be written to."""
        if name not in self._changed:
            self._changed[name] = getattr(self._graph, name).copy()
        return self._changed[name]

    def _current(self, name: str) -> NDArray[Any]:
        return self._changed[name] if name in self._changed else getattr(self._graph, name)

    def _with_rows(self, name: str) -> NDArray[Any]:
        """(n + added,) column: what the graph has, then the added ops."""
        column = self._current(name)
        return np.concatenate([column, np.array([row[name] for row in self._rows], column.dtype)])

    def _attr_with_rows(self, name: str) -> NDArray[Any]:
        column = self._changed_attrs.get(name, self._graph.attrs[name])
        rows = blank_rows(column, len(self._rows))
        for row, given in enumerate(self._row_attrs):
            if name in given:
                rows[row] = given[name]
        return np.concatenate([column, rows])

    def _name_code(self, name: str) -> int:
        if not self._name_codes:
            self._name_codes = {text: code for code, text in enumerate(self._names)}
        if name not in self._name_codes:
            self._name_codes[name] = len(self._names)
            self._names.append(name)
        return self._name_codes[name]

    def _ops(self, ops: ArrayLike) -> NDArray[np.int64]:
        return _numbers(ops, len(self._graph), "op")

    def _edge_numbers(self, edges: ArrayLike) -> NDArray[np.int64]:
        return _numbers(edges, self._graph.edge_count, "edge")

    def _expect_stream(self, stream: int) -> None:
        if not 0 <= stream < len(self._streams):
            raise GraphError(f"stream {stream} doesn't exist: expected 0 to {len(self._streams) - 1}, or add it first")

    def _expect_present(self, ops: NDArray[np.int64]) -> None:
        gone = ops[self._removed[ops] | (self._replacement[ops] != NONE)]
        if len(gone):
            raise GraphError(f"op {gone[0]} is removed or replaced already: name it once in an edit")


def _numbers(given: ArrayLike, count: int, label: str) -> NDArray[np.int64]:
    """`given` numbers or (count,) bool mask as numbers in the same order, checked."""
    array = np.atleast_1d(np.asarray(given))
    if array.dtype == np.bool_ and len(array) == count:
        return np.flatnonzero(array)
    if array.size and array.dtype.kind not in "iu":
        raise GraphError(f"{label}s are named by numbers or by a mask of length {count}, not by {array.dtype}")
    numbers = array.astype(np.int64).reshape(-1)
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if len(outside):
        raise GraphError(f"{label} {outside[0]} is outside the {count} of the graph")
    return numbers


def _scaled(values: NDArray[np.int64], factor: ArrayLike) -> NDArray[np.int64]:
    factors = np.asarray(factor, np.float64)
    if not np.all(np.isfinite(factors) & (factors >= 0)):
        raise GraphError("a time can only be scaled by a finite factor that is not negative")
    with np.errstate(over="ignore"):  # told just below
        scaled = np.rint(values * factors)
    if np.any(scaled >= TIME_LIMIT_NS):
        raise GraphError(f"scaled by up to {float(factors.max()):.3g}, a time exceeds 146 years; take smaller factors")
    return scaled.astype(np.int64)


def _common(values: NDArray[np.int32]) -> int:
    return int(values[0]) if np.all(values == values[0]) else NONE
