"""Palette: colours that stay apart for colour-blind eyes and in grey, and the small things that all plots share.

The eight strong colours are those of Okabe and Ito (Color Universal Design, 2008); what is idle is light or grey.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from matplotlib.axes import Axes

from makespan.graph import OpKind
from makespan.simulator.analysis.activity import Activity

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
BLACK: Final = "#000000"
GREY: Final = "#8C8C8C"
LIGHT: Final = "#D9D9D9"

SERIES: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
"""For lines that mean nothing but themselves, in this order."""

ACTIVITY_COLOUR: Final[Mapping[Activity, str]] = {
    Activity.COMPUTE: BLUE, Activity.OVERLAPPED_COMM: PURPLE, Activity.EXPOSED_COMM: VERMILION,
    Activity.MEMORY: ORANGE, Activity.HOST_OP: SKY, Activity.PYTHON: GREEN, Activity.THINK: "#A6DCC8",
    Activity.LAUNCH: YELLOW, Activity.STREAM_GAP: LIGHT, Activity.SYNC_WAIT: "#B3B3B3",
    Activity.STREAM_WAIT: GREY, Activity.COLLECTIVE_WAIT: "#F3BFA5", Activity.UNRECORDED: "#4D4D4D",
    Activity.FINISHED: "#F2F2F2",
}  # fmt: skip
ACTIVITY_LABEL: Final[Mapping[Activity, str]] = {
    Activity.COMPUTE: "compute", Activity.OVERLAPPED_COMM: "communication under compute",
    Activity.EXPOSED_COMM: "exposed communication", Activity.MEMORY: "copies and fills",
    Activity.HOST_OP: "waits for host ops", Activity.PYTHON: "Python frames", Activity.THINK: "think time",
    Activity.LAUNCH: "launch latency", Activity.STREAM_GAP: "gap between queued work",
    Activity.SYNC_WAIT: "host wakes up", Activity.STREAM_WAIT: "waits for another stream",
    Activity.COLLECTIVE_WAIT: "waits for other ranks", Activity.UNRECORDED: "nothing recorded",
    Activity.FINISHED: "finished",
}  # fmt: skip
KIND_COLOUR: Final[Mapping[OpKind, str]] = {
    OpKind.ORIGIN: LIGHT, OpKind.HOST: SKY, OpKind.PYTHON: GREEN, OpKind.RUNTIME: YELLOW, OpKind.THINK: "#A6DCC8",
    OpKind.WAIT: "#B3B3B3", OpKind.COMPUTE: BLUE, OpKind.MEMCPY: ORANGE, OpKind.MEMSET: "#F5CF80",
    OpKind.COLLECTIVE: VERMILION, OpKind.SEND: PURPLE, OpKind.RECV: "#8E3A73", OpKind.BARRIER: GREY,
    OpKind.MARK: GREY, OpKind.OTHER: "#4D4D4D",
}  # fmt: skip


def tidy(ax: Axes, *, grid: str = "x") -> Axes:
    """Light grid along one axis behind the data, and no frame where there is no axis."""
    ax.grid(axis="x" if grid == "x" else "y", color=LIGHT, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def say_nothing(ax: Axes, why: str) -> Axes:
    """An empty picture that says why it is empty."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color=GREY, wrap=True)
    return ax


def shortened(name: str, width: int = 44) -> str:
    """`name` for a label: long ones lose their middle, since kernels differ at their ends; `$` is no formula."""
    kept = name if len(name) <= width else f"{name[: width - 15]}…{name[-14:]}"
    return kept.replace("$", r"\$").replace("\n", " ")
