"""Comparison as diverging bars: the ops that became longer and shorter in all."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from makespan.simulator.analysis.compare import Comparison
from makespan.simulator.analysis.plots.palette import BLACK, BLUE, VERMILION, say_nothing, shortened, tidy
from makespan.units import NS_PER_MS

VISIBLE: Final = 0.002
"""Bars shorter than this share of the longest are left out."""


def plot_comparison(ax: Axes, comparison: Comparison, top: int = 15) -> Axes:
    """Difference of the total time of each op (other − baseline) in ms: longer to the right, shorter to the left."""
    table = comparison.by_op
    differs = table["difference_ns"].abs()
    table = table[(differs > 0) & (differs >= VISIBLE * differs.max())].head(top)
    if not len(table):
        return say_nothing(ax, "no op takes longer or shorter in one than in the other")
    lengths = [value / NS_PER_MS for value in table["difference_ns"].tolist()]
    place = range(len(lengths))
    ax.barh(place, lengths, height=0.72, color=[VERMILION if length > 0 else BLUE for length in lengths])
    widest = max(abs(length) for length in lengths)
    for at, length, change, status in zip(
        place, lengths, table["change_pct"].tolist(), table["status"].tolist(), strict=True
    ):
        told = status if status != "both" else f"{change:+.1f} %"
        side = 1 if length > 0 else -1
        ax.annotate(
            told, (length, at), (4 * side, 0), textcoords="offset points", va="center",
            ha="left" if side > 0 else "right", fontsize="small",
        )  # fmt: skip
    ax.axvline(0, color=BLACK, linewidth=0.8)
    names, kinds = table["name"].tolist(), table["kind"].tolist()
    labels = [
        shortened(name) + (f" ({kind})" if names.count(name) > 1 else "")
        for name, kind in zip(names, kinds, strict=True)
    ]
    ax.set_yticks(place, labels)
    ax.set_ylim(len(lengths) - 0.4, -0.6)
    lowest, highest = min(min(lengths), 0), max(max(lengths), 0)
    ax.set_xlim(lowest - 0.2 * widest * (lowest < 0), highest + 0.2 * widest * (highest > 0))
    ax.set_xlabel("difference of total time, other − baseline (ms)")
    return tidy(ax)
