"""Memory: what a trace's allocator instants tell about memory in use over time, and where it peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.trace import NONE, EventKind, EventTable, LaneKind, Trace

_SAMPLE_COLUMNS: Final = ("rank", "device", "time_ns", "allocated_bytes", "change_bytes")
_PEAK_COLUMNS: Final = ("rank", "device", "peak_bytes", "at_ns", "step", "op", "instants")


@dataclass(frozen=True, slots=True, eq=False)
class MemoryUse:
    """Memory over time, and its peaks.

    `samples`: one row for each allocator instant, in time order for each rank and device: `rank`, `device`
    ("host" or "device 0" ...), `time_ns` from the rank's first event, `allocated_bytes` after it and
    `change_bytes`. `peaks`: one row for each rank and device with `peak_bytes`, `at_ns`, and the `step` and
    innermost `op` in which it is reached. `reason` says why there is nothing, or what the figures leave out.
    """

    samples: pd.DataFrame
    peaks: pd.DataFrame
    reason: str


def memory_use(trace: Trace) -> MemoryUse:
    """Memory in use over time, for each rank and device of `trace`."""
    samples: list[pd.DataFrame] = []
    peaks: list[dict[str, object]] = []
    relative = False
    for part in trace:
        events = part.events
        rows = _allocator_instants(events)
        if not len(rows):
            continue
        origin_ns = int(events.start_ns.min())
        devices = events.attrs["device"].dense(len(events)) if "device" in events.attrs else np.full(len(events), NONE)
        for device in np.unique(devices[rows]):
            chosen = rows[devices[rows] == device]
            chosen = chosen[np.argsort(events.start_ns[chosen], kind="stable")]
            allocated, change, counted = _allocated(events, chosen)
            relative |= counted
            label = "host" if device < 0 else f"device {device}"
            samples.append(
                pd.DataFrame(
                    {
                        "rank": part.rank,
                        "device": label,
                        "time_ns": events.start_ns[chosen] - origin_ns,
                        "allocated_bytes": allocated,
                        "change_bytes": change,
                    }
                )
            )
            place = int(np.argmax(allocated))
            row = int(chosen[place])
            peaks.append(
                {
                    "rank": part.rank,
                    "device": label,
                    "peak_bytes": int(allocated[place]),
                    "at_ns": int(events.start_ns[row]) - origin_ns,
                    "step": _around(events, row, (EventKind.STEP,), same_lane=False),
                    "op": _around(events, row, (EventKind.CPU_OP, EventKind.RUNTIME), same_lane=True),
                    "instants": len(chosen),
                }
            )
    if not samples:
        reason = "the trace holds no allocator instants; record it with profile_memory=True"
        return MemoryUse(pd.DataFrame(columns=list(_SAMPLE_COLUMNS)), pd.DataFrame(columns=list(_PEAK_COLUMNS)), reason)
    reason = (
        "allocations before the recording are unknown: memory is counted from its first instant" if relative else ""
    )
    return MemoryUse(pd.concat(samples, ignore_index=True), pd.DataFrame(peaks, columns=list(_PEAK_COLUMNS)), reason)


def _allocator_instants(events: EventTable) -> NDArray[np.int64]:
    """Rows of points in time that carry bytes, or a total after them."""
    carries = np.zeros(len(events), np.bool_)
    for name in ("bytes", "total_allocated_bytes"):
        if name in events.attrs:
            carries[events.attrs[name].rows] = True
    return np.flatnonzero(carries & (events.kind == EventKind.INSTANT))


def _allocated(events: EventTable, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Bytes in use after each instant, the change that each made, and whether the former is only counted from 0."""
    attrs, count = events.attrs, len(events)
    change = (
        attrs["bytes"].dense(count, 0)[rows].astype(np.int64) if "bytes" in attrs else np.zeros(len(rows), np.int64)
    )
    if "total_allocated_bytes" in attrs:
        total = attrs["total_allocated_bytes"].dense(count)[rows].astype(np.int64)
        if np.all(total >= 0):
            return total, change, False
    summed = np.cumsum(change)
    # What is freed without having been seen allocated was there before.
    return summed - min(int(summed.min()), 0), change, True


def _around(events: EventTable, row: int, kinds: tuple[EventKind, ...], *, same_lane: bool) -> str:
    """The name of the shortest host event of `kinds` that encloses instant `row`, empty if none does."""
    at_ns = events.start_ns[row]
    encloses = (events.start_ns <= at_ns) & (events.end_ns >= at_ns) & np.isin(events.kind, kinds)
    if same_lane:
        encloses &= events.lane == events.lane[row]
    else:
        on_host = np.fromiter((lane.kind == LaneKind.HOST for lane in events.lanes), np.bool_, len(events.lanes))
        encloses &= on_host[events.lane]
    around = np.flatnonzero(encloses)
    return events.name_of(int(around[np.argmin(events.duration_ns[around])])) if len(around) else ""
