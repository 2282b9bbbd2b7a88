"""The attributes of a PyTorch profile's events: which argument becomes which column of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.reading.kineto_kinds import canonical_collective, element_bytes
from makespan.trace import COMMUNICATION_KINDS, NONE, EventKind, NameTable, SparseColumn

COLLECTIVE_MEMBERS: Final = (
    "collective", "dtype", "group_name", "group_number", "group_ranks", "group_size", "group_sequence",
    "input_elements", "output_elements", "root", "source_rank", "target_rank",
)  # fmt: skip
"""What a profile says about a collective, on the host op that enqueued it, on its kernel, or on both."""
_ROOTED: Final = ("broadcast", "scatter", "reduce", "gather")
_NO_STREAM: Final = 2**32 - 1


def with_inherited_metadata(
    columns: ChromeColumns, device_communication: NDArray[np.bool_], external_id: NDArray[np.int64]
) -> ChromeColumns:
    """Kernels of collectives that say nothing about themselves take it from the host op with their external id."""
    told = columns.has("collective")
    hosts = np.flatnonzero(told & ~device_communication & (external_id != NONE))
    silent = np.flatnonzero(device_communication & ~told & (external_id != NONE))
    host_of = dict(zip(external_id[hosts].tolist(), hosts.tolist(), strict=True))
    heirs = [
        (row, host_of[key])
        for row, key in zip(silent.tolist(), external_id[silent].tolist(), strict=True)
        if key in host_of
    ]
    if not heirs:
        return columns
    to, source = np.array(heirs, np.int32).T
    args = dict(columns.args)
    for member in COLLECTIVE_MEMBERS:
        if member in args:
            column = args[member]
            place = np.minimum(np.searchsorted(column.rows, source), len(column.rows) - 1)
            known = column.rows[place] == source
            args[member] = _united(column, SparseColumn(to[known], column.values[place[known]], column.table))
    return replace(columns, args=args)


def with_collectives(columns: ChromeColumns, rows: NDArray[np.int64], by_name: Sequence[str]) -> ChromeColumns:
    """All collectives in one spelling; `rows` that don't say theirs get what `by_name` (names,) concludes."""
    table = NameTable()
    concluded = np.array([table.code(name) for name in by_name], np.int32)[columns.name[rows]]
    inferred = SparseColumn(rows.astype(np.int32), concluded, table.names())
    told = columns.args.get("collective")
    if told is not None and told.table is not None:
        spelled = NameTable()
        codes = np.array([spelled.code(canonical_collective(text)) for text in told.table], np.int32)
        inferred = _united(SparseColumn(told.rows, codes[told.values], spelled.names()), inferred)
    return replace(columns, args={**columns.args, "collective": inferred})


def kineto_attributes(columns: ChromeColumns, kind: NDArray[np.uint8]) -> Mapping[str, SparseColumn]:
    """Columns under the names of `makespan.trace.ATTRS`; `kind` (n,) is what each row is."""
    args = columns.args
    instant, sync = kind == EventKind.INSTANT, kind == EventKind.SYNC_RECORD
    copy = np.isin(kind, (EventKind.MEMCPY, EventKind.MEMSET))
    found = {
        "sequence": _where(args.get("sequence"), lambda column: column.values >= 0),
        "forward_thread": args.get("forward_thread"),
        "record_id": _where(args.get("record_id"), lambda column: column.values > 0),
        "bytes": _either(
            _where(args.get("bytes"), lambda column: copy[column.rows]),
            args.get("memory_bytes"),
            _collective_bytes(columns, kind),
        ),
        "total_allocated_bytes": args.get("total_allocated_bytes"),
        "device": _where(args.get("memory_device"), lambda column: instant[column.rows]),
        "shapes": _either(args.get("shapes"), args.get("shapes_of_2021")),
        "types": args.get("types"),
        "collective": args.get("collective"),
        "dtype": args.get("dtype"),
        "group_name": _either(args.get("group_name"), args.get("group_number")),
        "group_ranks": args.get("group_ranks"),
        "group_size": args.get("group_size"),
        "group_sequence": args.get("group_sequence"),
        "input_elements": args.get("input_elements"),
        "output_elements": args.get("output_elements"),
        "peer": _either(
            _where(args.get("target_rank"), lambda column: kind[column.rows] == EventKind.SEND),
            _where(args.get("source_rank"), lambda column: kind[column.rows] == EventKind.RECV),
        ),
        "root": _roots(args),
        "sync_stream": _signed(_where(args.get("stream"), lambda column: sync[column.rows])),
        "wait_on_stream": _signed(args.get("wait_on_stream")),
        "wait_on_correlation": args.get("wait_on_correlation"),
        "module": _where(args.get("module"), lambda column: np.array(column.table or ("",))[column.values] != ""),
        "value": args.get("value"),
    }
    return {key: column for key, column in found.items() if column is not None and len(column.rows)}


def _roots(args: Mapping[str, SparseColumn]) -> SparseColumn | None:
    """What profiles call the rank of a collective is, in those that have one, the root's place in the group."""
    collective = args.get("collective")
    if collective is None or collective.table is None:
        return None
    rooted = np.array([name in _ROOTED for name in collective.table], np.bool_)[collective.values]
    return _where(args.get("root"), lambda column: np.isin(column.rows, collective.rows[rooted]))


def _collective_bytes(columns: ChromeColumns, kind: NDArray[np.uint8]) -> SparseColumn | None:
    """Bytes that each communication puts in: elements by element size, or what the shapes of its tensors say."""
    args, count = columns.args, len(columns)
    rows = np.flatnonzero(np.isin(kind, COMMUNICATION_KINDS)).astype(np.int32)
    sizes = np.zeros(len(rows), np.int64)
    if "input_elements" in args and "dtype" in args:
        width = np.array([*map(element_bytes, args["dtype"].table or ()), 0])
        sizes = args["input_elements"].dense(count, 0)[rows] * width[args["dtype"].dense(count)[rows]]
    if "shapes" in args and "types" in args:
        shapes, types = args["shapes"], args["types"]
        for at in np.flatnonzero(sizes <= 0).tolist():
            row = int(rows[at])
            sizes[at] = _tensor_bytes(shapes.get(row) or "", types.get(row) or "")
    return SparseColumn(rows[sizes > 0], sizes[sizes > 0])


def _tensor_bytes(shapes: str, types: str) -> int:
    """Bytes of all tensors that "Input Dims" and "Input type" describe; 0 where they say nothing usable."""
    try:
        dims, names = msgspec.json.decode(shapes), msgspec.json.decode(types)
        return sum(prod(dim) * element_bytes(name) for dim, name in zip(dims, names, strict=False) if dim)
    except (msgspec.DecodeError, TypeError, AttributeError):
        return 0


def _signed(column: SparseColumn | None) -> SparseColumn | None:
    """Stream numbers, with -1 for what some versions write as the largest unsigned number: no stream."""
    if column is None:
        return None
    return SparseColumn(column.rows, np.where(column.values == _NO_STREAM, NONE, column.values))


def _where(column: SparseColumn | None, chosen: Callable[[SparseColumn], NDArray[np.bool_]]) -> SparseColumn | None:
    if column is None:
        return None
    kept = chosen(column)
    return SparseColumn(column.rows[kept], column.values[kept], column.table)


def _either(*columns: SparseColumn | None) -> SparseColumn | None:
    """All values of the columns that exist; where several have one, the first."""
    found: SparseColumn | None = None
    for column in columns:
        if column is not None:
            found = column if found is None else _united(found, column)
    return found


def _united(first: SparseColumn, second: SparseColumn) -> SparseColumn:
    new = ~np.isin(second.rows, first.rows)
    table, values = first.table, second.values[new]
    if table is not None and second.table is not None and second.table is not table:
        names = NameTable(table)
        values = np.array([names.code(text) for text in second.table], np.int32)[values]
        table = names.names()
    rows = np.concatenate([first.rows, second.rows[new]])
    order = np.argsort(rows, kind="stable")
    return SparseColumn(rows[order], np.concatenate([first.values, values])[order], table)
