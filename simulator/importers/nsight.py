"""Nsight Systems' SQLite exports: host calls, device work and NVTX ranges of one process or several."""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.times import bulk_reach
from makespan.simulator.reading.kineto_kinds import canonical_collective
from makespan.simulator.reading.nsight_events import (
    DEVICE_TABLES,
    HOST_TABLES,
    NVTX,
    EventRows,
    Export,
    process_number,
    process_of,
    select,
)
from makespan.simulator.reading.ranks import RANKS
from makespan.simulator.reading.sources import Source, as_path, report
from makespan.simulator.reading.sqlite_tables import MAGIC, Database, open_database
from makespan.trace import (
    COMMUNICATION_KINDS,
    NONE,
    Diagnostics,
    EventKind,
    EventTable,
    NameTable,
    RankTrace,
    SparseColumn,
)

TITLE = "Nsight Systems SQLite export"

UNREAD: Final = "row of table {} that is not used"
UNKNOWN_PROCESS: Final = "device event of an unknown process"
NO_DEVICE_WORK: Final = "event of a process without device work, left out"

_MARKS: Final = re.compile(
    rb"CREATE TABLE (?:CUPTI_ACTIVITY_KIND_|NVTX_EVENTS|TARGET_INFO_SESSION_START_TIME|StringIds)"
)
_PIECES_LOOKED_AT: Final = 512
_WORK: Final = (
    EventKind.KERNEL,
    EventKind.MEMCPY,
    EventKind.MEMSET,
    EventKind.COLLECTIVE,
    EventKind.SEND,
    EventKind.RECV,
)


def recognise(source: Source) -> int:
    """2 for a database with the tables of an export; their definitions may lie anywhere in the file."""
    if not source.head.startswith(MAGIC):
        return 0
    if _MARKS.search(source.head):
        return 2
    try:
        with source.open() as stream:
            before = b""
            for piece in islice(iter(lambda: stream.read(1 << 17), b""), _PIECES_LOOKED_AT):
                if _MARKS.search(before + piece):
                    return 2
                before = piece[-64:]
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return 0
    return 0


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace for each process with device work (or for all processes together where none has any).

    `rank` is that of MPI where the export holds it, else NONE, the processes standing in the order of their devices.
    A process without device work joins the only one that has some. Times are from the start of the recording, whose
    wall-clock time is the clock base. NVTX ranges are ANNOTATION, or STEP where they look like one; MPI, cuBLAS and
    cuDNN calls are host events. Attributes: bytes, collective, peer, tag, sync_stream, wait_on_stream,
    wait_on_correlation.
    """

    def tell(reason: str, table: str, count: int = 1) -> None:
        report(diagnostics, strict, reason, f"{source.name}:{table}", count)

    with as_path(source, diagnostics, strict) as path, open_database(path, source.name, tell) as database:
        export = Export(database)
        hosts = [export.host_rows(table) for table in HOST_TABLES if table in database.columns]
        works = [export.device_rows(table) for table in DEVICE_TABLES if table in database.columns]
        nvtx, described = export.nvtx_rows()
        diagnostics.add("NVTX record that is no range or mark", f"{source.name}:{NVTX}", described)
        _note_unread(database, source.name, diagnostics)
        ranks = _mpi_ranks(database, tell)
        start_ns = database.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
        devices = dict(database.texts("TARGET_INFO_GPU", ("id", "name")))
    rows = _joined([*hosts, *works, nvtx])
    rows = _believable(_with_processes(rows), tell)
    epoch_ns = int(start_ns[0]) if len(start_ns) and 0 < start_ns[0] < 1 << 62 else 0
    parts: list[RankTrace] = []
    for process, own in _by_process(rows, export, source.name, diagnostics):
        parts.append(
            RankTrace(
                rank=ranks.get(process, NONE),
                source=source.name,
                format=TITLE,
                events=_table(own, export),
                diagnostics=Diagnostics() if parts else diagnostics,
                clock="unix" if epoch_ns else "unknown",
                clock_base_ns=epoch_ns,
                world_size=len(ranks) or NONE,
                metadata={"process": NONE if process == NONE else process_number(process), "devices": devices},
            )
        )
    if len(parts) > 1:
        parts = [replace(part, source=f"{source.name}:process {part.metadata['process']}") for part in parts]
    return parts


def _note_unread(database: Database, name: str, diagnostics: Diagnostics) -> None:
    read_tables = {*HOST_TABLES, *DEVICE_TABLES, NVTX}
    for table, columns in database.columns.items():
        if table not in read_tables and {"start", "timestamp"} & set(columns):
            diagnostics.add(UNREAD.format(table), name, database.last_row(table))


def _mpi_ranks(database: Database, tell: Callable[[str, str, int], None]) -> dict[int, int]:
    """The MPI rank of each process, where each has one of its own."""
    told = list(database.texts("MPI_RANKS", ("globalTid", "rank")))
    wrong = sum(type(thread) is not int or type(rank) is not int or not 0 <= rank < RANKS for thread, rank in told)
    if wrong:
        tell("MPI rank that can't be one, none is used", "MPI_RANKS", wrong)
        return {}
    processes = process_of(np.array([thread for thread, _ in told], np.int64)).tolist()
    ranks = {process: rank for process, (_, rank) in zip(processes, told, strict=True)}
    shared = len(ranks) - len(set(ranks.values()))
    tell("MPI rank that another process has as well, none is used", "MPI_RANKS", shared)
    return {} if shared else ranks


def _joined(parts: list[EventRows]) -> EventRows:
    """All events in the order of their starts."""
    names = dict.fromkeys(name for part in parts for name in part.attrs)
    attrs = {
        name: np.concatenate([part.attrs.get(name, np.full(len(part.kind), NONE)) for part in parts]) for name in names
    }
    rows = EventRows(
        process=np.concatenate([part.process for part in parts]),
        start_ns=np.concatenate([part.start_ns for part in parts]),
        end_ns=np.concatenate([part.end_ns for part in parts]),
        kind=np.concatenate([part.kind for part in parts]),
        name=np.concatenate([part.name for part in parts]),
        lane=np.concatenate([part.lane for part in parts]),
        correlation=np.concatenate([part.correlation for part in parts]),
        attrs=attrs,
    )
    return select(rows, np.argsort(rows.start_ns, kind="stable"))


def _with_processes(rows: EventRows) -> EventRows:
    """Device events of exports that don't name their process get that of the only call with their correlation."""
    if not np.any(rows.process == NONE):
        return rows
    calls = np.flatnonzero((rows.kind == EventKind.RUNTIME) & (rows.correlation != NONE))
    pairs = np.unique(np.stack([rows.correlation[calls], rows.process[calls]], axis=1), axis=0)
    ids, first, count = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    caller = dict(zip(ids[count == 1].tolist(), pairs[first[count == 1], 1].tolist(), strict=True))
    known = np.unique(rows.process[rows.process != NONE])
    otherwise = int(known[0]) if len(known) == 1 else NONE
    process = rows.process.copy()
    for row in np.flatnonzero(process == NONE).tolist():
        process[row] = caller.get(int(rows.correlation[row]), otherwise)
    return replace(rows, process=process)


def _believable(rows: EventRows, tell: Callable[[str, str, int], None]) -> EventRows:
    """Without events whose times can't be true, and with a zero where a duration can't be."""
    stampless = (rows.start_ns <= 0) & (rows.end_ns <= 0) & np.isin(rows.kind, (*_WORK, EventKind.SYNC_RECORD))
    early, late = bulk_reach(rows.start_ns[~stampless])
    past, future = ~stampless & (rows.start_ns < early), ~stampless & (rows.start_ns > late)
    open_end = rows.end_ns == NONE
    negative = ~open_end & (rows.end_ns < rows.start_ns)
    endless = ~future & (rows.end_ns > late)
    for reason, where in (
        ("device event without a timestamp", stampless), ("timestamp far in the past", past),
        ("timestamp far in the future", future), ("begin without an end", open_end & ~stampless),
        ("negative duration, taken as zero", negative), ("duration absurdly long, taken as zero", endless),
    ):  # fmt: skip
        if where.any():
            tell(reason, f"event {int(np.argmax(where))}", int(where.sum()))
    end_ns = np.where(open_end | negative | endless, rows.start_ns, rows.end_ns)
    return select(replace(rows, end_ns=end_ns), ~(stampless | past | future))


def _by_process(rows: EventRows, export: Export, name: str, diagnostics: Diagnostics) -> list[tuple[int, EventRows]]:
    """The events of each process that becomes a rank, in the order of their lowest device and process number."""
    device = np.array([lane.device for lane in export.lanes] or [NONE])[rows.lane]
    at_work = np.isin(rows.kind, _WORK) & (device != NONE)
    lost = at_work & (rows.process == NONE)
    diagnostics.add(UNKNOWN_PROCESS, name, int(lost.sum()))
    workers = sorted(
        np.unique(rows.process[at_work & ~lost]).tolist(),
        key=lambda process: (int(device[at_work & (rows.process == process)].min()), process),
    )
    if len(workers) < 2:
        processes = np.unique(rows.process).tolist()
        return [(workers[0] if workers else processes[-1] if processes else NONE, rows)]
    other = ~np.isin(rows.process, workers) & ~lost
    diagnostics.add(NO_DEVICE_WORK, name, int(other.sum()))
    return [(process, select(rows, rows.process == process)) for process in workers]


def _table(rows: EventRows, export: Export) -> EventTable:
    all_names, all_lanes = export.names.names(), list(export.lanes)
    used_names, name = np.unique(rows.name, return_inverse=True)
    used_lanes, lane = np.unique(rows.lane, return_inverse=True)
    names = tuple(all_names[number] for number in used_names.tolist())
    attrs = {key: _sparse(values) for key, values in rows.attrs.items()}
    attrs["collective"] = _collectives(rows.kind, name, names)
    return EventTable(
        start_ns=rows.start_ns,
        duration_ns=rows.end_ns - rows.start_ns,
        kind=rows.kind,
        name=name.astype(np.int32),
        lane=lane.astype(np.int32),
        correlation=rows.correlation,
        external_id=np.full(len(rows.kind), NONE, np.int64),
        names=names,
        lanes=tuple(all_lanes[number] for number in used_lanes.tolist()),
        attrs={key: column for key, column in attrs.items() if len(column.rows)},
    )


def _sparse(values: NDArray[np.int64]) -> SparseColumn:
    rows = np.flatnonzero(values != NONE).astype(np.int32)
    return SparseColumn(rows, values[rows])


def _collectives(kind: NDArray[np.uint8], name: NDArray[np.int64], names: tuple[str, ...]) -> SparseColumn:
    """What each communication is called in all formats alike, after its name."""
    rows = np.flatnonzero(np.isin(kind, COMMUNICATION_KINDS)).astype(np.int32)
    table = NameTable()
    used, inverse = np.unique(name[rows], return_inverse=True)
    codes = np.array([table.code(canonical_collective(names[number])) for number in used.tolist()], np.int32)
    return SparseColumn(rows, codes[inverse], table.names())
