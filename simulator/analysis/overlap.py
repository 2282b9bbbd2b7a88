"""Overlap: how much of the communication is hidden under compute, for each rank and for each collective."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.graph import COMMUNICATION
from makespan.schedule import Schedule
from makespan.simulator.analysis.activity import Activity, RankActivity, rank_activities
from makespan.simulator.analysis.totals import sum_by

_RANK_COLUMNS: Final = ("rank", "comm_ns", "hidden_ns", "exposed_ns", "hidden_pct")
_NAME_COLUMNS: Final = ("rank", "name", "count", "size_bytes", "total_ns", "hidden_ns", "hidden_pct")


def overlap(schedule: Schedule) -> pd.DataFrame:
    """One row for each rank: time with any communication, how much of it is hidden under compute, how much exposed.

    Time in which several communications run at once counts once. `hidden_pct` is NaN where nothing is communicated.
    """
    rows: list[tuple[int, int, int, int]] = []
    for found in rank_activities(schedule):
        length = found.to_ns - found.from_ns
        hidden = int(length[found.activity == Activity.OVERLAPPED_COMM].sum())
        exposed = int(length[found.activity == Activity.EXPOSED_COMM].sum())
        rows.append((found.rank, hidden + exposed, hidden, exposed))
    frame = pd.DataFrame(rows, columns=list(_RANK_COLUMNS[:-1]))
    frame["hidden_pct"] = 100.0 * frame["hidden_ns"] / frame["comm_ns"].where(frame["comm_ns"] > 0)
    return frame


def overlap_by_name(schedule: Schedule) -> pd.DataFrame:
    """One row for each rank and name of a communication op, the longest total first.

    `total_ns` adds up the ops' durations and `hidden_ns` the parts of them that run under compute, so that
    ops which run at once count each.
    """
    graph = schedule.graph
    frames: list[pd.DataFrame] = []
    for found in rank_activities(schedule):
        ops = np.flatnonzero(np.isin(graph.kind, COMMUNICATION) & (graph.rank == found.rank))
        hidden = _hidden_before(found, schedule.end_ns[ops]) - _hidden_before(found, schedule.start_ns[ops])
        met, code = np.unique(graph.name[ops], return_inverse=True)
        frames.append(
            pd.DataFrame(
                {
                    "rank": found.rank,
                    "name": [graph.names[name] for name in met],
                    "count": np.bincount(code, minlength=len(met)),
                    "size_bytes": sum_by(code, graph.size_bytes[ops], len(met)),
                    "total_ns": sum_by(code, schedule.end_ns[ops] - schedule.start_ns[ops], len(met)),
                    "hidden_ns": sum_by(code, hidden, len(met)),
                }
            )
        )
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(_NAME_COLUMNS[:-1]))
    frame["hidden_pct"] = 100.0 * frame["hidden_ns"] / frame["total_ns"].where(frame["total_ns"] > 0)
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _hidden_before(found: RankActivity, at_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """(k,) time with hidden communication up to each moment; between two moments of one op it is that op's."""
    start = np.zeros(len(at_ns), np.int64)
    return found.within(start, at_ns)[:, Activity.OVERLAPPED_COMM]
