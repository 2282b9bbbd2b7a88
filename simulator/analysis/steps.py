"""Steps: how long each iteration takes, measured and replayed, and whether host or device defines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.graph import NONE, Graph, Step, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.chain import walk_back
from makespan.simulator.analysis.totals import sum_by
from makespan.units import NS_PER_MS

MINOR_SHARE: Final = 0.1
"""A side that takes less than this share of what a step waited for doesn't define it."""
WHOLE: Final = "whole schedule"
"""What a row is called that is about no step but all of the schedule."""


def steps(schedule: Schedule) -> pd.DataFrame:
    """One row for each step of each rank, in the graph's order.

    `name`, `rank`; `measured_ms` (NaN where not measured), `replayed_ms` and `error_pct`, signed, of the host's
    step; `start_ms` on the schedule; `device_end_ms`: when the device work launched in the step ends, from the
    step's start (NaN without device work). `host_path_ms` and `device_path_ms` say where the time went on the
    chain that led to the step's end, or to the end of its device work where that is later, and `defined_by` is
    "host", "device" or "both" accordingly (see MINOR_SHARE).
    """
    graph = schedule.graph
    told = list(graph.steps) or _whole(schedule)
    begin = np.array([schedule.start_ns[step.begin_op] for step in told], np.int64)
    end = np.array([schedule.end_ns[step.end_op] for step in told], np.int64)
    if not graph.steps:
        begin[:] = 0
    device_op = _last_device_ops(schedule, told)
    device_end = np.where(device_op >= 0, schedule.end_ns[device_op], NONE) if len(told) else begin

    last = np.where(device_end > end, device_op, [step.end_op for step in told])
    pieces = walk_back(schedule, last, True, begin)
    on_host = graph.on_streams(StreamKind.HOST)[pieces.op]
    host_ns, device_ns = (
        sum_by(pieces.chain()[chosen], pieces.length_ns[chosen], len(told)) for chosen in (on_host, ~on_host)
    )
    measured = np.array([step.measured_ns if step.measured_ns > 0 else np.nan for step in told])
    replayed = end - begin
    return pd.DataFrame(
        {
            "name": [step.name for step in told],
            "rank": [step.rank for step in told],
            "measured_ms": measured / NS_PER_MS,
            "replayed_ms": replayed / NS_PER_MS,
            "error_pct": 100.0 * (replayed - measured) / measured,
            "start_ms": begin / NS_PER_MS,
            "device_end_ms": np.where(device_op >= 0, (device_end - begin) / NS_PER_MS, np.nan),
            "host_path_ms": host_ns / NS_PER_MS,
            "device_path_ms": device_ns / NS_PER_MS,
            "defined_by": [_defined_by(*pair) for pair in zip(host_ns, device_ns, strict=True)],
        }
    )


def iteration_time_ms(table: pd.DataFrame, column: str = "replayed_ms") -> float:
    """The iteration time in a table of steps: of each step the slowest rank, of those the median.

    `column` "measured_ms" gives the measured one, NaN where no step was measured. Steps of different ranks are
    the same step where they have the same name.
    """
    return median_of_slowest(table["name"].tolist(), table[column].tolist())


def median_of_slowest(names: Sequence[str], lengths: Sequence[float]) -> float:
    """Of the lengths (k,) of each step, by name, the largest; of those the median. NaN counts as not there."""
    slowest = slowest_by_step(names, lengths)
    return float(np.median(list(slowest.values()))) if slowest else float("nan")


def slowest_by_step(names: Sequence[str], lengths: Sequence[float]) -> dict[str, float]:
    """The largest of the lengths (k,) of each step, by name. NaN counts as not there."""
    slowest: dict[str, float] = {}
    for name, length in zip(names, lengths, strict=True):
        if not np.isnan(length):
            slowest[name] = max(length, slowest.get(name, length))
    return slowest


def paired_change_pct(before: dict[str, float], after: dict[str, float]) -> float:
    """Change from `before` to `after` (step name -> length), step by step; the median of those, in per cent.

    Steps are compared with themselves. Comparing medians instead would compare different steps with each other
    wherever a change reaches some steps later than others, as it does while a launch queue fills.
    """
    changes = [100.0 * (after[name] / length - 1.0) for name, length in before.items() if length > 0 and name in after]
    return float(np.median(changes)) if changes else float("nan")


def _whole(schedule: Schedule) -> list[Step]:
    """The whole schedule as one step, for graphs that mark none."""
    if not len(schedule.end_ns):
        return []
    last = int(np.argmax(schedule.end_ns))
    return [Step(WHOLE, NONE, last, last)]


def _last_device_ops(schedule: Schedule, told: list[Step]) -> NDArray[np.int64]:
    """(k,) the device work of each step that ends last, -1 none."""
    graph: Graph = schedule.graph
    code = {name: number for number, name in enumerate(graph.step_names)}
    found = np.full(len(told), NONE, np.int64)
    work = np.flatnonzero(graph.on_streams(StreamKind.DEVICE) & ((graph.step >= 0) | (not graph.steps)))
    if not len(work):
        return found
    if not graph.steps:
        found[:] = work[np.argmax(schedule.end_ns[work])]
        return found
    width = max(len(graph.step_names), 1)
    key = graph.rank[work].astype(np.int64) * width + graph.step[work]
    order = np.lexsort((-work, schedule.end_ns[work], key))
    key, work = key[order], work[order]
    for number, step in enumerate(told):
        if step.name not in code:
            continue
        wanted = step.rank * width + code[step.name]
        place = int(np.searchsorted(key, wanted, side="right")) - 1
        if place >= 0 and key[place] == wanted:
            found[number] = work[place]
    return found


def _defined_by(host_ns: int, device_ns: int) -> str:
    whole = max(host_ns + device_ns, 1)
    if device_ns < MINOR_SHARE * whole:
        return "host"
    return "device" if host_ns < MINOR_SHARE * whole else "both"
