"""What the importers' tests share: sources from bytes and files, tables as plain rows, damage that must not escape."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest

from makespan.errors import TraceError
from makespan.simulator.reading.sources import HEAD_BYTES, Source
from makespan.trace import Diagnostics, EventKind, EventTable, RankTrace

SHARED_TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"


def shared_trace(name: str) -> Path:
    """A file of the traces beside the checkout; the test is skipped where they are not there."""
    path = SHARED_TRACES / name
    if not path.exists():
        pytest.skip("the traces beside the checkout (../shared/traces) are not there")
    return path


def source_of(content: bytes, name: str = "trace") -> Source:
    return Source(name, content[:HEAD_BYTES], lambda: io.BytesIO(content))


def source_at(path: Path) -> Source:
    def opener() -> IO[bytes]:
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")

    with opener() as stream:
        head = stream.read(HEAD_BYTES)
    return Source(str(path), head, opener, None if path.suffix == ".gz" else path)


def read_one(importer: ModuleType, source: Source, strict: bool = False) -> RankTrace:
    (part,) = importer.read(source, Diagnostics(), strict)
    return part


def rows_of(events: EventTable) -> list[tuple[str, str, str, float, float]]:
    """Kind, name, lane's thread, start and duration in microseconds of each event."""
    return [
        (
            EventKind(events.kind[row]).name,
            events.name_of(row),
            events.lanes[events.lane[row]].thread,
            int(events.start_ns[row]) / 1000,
            int(events.duration_ns[row]) / 1000,
        )
        for row in range(len(events))
    ]


def attrs_of(events: EventTable, row: int) -> dict[str, object]:
    """All attributes of one event."""
    told = {key: column.get(row) for key, column in events.attrs.items()}
    return {key: value for key, value in told.items() if value is not None}


def assert_survives(importer: ModuleType, content: bytes, strict: bool) -> None:
    """Whatever the bytes are, there is a consistent table or a TraceError; `recognise` never raises."""
    source = source_of(content)
    assert importer.recognise(source) in (0, 1, 2)
    try:
        parts = importer.read(source, Diagnostics(), strict)
    except TraceError as error:
        assert "trace" in str(error)  # the file is named
        return
    assert parts
    for part in parts:
        events = part.events
        assert (events.duration_ns >= 0).all()
        assert len(events) == 0 or (events.lane.min() >= 0 and events.lane.max() < len(events.lanes))
        assert len(events) == 0 or (events.name.min() >= 0 and events.name.max() < len(events.names))
        for column in events.attrs.values():
            assert (column.rows[1:] > column.rows[:-1]).all()
            assert len(column.rows) == 0 or column.rows[-1] < len(events)
        for ends in (events.flow_source, events.flow_target, part.dependency_source, part.dependency_target):
            assert len(ends) == 0 or (ends.min() >= 0 and ends.max() < len(events))
