"""Chrome reload: the ops and times that `chrome.export` wrote, read back to the nanosecond."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.errors import TraceError
from makespan.simulator.chrome.export import FORMAT, VERSION

BYTES_LIMIT: Final = 1 << 31
"""Most bytes that are read, unpacked."""
TIME_LIMIT_US: Final = 10**15
"""Thirty years: what can still be counted in nanoseconds."""


class _Header(msgspec.Struct):
    format: str
    version: int
    order: str
    ops: int
    makespan_ns: int | None = None


class _Args(msgspec.Struct, gc=False):
    op: int | None = None
    ops: list[int] | None = None


class _Event(msgspec.Struct, gc=False):
    ph: str
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: _Args | None = None


class _File(msgspec.Struct):
    makespan: _Header
    events: list[_Event] = msgspec.field(name="traceEvents")


@dataclass(frozen=True, slots=True, eq=False)
class ExportedTimes:
    """`start_ns`, `end_ns` (n,) int64 of the ops of an exported schedule; `order` is its discipline or "measured"."""

    order: str
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]


def read_schedule(path: str | Path) -> ExportedTimes:
    """The times of all ops in a file that `write_chrome` or `write_measured_chrome` made.

    Raises TraceError where the file is something else, is damaged, or doesn't tell every op exactly once.
    """
    content = _content(Path(path))
    try:
        told = msgspec.json.decode(content, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not a schedule that was exported as Chrome JSON ({error})") from None
    header = told.makespan
    if (header.format, header.version) != (FORMAT, VERSION):
        raise TraceError(f"{path}: {header.format!r} of version {header.version}, expected {FORMAT!r} of {VERSION}")
    rows: list[int] = []
    for event in told.events:
        if event.ph != "X" or event.args is None:
            continue
        if event.args.op is not None and event.ts is not None and event.dur is not None:
            if not (0 <= event.ts < TIME_LIMIT_US and 0 <= event.dur < TIME_LIMIT_US):
                raise TraceError(f"{path}: op {event.args.op} lies outside of time, expected 0 to {TIME_LIMIT_US} us")
            rows += (event.args.op, int(event.ts * 1000), int((event.ts + event.dur) * 1000))
        rows += event.args.ops or ()
    try:
        table = np.array(rows, np.int64).reshape(-1, 3)
    except (OverflowError, ValueError):
        raise TraceError(f"{path}: the ops of a slice are not triples of op, start and end in ns") from None
    table = table[np.argsort(table[:, 0], kind="stable")]
    if len(table) != header.ops or not np.array_equal(table[:, 0], np.arange(len(table))):
        raise TraceError(f"{path}: expected each of {header.ops} ops once, found {len(table)} entries")
    return ExportedTimes(header.order, table[:, 1].copy(), table[:, 2].copy())


def _content(path: Path) -> bytes:
    """The whole file, unpacked."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = stream.read(BYTES_LIMIT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: can't be read ({error})") from None
    if len(content) > BYTES_LIMIT:
        raise TraceError(f"{path}: larger than {BYTES_LIMIT >> 20} MiB, the most that is read")
    return content
