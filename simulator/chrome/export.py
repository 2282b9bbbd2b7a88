"""Chrome export: a schedule, or the measured times of a graph, as Chrome JSON that opens in Perfetto.

One process for each rank, one thread for each stream (more where its ops overlap), steps as ranges above them,
arrows for dependencies between streams, and the critical path as a process of its own. Times are decimal
microseconds with all nanoseconds, so that reading the file gives the same schedule (`chrome.reload`). Ops carry
the categories and correlations of PyTorch profiles, so that what reads those reads this; all else is annotation.
"""

from __future__ import annotations

import gzip
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import numpy as np

from makespan.errors import MakespanError
from makespan.graph import Graph
from makespan.new_file import new_file
from makespan.schedule import Schedule
from makespan.simulator.chrome.slices import Drawing, critical_path_slices
from makespan.trace import Trace

ARROWS: Final = 50_000
"""Arrows that are drawn unless told otherwise; viewers become slow beyond."""
FORMAT: Final = "makespan-schedule"
VERSION: Final = 1


def write_chrome(schedule: Schedule, path: str | Path, trace: Trace | None = None, *, arrows: int = ARROWS) -> None:
    """Write `schedule` to `path`, compressed where it ends in .gz.

    With the `trace` that the graph was built from, each host event is one slice around those inside it; without,
    its segments are. Of more than `arrows` edges between streams those that set a start come first, then the
    earliest; the file says how many were left out. Raises MakespanError where the file can't be written.
    """
    drawing = Drawing.of(schedule.graph, schedule.start_ns, schedule.end_ns, trace)
    binding = np.zeros(schedule.graph.edge_count, np.bool_)
    for edges in (schedule.bound_edge, schedule.end_bound_edge):
        if edges is not None:
            binding[edges[edges >= 0]] = True
    drawn, left_out = drawing.arrow_edges(binding, arrows)
    head = {"order": schedule.order, "makespan_ns": schedule.makespan_ns, "arrows_left_out": left_out}
    parts = (drawing.names(), drawing.steps(), drawing.slices(), critical_path_slices(schedule), drawing.arrows(drawn))
    _write(Path(path), head, schedule.graph, parts)


def write_measured_chrome(graph: Graph, path: str | Path, trace: Trace | None = None, *, arrows: int = ARROWS) -> None:
    """Write the times at which the ops of `graph` were measured, to look at beside the replay.

    Raises MakespanError where the graph holds no measured times, or the file can't be written.
    """
    start_ns = graph.attrs.get("measured_start_ns")
    if start_ns is None or np.any(start_ns < 0):
        raise MakespanError("not every op has a measured time to export: the graph wasn't built from a timed trace")
    drawing = Drawing.of(graph, start_ns, start_ns + graph.duration_ns, trace)
    drawn, left_out = drawing.arrow_edges(np.zeros(graph.edge_count, np.bool_), arrows)
    parts = (drawing.names(), drawing.steps(), drawing.slices(), drawing.arrows(drawn))
    _write(Path(path), {"order": "measured", "arrows_left_out": left_out}, graph, parts)


def _write(path: Path, head: dict[str, Any], graph: Graph, parts: Iterable[Iterator[str]]) -> None:
    """The file: what it is first, then all events, a piece at a time."""
    told = {"format": FORMAT, "version": VERSION, **head, "ops": len(graph), "origin_ns": graph.origin_ns}
    try:
        with _opened(path) as stream:
            stream.write(b'{"makespan":' + msgspec.json.encode(told) + b',"displayTimeUnit":"ns","traceEvents":[\n')
            separator = b""
            for part in parts:
                for piece in part:
                    stream.write(separator + piece.encode())
                    separator = b",\n"
            stream.write(b"\n]}\n")
    except OSError as error:
        raise MakespanError(f"{path} can't be written: {error.strerror or error}") from None


@contextmanager
def _opened(path: Path) -> Generator[BinaryIO]:
    with new_file(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        # Neither name nor time stamp in the header: equal schedules are equal files.
        with gzip.GzipFile("", "wb", compresslevel=3, fileobj=file, mtime=0) as packed:
            yield cast(BinaryIO, packed)
