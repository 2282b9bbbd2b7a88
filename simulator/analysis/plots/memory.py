"""Memory in use over time, with its peak."""

from __future__ import annotations

from matplotlib.axes import Axes

from makespan.simulator.analysis.memory import MemoryUse
from makespan.simulator.analysis.plots.palette import SERIES, say_nothing, shortened, tidy
from makespan.units import NS_PER_MS, format_bytes

_SCALES = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))


def plot_memory(ax: Axes, use: MemoryUse) -> Axes:
    """Allocated bytes of each rank and device over time in ms; a triangle marks each peak, the legend has its size."""
    if not len(use.samples):
        return say_nothing(ax, use.reason)
    columns = {name: use.samples[name].to_numpy() for name in ("rank", "device", "time_ns", "allocated_bytes")}
    top = int(columns["allocated_bytes"].max())
    scale, unit = next(pair for pair in _SCALES if top >= pair[0] or pair[0] == 1)
    peaks = use.peaks.to_dict("records")
    many = len({peak["rank"] for peak in peaks}) > 1
    for number, peak in enumerate(peaks):
        mine = (columns["rank"] == peak["rank"]) & (columns["device"] == peak["device"])
        colour = SERIES[number % len(SERIES)]
        where = shortened(str(peak["op"] or peak["step"]), 30)
        label = (f"rank {peak['rank']} " if many else "") + f"{peak['device']}: {format_bytes(peak['peak_bytes'])}"
        label += f" in {where}" if where else ""
        at_ms, allocated = columns["time_ns"][mine] / NS_PER_MS, columns["allocated_bytes"][mine] / scale
        ax.step(at_ms, allocated, where="post", color=colour, linewidth=0.9, label=label)
        ax.plot([peak["at_ns"] / NS_PER_MS], [peak["peak_bytes"] / scale], marker="v", color=colour, markersize=8)
    ax.set_ylim(0, 1.08 * top / scale if top else 1)
    ax.set_xlabel("time since the first event (ms)")
    ax.set_ylabel(f"allocated ({unit})")
    ax.legend(
        title="peaks", alignment="left", frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0),
        ncols=2,
    )  # fmt: skip
    return tidy(ax, grid="y")
