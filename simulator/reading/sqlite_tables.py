"""Tables of a database from a stranger: opened read-only, its own code never run, damaged pages survived."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from makespan.errors import TraceError
from makespan.trace import NONE

MAGIC: Final = b"SQLite format 3\x00"

_ERRORS: Final = (sqlite3.Error, OverflowError, UnicodeDecodeError)
"""What the driver raises for damage; the last where its own message quotes damaged text."""
_ROWS_AT_ONCE: Final = 1 << 14
_LARGEST_VALUE: Final = 1 << 24
_SMALLEST_ROW: Final = 2
_ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA)


class Database:
    """The plain tables of an open database. `tell` hears of a table that ends in damage: reason and table name."""

    def __init__(self, connection: sqlite3.Connection, most_rows: int, tell: Callable[[str, str], None]) -> None:
        self._connection, self._most_rows, self._tell = connection, most_rows, tell
        # Views and virtual tables are code; they may stand under any name.
        listed = self._select(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0", "the list of tables"
        )
        self.columns = {name: self._columns_of(name) for name in [str(row[0]) for row in listed]}
        """Column names by table."""

    def _columns_of(self, table: str) -> tuple[str, ...]:
        found = self._select(f"PRAGMA table_xinfo({_quoted(table)})", table)
        return tuple(str(name) for _, name, _, _, _, _, hidden in found if not hidden)

    def integers(self, table: str, columns: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """(k,) int64 for each of `columns`, rows in the table's order; NONE where the column or the value is absent."""
        present = [name for name in columns if name in self.columns.get(table, ())]
        wanted = ", ".join(f"CAST(COALESCE({_quoted(name)}, {NONE}) AS INTEGER)" for name in present)
        parts = [np.empty((0, len(present)), np.int64)]
        if present:
            query = f"SELECT {wanted} FROM {_quoted(table)} ORDER BY rowid"
            parts.extend(np.array(rows, np.int64) for rows in _in_chunks(self._select(query, table)))
        whole = np.concatenate(parts)
        missing = np.full(len(whole), NONE, np.int64)
        return {name: whole[:, present.index(name)].copy() if name in present else missing for name in columns}

    def texts(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows of `columns` as they are stored, in the table's order, None where a column is absent."""
        if table not in self.columns:
            return
        wanted = ", ".join(_quoted(name) if name in self.columns[table] else "NULL" for name in columns)
        yield from self._select(f"SELECT {wanted} FROM {_quoted(table)} ORDER BY rowid", table)

    def last_row(self, table: str) -> int:
        """The number of the table's last row, which counts the rows of a table that was only ever added to."""
        found = self._select(f"SELECT CAST(MAX(rowid) AS INTEGER) FROM {_quoted(table)}", table)
        return next((int(row[0] or 0) for row in found), 0)

    def _select(self, query: str, table: str) -> Iterator[tuple[Any, ...]]:
        count = 0
        try:
            for row in self._connection.execute(query):
                count += 1
                if count > self._most_rows:
                    self._tell("table holds more rows than its file can", table)
                    return
                yield row
        except _ERRORS as error:
            self._tell(f"table that can't be read to its end ({error})", table)


@contextmanager
def open_database(path: Path, name: str, tell: Callable[[str, str], None]) -> Generator[Database]:
    """The database in `path`, which messages call `name`; raises TraceError where the file is none."""
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
            connection.execute(f"PRAGMA {pragma}")
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        try:
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except _ERRORS as error:
            raise TraceError(f"{name}: not a readable SQLite database ({error}); export it anew") from None
        yield Database(connection, path.stat().st_size // _SMALLEST_ROW, tell)
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _in_chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _ROWS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
