"""What if: a graph with some ops scaled, removed or moved, replayed beside the graph as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.edit import GraphEdit
from makespan.errors import SelectorError
from makespan.graph import EdgeKind, Evidence, Graph, Relation, Stream, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.analysis.selectors import select
from makespan.simulator.analysis.steps import WHOLE, iteration_time_ms, paired_change_pct, slowest_by_step, steps
from makespan.simulator.orders.scenarios import replay_scenarios
from makespan.simulator.replay import replay
from makespan.units import NS_PER_MS

ALL = "all"
WITHIN_RUN = (EdgeKind.STREAM, EdgeKind.ROOM)
"""Kinds of edges between device works whose start-to-start lag is a part of the first one's run."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiply the durations of the ops that `selector` names by `factor`, 0 or more.

    A lag that counts from the start of device work to that of other device work is part of the former's run, and
    is scaled with it. The selector `all` by itself scales the lags of all edges: everything takes `factor` times
    as long.
    """

    selector: str
    factor: float

    def __call__(self, graph: Graph) -> Graph:
        """The changed graph."""
        edit = GraphEdit(graph)
        chosen = select(graph, self.selector)
        edit.scale_duration(chosen, self.factor)
        edit.scale_lag(self.lags(graph, chosen), self.factor)
        return edit.finish().graph

    def lags(self, graph: Graph, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(m,) bool: edges whose lags are scaled along with the `chosen` ops (n,)."""
        if self.selector.strip() == ALL:
            return np.ones(graph.edge_count, np.bool_)
        within_run = (graph.relation == Relation.START_START) & np.isin(graph.edge_kind, WITHIN_RUN)
        return within_run & chosen[graph.pred]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take out the ops that `selector` names: what waited for them waits for what they waited for."""

    selector: str

    def __call__(self, graph: Graph) -> Graph:
        """The changed graph."""
        edit = GraphEdit(graph)
        edit.remove_ops(select(graph, self.selector))
        return edit.finish().graph


@dataclass(frozen=True, slots=True)
class Move:
    """Put the ops that `selector` names on `stream` of their rank, which is added where there is none of that name.

    They keep their launches and the waits of other streams, and their place in the order of time; the order of
    the stream that they leave no longer holds them up.
    """

    selector: str
    stream: str

    def __call__(self, graph: Graph) -> Graph:
        """The changed graph."""
        edit = GraphEdit(graph)
        moved = select(graph, self.selector)
        if np.any(moved & graph.on_streams(StreamKind.HOST)):
            raise SelectorError(
                f"move {self.selector!r}: names host ops, which stay in their thread's program order; "
                "move device work or transfers, such as comm"
            )
        for stream in np.unique(graph.stream[moved]):
            old = graph.streams[stream]
            same = [
                number
                for number, item in enumerate(graph.streams)
                if item.rank == old.rank and self.stream in (item.name, item.name.removeprefix("stream "))
            ]
            place = same[0] if same else edit.add_stream(Stream(old.rank, self.stream, old.kind, old.device))
            edit.move(moved & (graph.stream == stream), place)
        _relink_streams(graph, edit, moved)
        return edit.finish().graph


Change = Scale | Remove | Move


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """A schedule as it is (`baseline`) and as it would be (`changed`) after `changes`, in the same order."""

    changes: tuple[Change, ...]
    baseline: Schedule
    changed: Schedule

    @property
    def baseline_ms(self) -> float:
        """Iteration time as it is: median over steps of the slowest rank."""
        return iteration_time_ms(steps(self.baseline))

    @property
    def change_pct(self) -> float:
        """Change of the iteration time in per cent: of each step the slowest rank, the median of their changes."""
        before, after = (
            slowest_by_step(table["name"].tolist(), table["replayed_ms"].tolist())
            for table in (steps(self.baseline), steps(self.changed))
        )
        return paired_change_pct(before, after)

    @property
    def iteration_time_ms(self) -> float:
        """Iteration time as it would be: `baseline_ms` with the change of the typical step."""
        change_pct = self.change_pct
        if np.isnan(change_pct):  # steps without length
            return iteration_time_ms(steps(self.changed))
        return self.baseline_ms * (1.0 + change_pct / 100.0)

    def steps(self) -> pd.DataFrame:
        """One row for each step: `name`, `rank`, its length and what defines it, both as it is and as it would be."""
        before, after = steps(self.baseline), steps(self.changed)
        return pd.DataFrame(
            {
                "name": before["name"],
                "rank": before["rank"],
                "baseline_ms": before["replayed_ms"],
                "changed_ms": after["replayed_ms"],
                "change_pct": [
                    _change_pct(*pair) for pair in zip(before["replayed_ms"], after["replayed_ms"], strict=True)
                ],
                "baseline_defined_by": before["defined_by"],
                "changed_defined_by": after["defined_by"],
            }
        )

    def rests_on(self) -> pd.DataFrame:
        """Inferred and residual edges on the changed critical path: the answer stands and falls with them."""
        return critical_path(self.changed).rests_on()


def what_if(
    graph: Graph, changes: Sequence[Change], order: str = "recorded", baseline: Schedule | None = None
) -> WhatIf:
    """Replay `graph` after `changes`, applied one after another, and beside it as it is.

    `baseline` spares the replay of `graph` itself. Raises SelectorError where a selector is malformed or names
    nothing, GraphError where a move makes ops wait for each other.
    """
    if not changes:
        raise SelectorError("nothing to change: give at least one of scale, remove and move, such as gpu=0.5")
    changed = graph
    for change in changes:
        changed = change(changed)
    return WhatIf(tuple(changes), baseline or replay(graph, order), replay(changed, order))


def sensitivity(
    graph: Graph, selectors: Iterable[str], factors: Iterable[float], order: str = "recorded"
) -> pd.DataFrame:
    """How the iteration time depends on the speed of some ops, for each selector and factor.

    Columns `selector`, `factor`, `iteration_time_ms` and `change_pct`. Raises SelectorError as `select` does.
    """
    table = steps(replay(graph, order))
    before = slowest_by_step(table["name"].tolist(), table["replayed_ms"].tolist())
    baseline_ms = iteration_time_ms(table)
    scales = list(factors)
    rows: list[tuple[str, float, float, float]] = []
    for selector in selectors:
        chosen = select(graph, selector)
        only_durations = not np.any(Scale(selector, 1.0).lags(graph, chosen))
        if only_durations and order == "recorded":
            changed = _scenario_steps(graph, chosen, scales)
        else:
            tables = [steps(replay(Scale(selector, scale)(graph), order)) for scale in scales]
            changed = [slowest_by_step(one["name"].tolist(), one["replayed_ms"].tolist()) for one in tables]
        for scale, after in zip(scales, changed, strict=True):
            change_pct = paired_change_pct(before, after)
            rows.append((selector, scale, baseline_ms * (1.0 + change_pct / 100.0), change_pct))
    return pd.DataFrame(rows, columns=["selector", "factor", "iteration_time_ms", "change_pct"])


def _scenario_steps(graph: Graph, chosen: NDArray[np.bool_], factors: list[float]) -> list[dict[str, float]]:
    """Step lengths in ms when the durations of `chosen` ops (n,) are scaled by each of `factors`: one sweep for all."""
    watch = [op for step in graph.steps for op in (step.begin_op, step.end_op)]
    table = np.stack([np.ones(len(factors)), np.array(factors, np.float64)], axis=1)
    times = replay_scenarios(graph, chosen.astype(np.int32), table, watch=watch)
    if not graph.steps:
        return [{WHOLE: length} for length in (times.makespan_ns / NS_PER_MS).tolist()]
    names = [step.name for step in graph.steps]
    lengths = (times.end_ns[:, 1::2] - times.start_ns[:, 0::2]) / NS_PER_MS
    return [slowest_by_step(names, row) for row in lengths.tolist()]


def _relink_streams(graph: Graph, edit: GraphEdit, moved: NDArray[np.bool_]) -> None:
    """Take the `moved` ops out of the recorded order of their old streams.

    Edges that stand for that order go; an op behind moved ones follows the last that stayed before them, at the
    lag at which it followed the moved one. Waits that nothing explains stay: they may have had another cause.
    """
    target = graph.edge_targets()
    ordered = (graph.edge_kind == EdgeKind.STREAM) & (graph.evidence != Evidence.RESIDUAL)
    edit.remove_edges(ordered & (moved[graph.pred] | moved[target]))
    before = np.full(len(graph), -1, np.int64)
    before[target[ordered]] = graph.pred[ordered]
    finish = graph.relation == Relation.FINISH_START
    for edge in np.flatnonzero(ordered & moved[graph.pred] & ~moved[target] & finish):
        stayed = before[graph.pred[edge]]
        while stayed >= 0 and moved[stayed]:
            stayed = before[stayed]
        if stayed >= 0:
            edit.add_edge(
                int(stayed), int(target[edge]), int(graph.lag_ns[edge]),
                kind=EdgeKind.STREAM, evidence=Evidence(graph.evidence[edge]),
            )  # fmt: skip


def _change_pct(before: float, after: float) -> float:
    return 100.0 * (after - before) / before if before else float("nan")
