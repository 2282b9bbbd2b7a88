"""An execution trace joined with the timed trace of the same rank: its parents, shapes and data dependencies."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.errors import TraceError
from makespan.trace import NONE, Diagnostics, EventTable, NameTable, RankTrace, SparseColumn

DATA: Final = "data"
"""Kind of the arrows from the op that wrote a tensor's storage to one that reads it."""

ONLY_EXECUTION: Final = "op of the execution trace that the timed trace does not have"
ONLY_TIMED: Final = "op of the timed trace that the execution trace does not have"
OTHER_NAME: Final = "record-function id that stands for another op in the execution trace"
REPEATED: Final = "record-function id used twice, not linked"


def link(execution: RankTrace, timed: RankTrace) -> RankTrace:
    """`timed` with what `execution` knows about the same ops, found by their record-function ids.

    Taken over are the parent of each op (its nearest ancestor that the timed trace has), every attribute that the
    timed trace leaves open (shapes, types, collectives ...), and data dependencies, as arrows of kind DATA between
    linked ops. Ids that are ambiguous or stand for ops of different names link nothing; all that stays unlinked is
    counted. Raises TraceError where one of the traces has no record-function ids, or no op is in both.
    """
    for part in (execution, timed):
        if "record_id" not in part.events.attrs:
            raise TraceError(
                f"{part.source}: no event has a record-function id, so it can't be linked; record it with a profiler "
                "and an execution trace observer of the same run"
            )
    diagnostics = Diagnostics()
    diagnostics.merge(timed.diagnostics)
    diagnostics.merge(execution.diagnostics)
    timed_row = _matches(execution, timed, diagnostics)
    linked = np.flatnonzero(timed_row >= 0)
    if not len(linked):
        raise TraceError(
            f"{execution.source}: none of its ops is in {timed.source}; expected traces of the same run and rank"
        )
    events = timed.events
    attrs = dict(events.attrs)
    for key, column in execution.events.attrs.items():
        if key not in ("parent", "record_id"):
            attrs[key] = _filled(attrs.get(key), column, timed_row)
    attrs["parent"] = _parents(execution.events, timed_row)
    attrs = {key: column for key, column in attrs.items() if len(column.rows)}
    writer, reader = _data_dependencies(execution)
    source, target = timed_row[writer], timed_row[reader]
    both = (source >= 0) & (target >= 0)
    names = NameTable(events.names)
    kind = np.full(int(both.sum()), names.code(DATA), np.int32)
    return replace(
        timed,
        events=replace(
            events,
            names=names.names(),
            attrs=attrs,
            flow_source=np.concatenate([events.flow_source, source[both]]),
            flow_target=np.concatenate([events.flow_target, target[both]]),
            flow_kind=np.concatenate([events.flow_kind, kind]),
        ),
        diagnostics=diagnostics,
    )


def _matches(execution: RankTrace, timed: RankTrace, diagnostics: Diagnostics) -> NDArray[np.int32]:
    """The timed row of each event of the execution trace, (n,) int32, -1 where there is none."""
    here, there = _rows_by_id(execution, diagnostics), _rows_by_id(timed, diagnostics)
    timed_row = np.full(len(execution.events), NONE, np.int32)
    for number, row in here.items():
        other = there.get(number, NONE)
        if other < 0:
            diagnostics.add(ONLY_EXECUTION, f"{execution.source}:record-function id {number}")
        elif execution.events.name_of(row) != timed.events.name_of(other):
            diagnostics.add(OTHER_NAME, f"{execution.source}:record-function id {number}")
        else:
            timed_row[row] = other
    for number in there:
        if number not in here:
            diagnostics.add(ONLY_TIMED, f"{timed.source}:record-function id {number}")
    return timed_row


def _rows_by_id(part: RankTrace, diagnostics: Diagnostics) -> dict[int, int]:
    """The row of each record-function id that only one event has."""
    column = part.events.attrs["record_id"]
    ids, first, count = np.unique(column.values, return_index=True, return_counts=True)
    for number in ids[count > 1].tolist():
        diagnostics.add(REPEATED, f"{part.source}:record-function id {number}")
    alone = count == 1
    return dict(zip(ids[alone].tolist(), column.rows[first[alone]].tolist(), strict=True))


def _parents(events: EventTable, timed_row: NDArray[np.int32]) -> SparseColumn:
    """The timed row of each linked event's nearest linked ancestor."""
    parent = events.attrs["parent"].dense(len(events)) if "parent" in events.attrs else np.full(len(events), NONE)
    # Events are in the order in which they began, so a parent's own ancestor is known before it is asked for.
    nearest = np.full(len(events), NONE, np.int64)
    for row in range(len(events)):
        above = int(parent[row])
        if above >= 0:
            nearest[row] = timed_row[above] if timed_row[above] >= 0 else nearest[above]
    known = np.flatnonzero((timed_row >= 0) & (nearest >= 0))
    rows = timed_row[known]
    order = np.argsort(rows)
    return SparseColumn(rows[order], nearest[known][order])


def _filled(open_column: SparseColumn | None, known: SparseColumn, timed_row: NDArray[np.int32]) -> SparseColumn:
    """`open_column` of the timed trace, and where it has no value that of the linked event."""
    rows, values = timed_row[known.rows], known.values
    taken = rows >= 0
    if open_column is None:
        rows, values = rows[taken], values[taken]
        order = np.argsort(rows)
        return SparseColumn(rows[order], values[order], known.table)
    taken &= ~np.isin(rows, open_column.rows)
    table = open_column.table
    if table is not None and known.table is not None:
        names = NameTable(table)
        values = np.array([names.code(text) for text in known.table], np.int32)[values]
        table = names.names()
    rows = np.concatenate([open_column.rows, rows[taken]])
    order = np.argsort(rows)
    return SparseColumn(rows[order], np.concatenate([open_column.values, values[taken]])[order], table)


def _data_dependencies(execution: RankTrace) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The execution trace's dependencies without those of a child on its parent."""
    source, target = execution.dependency_source, execution.dependency_target
    if "parent" not in execution.events.attrs:
        return source, target
    parent = execution.events.attrs["parent"].dense(len(execution.events))
    data = parent[target] != source
    return source[data], target[data]
