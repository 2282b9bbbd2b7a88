"""Plots draw on the axes they are given what their tables say, return them, and show nothing."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from event_tables import Row, trace_of
from hypothesis import given, settings
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from schedules import graphs, sweep

from makespan.graph import Graph, OpKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.activity import Activity
from makespan.simulator.analysis.breakdown import breakdown
from makespan.simulator.analysis.compare import compare
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.analysis.memory import memory_use
from makespan.simulator.analysis.plots.breakdown import plot_breakdown
from makespan.simulator.analysis.plots.compare import plot_comparison
from makespan.simulator.analysis.plots.critical_path import plot_critical_kinds, plot_critical_ops
from makespan.simulator.analysis.plots.memory import plot_memory
from makespan.simulator.analysis.plots.palette import ACTIVITY_COLOUR, ACTIVITY_LABEL, KIND_COLOUR, shortened
from makespan.simulator.analysis.plots.sensitivity import plot_sensitivity
from makespan.simulator.analysis.plots.steps import plot_steps
from makespan.simulator.analysis.plots.timeline import plot_timeline
from makespan.simulator.analysis.steps import WHOLE, steps
from makespan.simulator.build import build
from makespan.trace import EventKind

CPU, RUNTIME, KERNEL, STEP = EventKind.CPU_OP, EventKind.RUNTIME, EventKind.KERNEL, EventKind.STEP


@pytest.fixture
def ax(monkeypatch: pytest.MonkeyPatch) -> Iterator[Axes]:
    def shown(*_: object, **__: object) -> None:
        raise AssertionError("a plot showed itself")

    monkeypatch.setattr(plt, "show", shown)
    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()
    plt.close(figure)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    rows: list[Row] = []
    for number in range(3):
        at, call = 200.0 * number, 10 * (number + 1)
        rows += [
            Row(STEP, f"ProfilerStep#{number + 7}", "main", at, 200),
            Row(CPU, "aten::linear", "main", at + 10, 60),
            Row(RUNTIME, "cudaLaunchKernel", "main", at + 20, 10, call),
            Row(
                KERNEL,
                "gemm $x_1$ of a very long name that no axis has room for, whatever its width",
                "s7",
                at + 30,
                90,
                call,
            ),
        ]
    return sweep(build(trace_of(rows, rows)))


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def tick_labels(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_bars_of_a_breakdown_add_up_to_the_steps(ax: Axes, schedule: Schedule) -> None:
    table = breakdown(schedule)
    assert plot_breakdown(ax, table) is ax
    rows = table[table["step"] != WHOLE]
    assert len(tick_labels(ax)) == len(rows) == 6
    assert tick_labels(ax)[0] == "rank 0  ProfilerStep#7"
    ends = np.zeros(len(rows))
    for bar in ax.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends[place] = max(ends[place], bar.get_x() + bar.get_width())
    assert ends == pytest.approx(rows["window_ns"].to_numpy() / 1e6)
    assert "compute" in legend(ax)
    assert "(ms)" in ax.get_xlabel()


def test_a_breakdown_without_steps_shows_the_whole(ax: Axes, schedule: Schedule) -> None:
    table = breakdown(schedule)
    plot_breakdown(ax, table[table["step"] == WHOLE])
    assert tick_labels(ax) == [f"rank {rank}  {WHOLE}" for rank in (0, 1)]


def test_bars_of_the_critical_path_are_its_totals(ax: Axes, schedule: Schedule) -> None:
    path = critical_path(schedule)
    assert plot_critical_kinds(ax, path) is ax
    table = path.by_kind()
    shown = table[table["share_pct"] >= 0.05]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx((shown["time_ns"] / 1e6).tolist())
    hatched = [bar.get_hatch() is not None for bar in ax.patches]
    assert hatched == [part == "lag" for part in shown["part"]]
    assert texts(ax) == [f"{share:.1f} %" for share in shown["share_pct"]]


def test_longest_ops_of_the_critical_path(ax: Axes, schedule: Schedule) -> None:
    path = critical_path(schedule)
    assert plot_critical_ops(ax, path, top=2) is ax
    table = path.by_name().head(2)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx((table["time_ns"] / 1e6).tolist())
    colours = [KIND_COLOUR[OpKind[kind.upper()]].lower() for kind in table["kind"]]
    assert [to_hex(bar.get_facecolor()) for bar in ax.patches] == colours


def test_steps_measured_and_replayed(ax: Axes, schedule: Schedule) -> None:
    table = steps(schedule)
    assert plot_steps(ax, table) is ax
    lines = [line.get_ydata() for line in ax.lines]
    assert len(lines) == 4
    assert np.asarray(lines[0]) == pytest.approx(table[table["rank"] == 0]["replayed_ms"].tolist())
    assert np.asarray(lines[3]) == pytest.approx(table[table["rank"] == 1]["measured_ms"].tolist())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["7", "8", "9"]
    assert texts(ax) == ["error: median 0.000 %, worst 0.000 %"]


def test_memory_in_the_unit_of_its_size_with_peaks(ax: Axes) -> None:
    instants = [
        Row(EventKind.INSTANT, "[memory]", "main", at, 0, attrs={"total_allocated_bytes": total, "device": 0})
        for at, total in ((0, 2_000_000), (10, 8_000_000), (20, 1_000_000))
    ]
    assert plot_memory(ax, memory_use(trace_of(instants))) is ax
    assert np.asarray(ax.lines[0].get_ydata()).tolist() == [2, 8, 1]
    assert np.asarray(ax.lines[1].get_xydata()).tolist() == [[0.01, 8]]
    assert ax.get_ylabel() == "allocated (MB)"
    assert legend(ax) == ["device 0: 8.00 MB"]


def test_differences_diverge_and_are_labelled(ax: Axes, schedule: Schedule) -> None:
    graph = schedule.graph
    factor = np.where(graph.kind == OpKind.COMPUTE, 2.0, np.where(graph.kind == OpKind.HOST, 0.5, 1.0))
    found = compare(schedule, sweep(graph, (graph.duration_ns * factor).astype(np.int64)))
    assert plot_comparison(ax, found, top=2) is ax
    table = found.by_op.head(2)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx((table["difference_ns"] / 1e6).tolist())
    assert {bar.get_width() > 0 for bar in ax.patches} == {True, False}
    assert texts(ax) == [f"{change:+.1f} %" for change in table["change_pct"]]
    low, high = ax.get_xlim()
    assert low < min(table["difference_ns"]) / 1e6 < 0 < max(table["difference_ns"]) / 1e6 < high


def test_one_line_for_each_selector(ax: Axes) -> None:
    lines = {"gpu": [(2.0, 9.0), (0.5, 3.0)], "cpu": [(0.5, 5.0), (2.0, 9.0)], "comm": [(0.5, 5.0), (2.0, 8.9)]}
    rows = [(selector, *point) for selector, points in lines.items() for point in points]
    table = pd.DataFrame(rows, columns=["selector", "factor", "iteration_time_ms"])
    assert plot_sensitivity(ax, table) is ax
    assert [np.asarray(line.get_xydata()).tolist() for line in ax.lines[:3]] == [
        [[0.5, 3], [2, 9]],
        [[0.5, 5], [2, 9]],
        [[0.5, 5], [2, 8.9]],
    ]
    labels = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert labels.keys() == {"gpu, cpu", "comm"}
    assert abs(labels["gpu, cpu"] - labels["comm"]) > 0.4


def test_a_timeline_has_a_row_for_each_stream_and_the_critical_path(ax: Axes, schedule: Schedule) -> None:
    assert plot_timeline(ax, schedule, 0, 200_000) is ax
    assert tick_labels(ax) == [
        "critical path", "rank 0  main", "rank 0  stream 7", "rank 1  main", "rank 1  stream 7",
    ]  # fmt: skip
    assert ax.get_xlim() == (0, 0.2)
    assert {"host", "runtime", "compute"} <= set(legend(ax))
    drawn = {
        tuple(np.round(path.get_extents().intervalx, 4))
        for bars in ax.collections
        for path in bars.get_paths()
        if to_hex(bars.get_facecolor()[0]) == KIND_COLOUR[OpKind.COMPUTE].lower()
    }
    assert (0.03, 0.12) in drawn


@settings(max_examples=15)
@given(graphs())
def test_any_schedule_can_be_drawn(graph: Graph) -> None:
    schedule = sweep(graph)
    figure, axes = plt.subplots(2, 3)
    plot_timeline(axes[0, 0], schedule)
    plot_breakdown(axes[0, 1], breakdown(schedule))
    plot_critical_kinds(axes[0, 2], critical_path(schedule))
    plot_critical_ops(axes[1, 0], critical_path(schedule))
    plot_steps(axes[1, 1], steps(schedule))
    plot_comparison(axes[1, 2], compare(schedule, schedule))
    figure.canvas.draw()
    plt.close(figure)


def test_empty_pictures_say_why(ax: Axes, schedule: Schedule) -> None:
    table = steps(schedule)
    plot_steps(ax, table[table["rank"] == 5])
    plot_timeline(ax, schedule, -20, -10)
    plot_comparison(ax, compare(schedule, schedule))
    plot_memory(ax, memory_use(trace_of([Row(CPU, "op", "main", 0, 1)])))
    plot_sensitivity(ax, pd.DataFrame(columns=["selector", "factor", "iteration_time_ms"]))
    assert [text.split()[0] for text in texts(ax)] == ["no", "nothing", "no", "the", "no"]


def test_everything_has_a_colour_of_its_own_and_a_label() -> None:
    assert ACTIVITY_COLOUR.keys() == ACTIVITY_LABEL.keys() == set(Activity)
    assert len(set(ACTIVITY_COLOUR.values())) == len(Activity)
    assert KIND_COLOUR.keys() == set(OpKind)


def test_labels_keep_both_ends_and_are_no_formulas() -> None:
    assert shortened("a" * 50 + "_float32", 30) == "a" * 15 + "…" + "a" * 6 + "_float32"
    assert shortened("cost in $") == r"cost in \$"
