"""Breakdown: the wall time of each rank and step, cut into what it was spent on; the parts add up exactly."""

from __future__ import annotations

import numpy as np
import pandas as pd

from makespan.graph import OpKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.activity import IDLE, Activity, rank_activities
from makespan.simulator.analysis.steps import WHOLE
from makespan.simulator.analysis.totals import share_table, sum_by


def breakdown(schedule: Schedule) -> pd.DataFrame:
    """One row for each rank as a whole and for each of its steps.

    `rank`, `step` (first WHOLE, from time zero to the makespan), `device` (whether busy means the device's work or
    the main thread's), `window_ns`, then one column for each Activity (`compute_ns`, `exposed_comm_ns`, ...), which
    add up to `window_ns` exactly, and `idle_ns`, the sum of the idle ones.
    """
    tables: list[pd.DataFrame] = []
    for found in rank_activities(schedule):
        steps = [step for step in schedule.graph.steps if step.rank == found.rank]
        begin = np.array([0, *(schedule.start_ns[step.begin_op] for step in steps)], np.int64)
        end = np.array([schedule.makespan_ns, *(schedule.end_ns[step.end_op] for step in steps)], np.int64)
        spent = found.within(begin, end)
        columns: dict[str, object] = {
            "rank": found.rank,
            "step": [WHOLE, *(step.name for step in steps)],
            "device": found.has_device,
            "window_ns": end - begin,
        }
        columns.update({f"{kind.name.lower()}_ns": spent[:, kind] for kind in Activity})
        columns["idle_ns"] = spent[:, [kind for kind in IDLE if kind.name.lower() in idle_kinds(found.has_device)]].sum(
            axis=1
        )
        tables.append(pd.DataFrame(columns))
    if not tables:
        names = ["rank", "step", "device", "window_ns", *(f"{kind.name.lower()}_ns" for kind in Activity), "idle_ns"]
        return pd.DataFrame(columns=names)
    return pd.concat(tables, ignore_index=True)


def idle_kinds(has_device: bool) -> list[str]:
    """Names of the activities in which a rank is idle: its device, or without one its main thread."""
    busy_host = () if has_device else (Activity.PYTHON, Activity.THINK)
    return [kind.name.lower() for kind in IDLE if kind not in busy_host]


def idle_by_op(schedule: Schedule) -> pd.DataFrame:
    """What kept each rank idle, longest first.

    `rank`, `cause` (an idle Activity), `name` and `kind` of the op to blame (the one that ran, or the one that a
    lag led to), `count` spans, `time_ns` in all, `share_pct` of the makespan.
    """
    graph = schedule.graph
    parts: list[pd.DataFrame] = []
    for found in rank_activities(schedule):
        idle = found.op >= 0
        op = found.op[idle]
        key = (graph.name[op].astype(np.int64) * len(OpKind) + graph.kind[op]) * len(Activity) + found.activity[idle]
        met, code = np.unique(key, return_inverse=True)
        pair = met // len(Activity)
        labels = {
            "rank": [str(found.rank)] * len(met),
            "cause": [Activity(value % len(Activity)).name.lower() for value in met],
            "name": [graph.names[value // len(OpKind)] for value in pair],
            "kind": [OpKind(value % len(OpKind)).name.lower() for value in pair],
        }
        time_ns = sum_by(code, (found.to_ns - found.from_ns)[idle], len(met))
        table = share_table(labels, np.bincount(code, minlength=len(met)), time_ns, schedule.makespan_ns)
        parts.append(table.assign(rank=found.rank))
    if not parts:
        return pd.DataFrame(columns=["rank", "cause", "name", "kind", "count", "time_ns", "share_pct"])
    whole = pd.concat(parts, ignore_index=True)
    return whole.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)
