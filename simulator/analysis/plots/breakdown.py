"""Breakdown as stacked bars: where the wall time of each rank and step goes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from makespan.simulator.analysis.activity import Activity
from makespan.simulator.analysis.plots.palette import (
    ACTIVITY_COLOUR,
    ACTIVITY_LABEL,
    LIGHT,
    say_nothing,
    shortened,
    tidy,
)
from makespan.simulator.analysis.steps import WHOLE
from makespan.units import NS_PER_MS

VISIBLE: Final = 0.005
"""Parts below this share of the longest bar, in every bar, are drawn together as "all else"."""


def plot_breakdown(ax: Axes, table: pd.DataFrame) -> Axes:
    """One horizontal bar for each row of a `breakdown` table, in ms; whole schedules only where no step is marked."""
    everything = table.to_dict("records")
    rows = [row for row in everything if row["step"] != WHOLE] or everything
    if not rows:
        return say_nothing(ax, "nothing took any time")
    place = np.arange(len(rows))
    longest = max(*(row["window_ns"] for row in rows), 1)
    left, rest = np.zeros((2, len(rows)))
    for kind in Activity:
        spent = np.array([row[f"{kind.name.lower()}_ns"] for row in rows]) / NS_PER_MS
        if spent.max() * NS_PER_MS < VISIBLE * longest:
            rest += spent
            continue
        ax.barh(
            place, spent, left=left, height=0.78, color=ACTIVITY_COLOUR[kind], edgecolor="white", linewidth=0.4,
            label=ACTIVITY_LABEL[kind],
        )  # fmt: skip
        left += spent
    if rest.max() > 0:
        ax.barh(place, rest, left=left, height=0.78, color="white", edgecolor=LIGHT, linewidth=0.6, label="all else")
    many = len({row["rank"] for row in rows}) > 1
    labels = [(f"rank {row['rank']}  " if many else "") + shortened(row["step"], 28) for row in rows]
    ax.set_yticks(place, labels)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, longest / NS_PER_MS)
    ax.set_xlabel("wall time (ms)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize="small")
    return tidy(ax)
