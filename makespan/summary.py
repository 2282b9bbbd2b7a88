"""Summaries: results as plain numbers and text, for `--json` and for the reports on a terminal alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from makespan.api import Comparison, Replay, WhatIfResult, idle_kinds, iteration_time_ms, memory_use
from makespan.trace import Trace
from makespan.units import NS_PER_MS

if TYPE_CHECKING:
    from makespan.planning import Optimized


def replay_summary(result: Replay, trace: Trace | None, seconds: dict[str, float], top: int = 10) -> dict[str, Any]:
    """What `makespan replay --json` prints: plain numbers and text only; less of it without the `trace`."""
    table, path = result.steps(), result.critical_path()
    measured = iteration_time_ms(table, "measured_ms")
    replayed = iteration_time_ms(table)
    names, evidence = path.by_name(), path.by_evidence()
    return {
        "iteration_time_ms": _known(replayed),
        "measured_iteration_time_ms": _known(measured),
        "error_pct": _known(100.0 * (replayed - measured) / measured) if measured else None,
        "makespan_ms": result.makespan_ns / NS_PER_MS,
        "steps": _plain(
            table.filter(["name", "rank", "measured_ms", "replayed_ms", "error_pct", "device_end_ms", "defined_by"])
        ),
        "breakdown": _breakdown_ms(result.breakdown()),
        "waiting": _waiting_ms(result.waiting()),
        "critical_path": {
            "length_ms": path.length_ns / NS_PER_MS,
            "by_kind": _kinds(result),
            "top_ops": [
                {"name": name, "kind": kind, "count": count, "ms": time_ns / NS_PER_MS, "share_pct": share}
                for name, kind, count, time_ns, share in _rows(
                    names.head(top), ("name", "kind", "count", "time_ns", "share_pct")
                )
            ],
            "by_evidence": [
                {"evidence": found, "edge_kind": kind, "ms": time_ns / NS_PER_MS}
                for found, kind, time_ns in _rows(evidence, ("evidence", "edge_kind", "time_ns"))
            ],
        },
        "memory": [] if trace is None else _plain(memory_use(trace).peaks),
        "ranks": len(np.unique(result.graph.rank)),
        "events": None if trace is None else len(trace),
        "ops": len(result.graph),
        "edges": result.graph.edge_count,
        "skipped": {} if trace is None else dict(trace.diagnostics.counts),
        "notes": dict(result.graph.notes),
        "order": result.order,
        "seconds": {key: round(value, 3) for key, value in seconds.items()},
    }


def what_if_summary(result: WhatIfResult, seconds: dict[str, float]) -> dict[str, Any]:
    """What `makespan whatif --json` prints."""
    concluded = result.rests_on()
    columns = ("evidence", "edge_kind", "source", "target", "count", "time_ns")
    return {
        "baseline_ms": _known(result.baseline_ms),
        "iteration_time_ms": _known(result.iteration_time_ms),
        "change_pct": _known(result.change_pct),
        "makespan_change_pct": _known(
            100.0 * (result.changed.makespan_ns - result.baseline.makespan_ns) / max(result.baseline.makespan_ns, 1)
        ),
        "steps": _plain(result.steps()),
        "critical_path": {"before": _kinds(result.baseline), "after": _kinds(result.changed)},
        "rests_on": [
            {"evidence": evidence, "edge_kind": kind, "source": source, "target": target, "count": count,
             "ms": time_ns / NS_PER_MS}
            for evidence, kind, source, target, count, time_ns in _rows(concluded.head(20), columns)
        ],
        "order": result.changed.order,
        "seconds": {key: round(value, 3) for key, value in seconds.items()},
    }  # fmt: skip


def comparison_summary(found: Comparison, seconds: dict[str, float], top: int = 30) -> dict[str, Any]:
    """What `makespan compare --json` prints."""
    return {
        "baseline_ms": _known(found.baseline_ms),
        "iteration_time_ms": _known(found.iteration_time_ms),
        "change_pct": _known(found.change_pct),
        "steps": _plain(found.by_step),
        "by_kind": _plain(found.by_kind),
        "by_op": _plain(found.by_op.head(top)),
        "ops": len(found.by_op),
        "seconds": {key: round(value, 3) for key, value in seconds.items()},
    }


def optimized_summary(found: Optimized, seconds: Mapping[str, float]) -> dict[str, Any]:
    """What `makespan optimize --json` prints."""
    buckets = found.bucket_plan
    return {
        "baseline_ms": found.baseline_ns / NS_PER_MS,
        "iteration_time_ms": found.iteration_ns / NS_PER_MS,
        "change_pct": found.change_pct,
        "gap": found.gap,
        "captured_ms": found.captured_ns / NS_PER_MS,
        "named_ms": {name: value / NS_PER_MS for name, value in found.named_ns.items()},
        "bucket_sizes": None if buckets is None else buckets.sizes,
        "costs_from": found.costs_from,
        "decisions": [decision.pass_name for decision in found.plan.decisions],
        "code_line": None if buckets is None else buckets.code_line(),
        "seconds": {key: round(value, 3) for key, value in seconds.items()},
    }


def _kinds(result: Replay) -> list[dict[str, Any]]:
    """Time on the critical path by kind."""
    table = result.critical_path().by_kind()
    return [
        {"part": part, "kind": kind, "ms": time_ns / NS_PER_MS, "share_pct": share}
        for part, kind, time_ns, share in _rows(table, ("part", "kind", "time_ns", "share_pct"))
    ]


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows as plain numbers and text."""
    columns = [str(column) for column in table.columns]
    return [{key: _known(value) for key, value in zip(columns, row, strict=True)} for row in _rows(table, columns)]


def _breakdown_ms(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row of a breakdown with milliseconds, kinds that nothing was spent on left out."""
    told: list[dict[str, Any]] = []
    for row in table.to_dict("records"):
        parts = {
            key.removesuffix("_ns"): value / NS_PER_MS
            for key, value in row.items()
            if str(key).endswith("_ns") and key not in ("window_ns", "idle_ns") and value
        }
        told.append(
            {
                "rank": row["rank"],
                "step": row["step"],
                "window_ms": row["window_ns"] / NS_PER_MS,
                "ms": parts,
                "idle": [kind for kind in parts if kind in idle_kinds(row["device"])],
            }
        )
    return told


def _waiting_ms(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Waiting and transfer of each rank, with milliseconds."""
    told = table.rename(columns=lambda name: str(name).replace("_ns", "_ms"))
    spans = [name for name in told.columns if name.endswith("_ms")]
    told[spans] = told[spans] / NS_PER_MS
    return _plain(told)


def _rows(table: pd.DataFrame, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[column].tolist() for column in columns), strict=True)


def _known(value: Any) -> Any:
    """JSON has no NaN and no infinity: what isn't known is null."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
