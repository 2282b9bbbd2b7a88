"""Timeline: what each stream runs over time, with the critical path above."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from makespan.graph import OpKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.analysis.plots.palette import GREY, KIND_COLOUR, LIGHT, say_nothing, shortened, tidy
from makespan.units import NS_PER_MS

RESOLUTION: Final = 4_000
"""Ops of one kind on a stream that lie closer than this fraction of the picture are drawn as one bar."""


def plot_timeline(
    ax: Axes, schedule: Schedule, from_ns: int = 0, to_ns: int | None = None, *, show_think: bool = False
) -> Axes:
    """One row for each stream that works between `from_ns` and `to_ns` (the makespan), ops in the colour of their kind.

    The row above shows by which stream's work the critical path runs: in colour where an op does, grey where a
    lag does. Think time stays white unless `show_think`. Dotted lines are the ends of steps.
    """
    graph = schedule.graph
    until = schedule.makespan_ns if to_ns is None else to_ns
    inside = (schedule.end_ns > from_ns) & (schedule.start_ns < until) & (schedule.end_ns > schedule.start_ns)
    if not show_think:
        inside &= graph.kind != OpKind.THINK
    ops = np.flatnonzero(inside)
    if not len(ops):
        return say_nothing(ax, "nothing runs in this window")
    gap_ns = max((until - from_ns) // RESOLUTION, 1)
    streams = sorted(set(graph.stream[ops].tolist()), key=lambda n: (graph.streams[n].rank, graph.streams[n].kind, n))
    for row, stream in enumerate(streams, start=1):
        mine = ops[graph.stream[ops] == stream]
        _bars(ax, row, graph.kind[mine], schedule.start_ns[mine], schedule.end_ns[mine], gap_ns)
    pieces = critical_path(schedule).pieces
    near = (pieces.to_ns > from_ns) & (pieces.from_ns < until) & (pieces.to_ns > pieces.from_ns)
    on_path = np.where(pieces.edge < 0, graph.kind[pieces.op].astype(np.int64), -1)[near]
    _bars(ax, 0, on_path, pieces.from_ns[near], pieces.to_ns[near], gap_ns)

    many = len({stream.rank for stream in graph.streams}) > 1
    labels = [
        (f"rank {graph.streams[n].rank}  " if many else "") + shortened(graph.streams[n].name, 32) for n in streams
    ]
    ax.set_yticks(range(len(streams) + 1), ["critical path", *labels])
    ax.set_ylim(len(streams) + 0.6, -0.6)
    ax.axhline(0.5, color=LIGHT, linewidth=0.8)
    ax.set_xlim(from_ns / NS_PER_MS, until / NS_PER_MS)
    ax.set_xlabel("time (ms)")
    for step in graph.steps:
        ax.axvline(float(schedule.end_ns[step.end_op]) / NS_PER_MS, color=GREY, linewidth=0.8, linestyle=":")
    shown = sorted({*graph.kind[ops].tolist(), *on_path.tolist()}, key=lambda value: (value < 0, value))
    handles = [
        Patch(color=KIND_COLOUR[OpKind(value)], label=OpKind(value).name.lower())
        if value >= 0
        else Patch(color=LIGHT, label="lag")
        for value in shown
    ]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize="small")
    return tidy(ax)


def _bars(
    ax: Axes, row: int, kind: NDArray[Any], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], gap_ns: int
) -> None:
    """Bars of each kind, those closer than `gap_ns` merged; -1 is a lag."""
    for value in np.unique(kind).tolist():
        mine = np.flatnonzero(kind == value)
        mine = mine[np.argsort(start_ns[mine], kind="stable")]
        start, reach = start_ns[mine], np.maximum.accumulate(end_ns[mine])
        begins = np.flatnonzero(np.concatenate([[True], start[1:] > reach[:-1] + gap_ns]))
        left = start[begins]
        width = np.maximum(reach[np.concatenate([begins[1:] - 1, [len(reach) - 1]])] - left, gap_ns)
        colour = LIGHT if value < 0 else KIND_COLOUR[OpKind(value)]
        spans = np.stack([left, width], axis=1) / NS_PER_MS
        ax.broken_barh(spans.tolist(), (row - 0.36, 0.72), facecolors=colour, edgecolor="none")
