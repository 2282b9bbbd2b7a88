"""Communication table: measured times of collectives over sizes, as versioned JSON that cost models are fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from makespan.errors import PredictionError
from makespan.new_file import new_file
from makespan.units import TIME_LIMIT_NS

TABLE_FORMAT: Final = "makespan communication table"
TABLE_VERSION: Final = 1
MAX_TABLE_BYTES: Final = 64_000_000
COLLECTIVES: Final = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "send")
HOST_WORK: Final = ("launch", "copy", "cast")


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operation at one size: `operation` of COLLECTIVES, among `ranks` ranks, or of HOST_WORK on one.

    `size_bytes` that each rank puts in, elements of `dtype`. `alone_ns`: repeated measurements, the ranks doing
    nothing else; `contended_ns`: while the calling threads compute, and then `share_left`, the part of their
    computing speed that was left to them. The latter two are empty where they were not measured.
    """

    operation: str
    ranks: int
    dtype: str
    size_bytes: int
    alone_ns: list[int]
    contended_ns: list[int] = []
    share_left: list[float] = []


class CommunicationTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that was measured on one network; `network` says which ("veth, 1gbit", "NVLink of an A100 host")."""

    format: str = TABLE_FORMAT
    format_version: int = TABLE_VERSION
    network: str
    measured: list[Measured]
    facts: dict[str, str | int | float | None] = {}


def load_table(path: str | Path) -> CommunicationTable:
    """The table in `path`; raises PredictionError, in one sentence, where it is none."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
    except OSError as error:
        raise PredictionError(f"{path}: can't be read ({error.strerror}); expected a communication table") from None
    if len(content) > MAX_TABLE_BYTES:
        raise PredictionError(f"{path}: larger than {MAX_TABLE_BYTES:,} bytes, more than any communication table holds")
    try:
        table = msgspec.json.decode(content, type=CommunicationTable)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PredictionError(
            f"{path}: no communication table ({error}); expected a file that makespan.probe_communication wrote"
        ) from None
    check_table(table, str(path))
    return table


def check_table(table: CommunicationTable, source: str) -> None:
    """Raise PredictionError for the first entry that can't be; `source` is what messages call the table."""
    if (table.format, table.format_version) != (TABLE_FORMAT, TABLE_VERSION):
        raise PredictionError(
            f"{source}: {table.format!r} of version {table.format_version}, expected {TABLE_FORMAT!r} of version "
            f"{TABLE_VERSION}; measure it again, or install the makespan that wrote it"
        )
    if not table.measured:
        raise PredictionError(f"{source}: holds no measurement")
    for place, entry in enumerate(table.measured):
        where = f"{source}: $.measured[{place}]"
        if entry.operation not in (*COLLECTIVES, *HOST_WORK):
            expected = ", ".join((*COLLECTIVES, *HOST_WORK))
            raise PredictionError(f"{where}.operation is {entry.operation!r}, expected one of {expected}")
        if entry.size_bytes < 0 or entry.ranks < 1:
            raise PredictionError(f"{where}: {entry.size_bytes} bytes on {entry.ranks} ranks, expected 0 on 1 or more")
        if not entry.alone_ns or not all(
            0 <= value < TIME_LIMIT_NS for value in (*entry.alone_ns, *entry.contended_ns)
        ):
            raise PredictionError(f"{where}: expected at least one time in alone_ns, and none below 0 or above 2**62")
        if len(entry.contended_ns) != len(entry.share_left) or not all(0 <= each <= 1 for each in entry.share_left):
            raise PredictionError(f"{where}: expected for each of contended_ns a share_left from 0 to 1")


def save_table(table: CommunicationTable, path: str | Path) -> None:
    """Write `table` to `path`; raises PredictionError where it is not sound or can't be written."""
    check_table(table, str(path))
    try:
        with new_file(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")
    except OSError as error:
        raise PredictionError(f"{path}: can't be written ({error.strerror}); give a path that can") from None
