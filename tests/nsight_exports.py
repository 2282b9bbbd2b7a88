"""Small databases as Nsight Systems exports them: the documented columns of a new and of an old version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

NEW = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "id INTEGER NOT NULL PRIMARY KEY, name TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
        "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
        "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,"
        "copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL,"
        "bytes INTEGER NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
        "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL,"
        "eventId INTEGER NOT NULL, eventSyncId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,"
        "globalPid INTEGER, eventId INTEGER NOT NULL, eventSyncId INTEGER"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,"
        "globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL",
    "MPI_RANKS": "globalTid INTEGER NOT NULL, rank INTEGER NOT NULL",
    "MPI_COLLECTIVES_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, commHandle INTEGER,"
        "rootRank INTEGER, size INTEGER, recvSize INTEGER"
    ),
}
"""Columns of a recent version, by table."""

OLD = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INT NOT NULL, end INT NOT NULL, globalTid INT NOT NULL, correlationId INT NOT NULL,"
        "nameId INT NOT NULL, returnValue INT NOT NULL"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL,"
        "correlationId INT NOT NULL, shortName INT NOT NULL"
    ),
    "NVTX_EVENTS": "start INT NOT NULL, end INT, text TEXT, globalTid INT NOT NULL",
}
"""Columns of an early version, which names no process on device work and no start of the recording."""


def global_tid(process: int, thread: int = 0) -> int:
    return (1 << 48) + (process << 24) + thread


def write_export(
    path: Path, rows: Mapping[str, Iterable[Mapping[str, object]]], schema: Mapping[str, str] = NEW
) -> Path:
    """A database with the tables that have rows; what a row leaves out and must not be null is 0."""
    connection = sqlite3.connect(path)
    for table, listed in rows.items():
        connection.execute(f"CREATE TABLE {table} ({schema[table]})")
        columns = {name: not_null for _, name, _, not_null, _, key in connection.execute(f"PRAGMA table_info({table})")}
        for row in listed:
            assert set(row) <= set(columns)
            values = {name: row.get(name, 0 if not_null else None) for name, not_null in columns.items()}
            marks = ", ".join("?" for _ in values)
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", tuple(values.values()))
    connection.commit()
    connection.close()
    return path


def strings(*texts: str) -> list[dict[str, object]]:
    """StringIds numbered from 1."""
    return [{"id": number, "value": text} for number, text in enumerate(texts, 1)]
