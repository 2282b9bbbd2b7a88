"""The public verbs: load, build, replay, what-if, compare. The composition root: it alone knows all engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.errors import MakespanError
from makespan.graph import Graph, OpKind
from makespan.graph_file import load_graph, save_graph
from makespan.resolve import did_you_mean
from makespan.schedule import Schedule
from makespan.simulator.alignment.align import Alignment, align
from makespan.simulator.analysis.breakdown import breakdown, idle_by_op, idle_kinds
from makespan.simulator.analysis.compare import Comparison, compare
from makespan.simulator.analysis.critical_path import CriticalPath, critical_path
from makespan.simulator.analysis.memory import memory_use
from makespan.simulator.analysis.overlap import overlap
from makespan.simulator.analysis.selectors import parse_move, parse_scale
from makespan.simulator.analysis.slack import slack_ns
from makespan.simulator.analysis.steps import iteration_time_ms, steps
from makespan.simulator.analysis.waiting import waiting
from makespan.simulator.analysis.whatif import Change, Move, Remove, Scale, WhatIf, what_if
from makespan.simulator.build import build
from makespan.simulator.chrome.export import write_chrome
from makespan.simulator.load import load as load_paths
from makespan.simulator.replay import replay as run_replay
from makespan.trace import Trace

__all__ = [
    "Alignment", "Comparison", "Replay", "WhatIfResult", "align", "build", "bundled_trace", "compare", "idle_kinds",
    "iteration_time_ms", "load", "load_graph", "memory_use", "replay", "save_graph", "whatif",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replay(Schedule):
    """A schedule that answers questions: everything a replay tells, as frames."""

    @staticmethod
    def of(schedule: Schedule) -> Replay:
        """`schedule` with the answers attached; its columns are shared."""
        return Replay(
            schedule.graph,
            schedule.start_ns,
            schedule.end_ns,
            schedule.bound_by,
            schedule.bound_edge,
            schedule.order,
            schedule.end_bound_edge,
        )

    @property
    def iteration_time_ms(self) -> float:
        """Median over steps of the slowest rank."""
        return iteration_time_ms(self.steps())

    @property
    def measured_iteration_time_ms(self) -> float:
        """The same of the recorded step times; NaN where none were recorded."""
        return iteration_time_ms(self.steps(), "measured_ms")

    @property
    def error_pct(self) -> float:
        """(replayed - measured) / measured of the iteration time, in per cent."""
        measured = self.measured_iteration_time_ms
        return 100.0 * (self.iteration_time_ms - measured) / measured

    def steps(self) -> pd.DataFrame:
        """One row for each step of each rank: measured and replayed time, and what defines it."""
        return steps(self)

    def breakdown(self) -> pd.DataFrame:
        """Wall time of each rank and step by what it was spent on; the parts add up exactly."""
        return breakdown(self)

    def idle(self) -> pd.DataFrame:
        """What kept each rank idle, by cause and by op to blame, longest first."""
        return idle_by_op(self)

    def overlap(self) -> pd.DataFrame:
        """How much communication each rank hides under compute."""
        return overlap(self)

    def waiting(self) -> pd.DataFrame:
        """How long each rank waits for others in its collectives, and how long the transfers take."""
        return waiting(self)

    def critical_path(self) -> CriticalPath:
        """The chain of durations and lags that adds up to the makespan, exactly."""
        return critical_path(self)

    def slack_ns(self) -> NDArray[np.int64]:
        """(n,) how much longer each op could take without a longer makespan, in recorded order."""
        return slack_ns(self)

    def to_chrome(self, path: str | Path, trace: Trace | None = None) -> None:
        """Write a timeline for ui.perfetto.dev, compressed where `path` ends in .gz.

        With the `trace` that the graph was built from, nested host events appear whole instead of in segments.
        """
        write_chrome(self, path, trace)

    def to_frame(self) -> pd.DataFrame:
        """One row for each op: what it is, when it runs, and what set its start."""
        graph = self.graph
        streams = [stream.name for stream in graph.streams]
        labels = [*graph.step_names, ""]
        columns: dict[str, Any] = {
            "name": pd.Categorical.from_codes(graph.name, categories=pd.Index(graph.names)),
            "kind": [OpKind(kind).name.lower() for kind in graph.kind],
            "rank": graph.rank,
            "stream": [streams[number] for number in graph.stream],
            "step": [labels[number] for number in graph.step],
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "duration_ns": graph.duration_ns,
            "size_bytes": graph.size_bytes,
            "bound_by": self.bound_by,
        }
        for told in ("measured_start_ns", "uncontended_ns"):
            if told in graph.attrs:
                columns[told] = graph.attrs[told]
        return pd.DataFrame(columns)


def load(*paths: str | Path, strict: bool = False) -> Trace:
    """The trace in `paths`: files, archives or directories, of one rank or many; the format is detected.

    `strict` raises TraceError where damage would otherwise be repaired and counted in `trace.diagnostics`.

    >>> import makespan as ms
    >>> trace = ms.load(ms.bundled_trace("cnn_step"))
    """
    return load_paths(list(paths), strict=strict)


def replay(graph: Graph, order: str = "recorded") -> Replay:
    """Run `graph` in simulated time.

    `order`: "recorded" keeps each stream's measured order; "ready" starts what is ready first; "contended"
    does so while computation and communication of a rank slow each other down; "dpro" is dPRO's rule.
    """
    return Replay.of(run_replay(graph, order=order))


@dataclass(frozen=True, slots=True, eq=False)
class WhatIfResult:
    """A replay as it is and as it would be."""

    baseline: Replay
    changed: Replay
    found: WhatIf

    @property
    def baseline_ms(self) -> float:
        """Iteration time as it is."""
        return self.found.baseline_ms

    @property
    def iteration_time_ms(self) -> float:
        """Iteration time as it would be."""
        return self.found.iteration_time_ms

    @property
    def change_pct(self) -> float:
        """Change of the iteration time, in per cent of the baseline."""
        return self.found.change_pct

    def steps(self) -> pd.DataFrame:
        """One row for each step, as it is and as it would be."""
        return self.found.steps()

    def rests_on(self) -> pd.DataFrame:
        """Inferred and residual edges on the changed critical path: the answer stands and falls with them."""
        return self.found.rests_on()


def whatif(
    graph: Graph,
    *,
    scale: Mapping[str, float] | Iterable[str] = (),
    remove: Iterable[str] = (),
    move: Mapping[str, str] | Iterable[str] = (),
    order: str = "recorded",
) -> WhatIfResult:
    """Replay `graph` with ops scaled, removed and moved (in this order), beside the graph as it is.

    `scale` maps selectors to factors, `move` selectors to streams; both also as texts "SELECTOR=VALUE". Raises
    SelectorError where a selector is malformed or names no op.

    >>> ms.whatif(graph, scale={"gpu": 0.5}).change_pct
    """
    scales = scale.items() if isinstance(scale, Mapping) else map(parse_scale, scale)
    moves = move.items() if isinstance(move, Mapping) else map(parse_move, move)
    changes: list[Change] = [Scale(selector, factor) for selector, factor in scales]
    changes += [Remove(selector) for selector in remove]
    changes += [Move(selector, stream) for selector, stream in moves]
    found = what_if(graph, changes, order)
    return WhatIfResult(Replay.of(found.baseline), Replay.of(found.changed), found)


def bundled_trace(name: str) -> Path:
    """Where the bundled trace `name` lies; see `datasets/traces/README.md` for what there is."""
    folder = Path(str(resources.files("makespan") / "datasets" / "traces"))
    known = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if name not in known:
        raise MakespanError(
            f"no bundled trace is called {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
        )
    return folder / name
