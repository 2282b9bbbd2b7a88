"""Compare: what differs between two traces, two schedules, or a trace and a schedule, by op, kind and step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.graph import Graph, OpKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.steps import iteration_time_ms, steps
from makespan.simulator.analysis.totals import sum_by
from makespan.simulator.build import build
from makespan.trace import Trace
from makespan.units import NS_PER_MS

_STEP_COLUMNS: Final = ("rank", "baseline_step", "other_step", "baseline_ms", "other_ms", "change_pct")


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What `other` does differently from `baseline`; changes are (other − baseline), in per cent of the baseline.

    `by_op`: a row for each op name and kind, the largest difference first: `count`, `total_ns` and `mean_ns` of
    each side (`baseline_...`, `other_...`), `difference_ns` of the totals, `change_pct`, and `status` "both",
    "new" or "vanished". A host event counts once, its time is its own, without that of the events inside.
    `by_kind`: the same for op kinds. `by_step`: a row for each pair of steps. `baseline_ms` and
    `iteration_time_ms` are the iteration times, as `steps` defines them, of a measured side as recorded.
    """

    by_op: pd.DataFrame
    by_kind: pd.DataFrame
    by_step: pd.DataFrame
    baseline_ms: float
    iteration_time_ms: float

    @property
    def change_pct(self) -> float:
        """Change of the iteration time."""
        return _change_pct(self.baseline_ms, self.iteration_time_ms)


def compare(baseline: Schedule | Graph | Trace, other: Schedule | Graph | Trace) -> Comparison:
    """Compare two of: a schedule (as replayed), a graph or a trace (as measured).

    Ops are matched by name and kind. Steps are matched, for each rank, by name where the two sides share names,
    else by their order. Raises TraceError where a trace holds no times.
    """
    first, second = _Side.of(baseline), _Side.of(other)
    by_step = _match_steps(first.steps, second.steps)
    return Comparison(
        by_op=_match(first.by_op(), second.by_op(), ["name", "kind"]),
        by_kind=_match(first.by_kind(), second.by_kind(), ["kind"]),
        by_step=by_step,
        baseline_ms=iteration_time_ms(first.steps, "ms"),
        iteration_time_ms=iteration_time_ms(second.steps, "ms"),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One side: its graph, the duration of each op (n,), and its steps (`name`, `rank`, `ms`)."""

    graph: Graph
    duration_ns: NDArray[np.int64]
    steps: pd.DataFrame

    @staticmethod
    def of(given: Schedule | Graph | Trace) -> _Side:
        if isinstance(given, Schedule):
            told = steps(given)
            table = pd.DataFrame({"name": told["name"], "rank": told["rank"], "ms": told["replayed_ms"]})
            return _Side(given.graph, given.end_ns - given.start_ns, table)
        graph = build(given) if isinstance(given, Trace) else given
        rows = [
            (step.name, step.rank, step.measured_ns / NS_PER_MS if step.measured_ns > 0 else np.nan)
            for step in graph.steps
        ]
        return _Side(graph, graph.duration_ns, pd.DataFrame(rows, columns=["name", "rank", "ms"]))

    def by_op(self) -> pd.DataFrame:
        graph = self.graph
        key = graph.name.astype(np.int64) * len(OpKind) + graph.kind
        met, code = np.unique(key[self._counts], return_inverse=True)
        labels = {
            "name": [graph.names[value // len(OpKind)] for value in met],
            "kind": [OpKind(value % len(OpKind)).name.lower() for value in met],
        }
        return self._totals(labels, code)

    def by_kind(self) -> pd.DataFrame:
        met, code = np.unique(self.graph.kind[self._counts], return_inverse=True)
        return self._totals({"kind": [OpKind(value).name.lower() for value in met]}, code)

    @property
    def _counts(self) -> NDArray[np.bool_]:
        """(n,) ops that stand for something that ran."""
        return self.graph.kind != OpKind.ORIGIN

    def _totals(self, labels: dict[str, list[str]], code: NDArray[Any]) -> pd.DataFrame:
        size = len(next(iter(labels.values())))
        counts = np.bincount(code, weights=self._is_first()[self._counts], minlength=size).astype(np.int64)
        total = sum_by(code, self.duration_ns[self._counts], size)
        return pd.DataFrame({**labels, "count": counts, "total_ns": total})

    def _is_first(self) -> NDArray[np.bool_]:
        """(n,) all ops but those that continue a host event which an op before already counts for.

        What a waiting call still does after its wait is of another kind, and counts for itself.
        """
        graph = self.graph
        event = graph.attrs.get("event")
        first = np.ones(len(graph), np.bool_)
        if event is not None:
            owned = np.flatnonzero(event >= 0)
            row = graph.rank[owned] * (int(event.max()) + 1) + event[owned].astype(np.int64)
            _, place = np.unique(row * len(OpKind) + graph.kind[owned], return_index=True)
            first[owned] = False
            first[owned[place]] = True
        return first


def _match(first: pd.DataFrame, second: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Two tables of totals side by side, the largest difference first."""
    joined = first.merge(second, on=keys, how="outer", suffixes=("_baseline", "_other"), indicator="status")
    columns: dict[str, Any] = {key: joined[key] for key in keys}
    totals: list[NDArray[np.int64]] = []
    for side in ("baseline", "other"):
        count = joined[f"count_{side}"].fillna(0).to_numpy(np.int64)
        total = joined[f"total_ns_{side}"].fillna(0).to_numpy(np.int64)
        columns |= {f"{side}_count": count, f"{side}_total_ns": total, f"{side}_mean_ns": _ratio(total, count)}
        totals.append(total)
    difference = totals[1] - totals[0]
    names = {"both": "both", "left_only": "vanished", "right_only": "new"}
    columns |= {
        "difference_ns": difference,
        "change_pct": 100.0 * _ratio(difference, totals[0]),
        "status": [names[value] for value in joined["status"].tolist()],
    }
    order = np.argsort(-np.abs(difference), kind="stable")
    return pd.DataFrame(columns).iloc[order].reset_index(drop=True)


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """(k,) part / whole, NaN where the whole is nothing."""
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


def _match_steps(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """The steps of each rank side by side, paired by name or, where no name is shared, by order."""
    rows: list[tuple[Any, ...]] = []
    for rank in dict.fromkeys([*first["rank"], *second["rank"]]):
        mine, theirs = _steps_of(first, rank), _steps_of(second, rank)
        shared = mine.keys() & theirs.keys()
        if shared or not (mine and theirs):
            pairs = [(name, name) for name in dict.fromkeys([*mine, *theirs])]
        else:
            longest = max(len(mine), len(theirs))
            pairs = list(zip(_padded(mine, longest), _padded(theirs, longest), strict=True))
        for before, after in pairs:
            ms = mine.get(before, np.nan), theirs.get(after, np.nan)
            names = (before if before in mine else "", after if after in theirs else "")
            rows.append((rank, *names, *ms, _change_pct(*ms)))
    return pd.DataFrame(rows, columns=list(_STEP_COLUMNS))


def _steps_of(table: pd.DataFrame, rank: int) -> dict[str, float]:
    chosen = table[table["rank"] == rank]
    return dict(zip(chosen["name"].tolist(), chosen["ms"].tolist(), strict=True))


def _padded(names: dict[str, float], length: int) -> list[str]:
    return [*names, *[""] * (length - len(names))]


def _change_pct(before: float, after: float) -> float:
    return 100.0 * (after - before) / before if before else float("nan")
