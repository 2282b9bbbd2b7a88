"""Makespan: replay, what-if, prediction and optimisation of machine-learning systems' performance.

>>> import makespan as ms
>>> graph = ms.build(ms.load(ms.bundled_trace("cnn_step")))
>>> schedule = ms.replay(graph)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from makespan.api import Replay, align, build, bundled_trace, compare, load, memory_use, replay, whatif
    from makespan.cluster import Cluster
    from makespan.graph import Graph
    from makespan.graph_file import load_graph, save_graph
    from makespan.jobs import capture, lower, probe_communication
    from makespan.plan import Plan
    from makespan.planning import optimize
    from makespan.schedule import Schedule
    from makespan.trace import Trace

# Resolved on first use, so that `makespan --help` doesn't wait for compilers and tables to load.
_HOMES = {
    "Cluster": "makespan.cluster",
    "Graph": "makespan.graph",
    "Plan": "makespan.plan",
    "Replay": "makespan.api",
    "Schedule": "makespan.schedule",
    "Trace": "makespan.trace",
    "align": "makespan.api",
    "build": "makespan.api",
    "bundled_trace": "makespan.api",
    "capture": "makespan.jobs",
    "compare": "makespan.api",
    "load": "makespan.api",
    "load_graph": "makespan.graph_file",
    "lower": "makespan.jobs",
    "memory_use": "makespan.api",
    "optimize": "makespan.planning",
    "probe_communication": "makespan.jobs",
    "replay": "makespan.api",
    "save_graph": "makespan.graph_file",
    "whatif": "makespan.api",
}

__all__ = [
    "Cluster", "Graph", "Plan", "Replay", "Schedule", "Trace", "align", "build", "bundled_trace", "capture", "compare",
    "load", "load_graph", "lower", "memory_use", "optimize", "probe_communication", "replay", "save_graph", "whatif",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'makespan' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
