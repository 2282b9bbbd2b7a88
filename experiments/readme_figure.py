"""The figure of the README: the timeline of one step with its critical path, and where the steps' time goes."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import makespan as ms
from makespan.simulator.analysis.plots.breakdown import plot_breakdown
from makespan.simulator.analysis.plots.timeline import plot_timeline


def main() -> None:
    """Write docs/straggler.png, or the file named on the command line."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "straggler.png"
    schedule = ms.replay(ms.build(ms.load(ms.bundled_trace("ddp_gloo_2ranks_straggler"))))
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(11, 7), height_ratios=(3, 2), layout="constrained")
    steps = schedule.steps()
    begin_ns = int(steps["start_ms"][1] * 1e6)
    plot_timeline(top, schedule, begin_ns, begin_ns + int(steps["replayed_ms"][1] * 1e6))
    plot_breakdown(bottom, schedule.breakdown())
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
