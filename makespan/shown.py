"""Shown: what a file holds, be it a trace, a graph, a plan or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from makespan.api import load
from makespan.cluster_file import load_cluster
from makespan.errors import MakespanError
from makespan.graph import EdgeKind, Evidence, Graph, OpKind
from makespan.graph_file import load_graph
from makespan.plan import load_plan
from makespan.report import print_diagnostics
from makespan.text import literal
from makespan.trace import EventKind, Trace
from makespan.units import NS_PER_MS, format_bytes, format_duration

_PLAN_MARK: Final = b'"format_version"'


def shown(paths: list[Path], strict: bool = False) -> dict[str, Any]:
    """What the files hold, as plain numbers and text; "holds" says which of the four kinds it is.

    A graph is an .npz file, a cluster a .toml file, a plan a JSON file with a format version; all else is read as
    a trace. Raises the error of the reader that was chosen.
    """
    for path in paths:
        if not path.exists():
            raise MakespanError(f"{path}: there is no such file or folder")
    if len(paths) == 1 and paths[0].is_file():
        only = paths[0]
        if only.suffix == ".npz":
            return _graph(load_graph(only), str(only))
        if only.suffix == ".toml":
            return _cluster(only)
        with only.open("rb") as file:
            if _PLAN_MARK in file.read(256):
                return _plan(only)
    return _trace(load(*paths, strict=strict))


def print_shown(told: Mapping[str, Any], console: Console) -> None:
    """`told` by `shown` as tables."""
    print_kind = {"trace": _print_trace, "graph": _print_facts, "plan": _print_facts, "cluster": _print_facts}
    print_kind[told["holds"]](told, console)


def _trace(trace: Trace) -> dict[str, Any]:
    ranks: list[dict[str, Any]] = []
    for part in trace:
        events = part.events
        counts = np.bincount(events.kind, minlength=len(EventKind))
        span_ns = int(events.end_ns.max() - events.start_ns.min()) if len(events) else 0
        ranks.append(
            {
                "rank": part.rank,
                "source": part.source,
                "format": part.format,
                "events": len(events),
                "timed": part.timed,
                "span_ms": span_ns / NS_PER_MS,
                "lanes": len(events.lanes),
                "dependencies": len(part.dependency_source),
                "clock": part.clock,
                "kinds": {EventKind(kind).name.lower(): int(count) for kind, count in enumerate(counts) if count},
                "columns": sorted(events.attrs),
            }
        )
    diagnostics = trace.diagnostics
    return {
        "holds": "trace",
        "ops": len(trace),
        "ranks": ranks,
        "skipped": dict(diagnostics.counts),
        "places": {reason: list(places) for reason, places in diagnostics.places.items()},
    }


def _graph(graph: Graph, source: str) -> dict[str, Any]:
    kinds = np.bincount(graph.kind, minlength=len(OpKind))
    edges = np.bincount(graph.edge_kind, minlength=len(EdgeKind))
    evidence = np.bincount(graph.evidence, minlength=len(Evidence))
    return {
        "holds": "graph",
        "source": source,
        "ops": len(graph),
        "edges": graph.edge_count,
        "ranks": len(np.unique(graph.rank)),
        "streams": len(graph.streams),
        "steps": len(graph.steps),
        "memory": format_bytes(graph.nbytes),
        "op kinds": {OpKind(kind).name.lower(): int(count) for kind, count in enumerate(kinds) if count},
        "edge kinds": {EdgeKind(kind).name.lower(): int(count) for kind, count in enumerate(edges) if count},
        "evidence": {Evidence(kind).name.lower(): int(count) for kind, count in enumerate(evidence) if count},
        "notes": dict(graph.notes),
    }


def _plan(path: Path) -> dict[str, Any]:
    plan = load_plan(path)
    return {
        "holds": "plan",
        "source": str(path),
        "model": plan.model,
        "cluster": plan.cluster,
        "decisions": [decision.pass_name for decision in plan.decisions],
        "predicted": {name: format_duration(time_ns) for name, time_ns in plan.predicted_ns.items()},
        "seed": plan.seed,
        "created": plan.created,
        "versions": dict(plan.versions),
    }


def _cluster(path: Path) -> dict[str, Any]:
    cluster = load_cluster(path)
    return {
        "holds": "cluster",
        "source": str(path),
        "name": cluster.name,
        "about": cluster.about,
        "devices": cluster.device_count,
        "ranks": cluster.world_size,
        "hosts": len(cluster.hosts()),
        "device types": sorted(cluster.devices),
        "link types": sorted(cluster.links),
    }


def _print_trace(told: Mapping[str, Any], console: Console) -> None:
    table = Table("rank", "format", "events", "span", "lanes", "kinds", "source", box=None)
    for part in told["ranks"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(part["kinds"].items(), key=lambda kv: -kv[1]))
        span = format_duration(part["span_ms"] * NS_PER_MS) if part["timed"] else "no times"
        table.add_row(
            str(part["rank"]), part["format"], f"{part['events']:,}", span, f"{part['lanes']:,}", kinds,
            literal(part["source"]),
        )  # fmt: skip
    console.print(table)
    print_diagnostics(told["skipped"], told["places"], console)


def _print_facts(told: Mapping[str, Any], console: Console) -> None:
    table = Table(box=None, show_header=False)
    for key, value in told.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name}: {count}" for name, count in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        table.add_row(key, literal(f"{value:,}" if isinstance(value, int) else str(value)))
    console.print(table)
