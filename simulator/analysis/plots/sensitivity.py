"""Sensitivity: the iteration time against the factor that some ops are scaled by."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from makespan.simulator.analysis.plots.palette import BLACK, GREY, SERIES, say_nothing, tidy


def plot_sensitivity(ax: Axes, table: pd.DataFrame) -> Axes:
    """One line for each selector of a `sensitivity` table: iteration time in ms, labelled at its right end."""
    if not len(table):
        return say_nothing(ax, "no what-if was asked")
    lines: dict[str, list[tuple[float, float]]] = {}
    for selector, factor, time_ms in zip(
        table["selector"].tolist(), table["factor"].tolist(), table["iteration_time_ms"].tolist(), strict=True
    ):
        lines.setdefault(selector, []).append((factor, time_ms))
    highest = 1.08 * max(time_ms for line in lines.values() for _, time_ms in line)
    right = max(factor for line in lines.values() for factor, _ in line)
    ends: list[tuple[float, str, str]] = []
    for number, (selector, line) in enumerate(lines.items()):
        colour = SERIES[number % len(SERIES)]
        factors, times = zip(*sorted(line), strict=True)
        ax.plot(factors, times, color=colour, linewidth=1.4, marker=".", markersize=7)
        # Lines that end together share a label.
        together = [place for place, (time_ms, _, _) in enumerate(ends) if abs(time_ms - times[-1]) < 0.01 * highest]
        if together:
            time_ms, others, _ = ends[together[0]]
            ends[together[0]] = (time_ms, f"{others}, {selector}", BLACK)
        else:
            ends.append((times[-1], selector, colour))
    lowest = -1.0
    for time_ms, selector, colour in sorted(ends):
        # Labels keep a line's height between them.
        lowest = max(time_ms, lowest + 0.06 * highest)
        ax.text(1.02 * right, lowest, selector, va="center", color=colour, fontsize="small", clip_on=False)
    ax.set_ylim(0, highest)
    ax.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xlabel("duration factor (1 = as measured, 0.5 = twice as fast)")
    ax.set_ylabel("iteration time (ms)")
    return tidy(ax, grid="y")
