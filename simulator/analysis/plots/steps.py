"""Step times: measured against replayed."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from makespan.simulator.analysis.plots.palette import GREY, SERIES, say_nothing, shortened, tidy


def plot_steps(ax: Axes, table: pd.DataFrame) -> Axes:
    """Length of each step of a `steps` table in ms: measured as rings, replayed as points; a colour for each rank."""
    if not len(table):
        return say_nothing(ax, "no steps are marked")
    names = list(dict.fromkeys(table["name"].tolist()))
    place = {name: number for number, name in enumerate(names)}
    ranks = sorted(set(table["rank"].tolist()))
    for number, rank in enumerate(ranks):
        mine = table[table["rank"] == rank]
        at = [place[name] for name in mine["name"].tolist()]
        colour = SERIES[number % len(SERIES)]
        label = f"rank {rank}, replayed" if len(ranks) > 1 else "replayed"
        ax.plot(at, mine["replayed_ms"].tolist(), color=colour, linewidth=0.8, marker=".", markersize=7, label=label)
        ax.plot(
            at, mine["measured_ms"].tolist(), linestyle="none", marker="o", markersize=10, markerfacecolor="none",
            markeredgecolor=colour, label="measured" if number == len(ranks) - 1 else None,
        )  # fmt: skip
    shown = range(0, len(names), max(1, len(names) // 16))
    ax.set_xticks(list(shown), [_short_step(names[number]) for number in shown])
    ax.set_xlabel("step")
    ax.set_ylabel("length (ms)")
    lengths = table[["measured_ms", "replayed_ms"]].to_numpy(np.float64)
    ax.set_ylim(0, 1.12 * max(float(np.nanmax(lengths)), 1e-9))
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    errors = np.abs(table["error_pct"].to_numpy(np.float64))
    if np.any(~np.isnan(errors)):
        told = f"error: median {np.nanmedian(errors):.3f} %, worst {np.nanmax(errors):.3f} %"
        ax.text(0.01, 0.02, told, transform=ax.transAxes, color=GREY, fontsize="small")
    return tidy(ax, grid="y")


def _short_step(name: str) -> str:
    """The number that a step's name ends with, else the name."""
    found = re.search(r"(\d+)\)?$", name)
    return found[1] if found else shortened(name, 18)
