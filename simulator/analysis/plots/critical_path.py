"""Critical path as bars: by kind, and the ops that take most of it."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes

from makespan.graph import OpKind
from makespan.simulator.analysis.critical_path import CriticalPath
from makespan.simulator.analysis.plots.palette import GREY, KIND_COLOUR, say_nothing, shortened, tidy
from makespan.units import NS_PER_MS, format_duration

VISIBLE_PCT: Final = 0.05
"""Bars that would be labelled 0.0 % are left out."""


def plot_critical_kinds(ax: Axes, path: CriticalPath, top: int = 12) -> Axes:
    """Time on the critical path by kind, in ms: op durations in the colour of their kind, lags of edges hatched."""
    table = path.by_kind()
    table = table[table["share_pct"] >= VISIBLE_PCT].head(top)
    if not len(table):
        return say_nothing(ax, "the critical path has no length")
    labels = [
        kind if part == "duration" else f"{kind} {part}"
        for part, kind in zip(table["part"].tolist(), table["kind"].tolist(), strict=True)
    ]
    colours = [
        _colour(kind) if part == "duration" else "white"
        for part, kind in zip(table["part"], table["kind"], strict=True)
    ]
    bars = _bars(ax, labels, table["time_ns"].tolist(), table["share_pct"].tolist(), colours)
    for bar, part in zip(bars, table["part"].tolist(), strict=True):
        if part != "duration":
            bar.set(hatch="////", edgecolor=GREY)
    ax.set_title(f"critical path, {format_duration(path.length_ns)}", loc="left", fontsize="medium")
    return ax


def plot_critical_ops(ax: Axes, path: CriticalPath, top: int = 10) -> Axes:
    """The ops whose durations take most of the critical path, in ms, in the colour of their kind."""
    table = path.by_name()
    table = table[table["share_pct"] >= VISIBLE_PCT].head(top)
    if not len(table):
        return say_nothing(ax, "no op on the critical path takes any time")
    labels = [
        f"{shortened(name)}  ×{count:,}"
        for name, count in zip(table["name"].tolist(), table["count"].tolist(), strict=True)
    ]
    colours = [_colour(kind) for kind in table["kind"].tolist()]
    _bars(ax, labels, table["time_ns"].tolist(), table["share_pct"].tolist(), colours)
    ax.set_title("longest on the critical path", loc="left", fontsize="medium")
    return ax


def _bars(ax: Axes, labels: list[str], time_ns: list[int], share_pct: list[float], colours: list[str]) -> Any:
    place = range(len(labels))
    lengths = [time / NS_PER_MS for time in time_ns]
    bars = ax.barh(place, lengths, height=0.72, color=colours, edgecolor="none")
    for at, length, share in zip(place, lengths, share_pct, strict=True):
        ax.annotate(f"{share:.1f} %", (length, at), (4, 0), textcoords="offset points", va="center", fontsize="small")
    ax.set_yticks(place, labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlim(0, 1.15 * max(lengths))
    ax.set_xlabel("time on the critical path (ms)")
    tidy(ax)
    return bars


def _colour(kind: str) -> str:
    return KIND_COLOUR[OpKind[kind.upper()]]
