"""Critical path: the chain of durations and lags that adds up to the makespan, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from makespan.graph import EdgeKind, Evidence, OpKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.chain import PiecePart, Pieces, walk_back
from makespan.simulator.analysis.totals import share_table, sum_by


@dataclass(frozen=True, slots=True, eq=False)
class CriticalPath:
    """The critical path of `schedule` between `from_ns` and `to_ns`, which its `pieces` fill without gap or overlap.

    Tables have the columns `count`, `time_ns` and `share_pct` (of the path's length), longest first.
    """

    schedule: Schedule
    pieces: Pieces
    from_ns: int
    to_ns: int

    @property
    def length_ns(self) -> int:
        """Sum of all pieces; for the path to the latest end this is the makespan."""
        return int(self.pieces.length_ns.sum())

    def ops(self) -> NDArray[np.int32]:
        """The ops whose duration lies on the path, in time order."""
        return self.pieces.op[self.pieces.part == PiecePart.DURATION]

    def edges(self) -> NDArray[np.int32]:
        """The edges that the path runs through, in time order, those without lag included."""
        return self.pieces.edge[self.pieces.edge >= 0]

    def to_frame(self) -> pd.DataFrame:
        """One row for each piece, in time order: when, which op, and what of it."""
        graph, pieces = self.schedule.graph, self.pieces
        edge = np.maximum(pieces.edge, 0)
        is_lag = pieces.edge >= 0
        streams = [stream.name for stream in graph.streams]
        labels = [*graph.step_names, ""]
        edge_kind = np.where(is_lag, graph.edge_kind[edge], len(EdgeKind)) if graph.edge_count else pieces.part * 0
        evidence = np.where(is_lag, graph.evidence[edge], len(Evidence)) if graph.edge_count else pieces.part * 0
        return pd.DataFrame(
            {
                "from_ns": pieces.from_ns,
                "to_ns": pieces.to_ns,
                "time_ns": pieces.length_ns,
                "part": _text([part.name.lower() for part in PiecePart], pieces.part),
                "op": pieces.op,
                "name": _text(list(graph.names), graph.name[pieces.op]),
                "kind": _text([kind.name.lower() for kind in OpKind], graph.kind[pieces.op]),
                "rank": graph.rank[pieces.op],
                "stream": _text(streams, graph.stream[pieces.op]),
                "step": _text(labels, graph.step[pieces.op]),
                "edge_kind": _text([*(kind.name.lower() for kind in EdgeKind), ""], edge_kind),
                "evidence": _text([*(item.name.lower() for item in Evidence), ""], evidence),
            }
        )

    def by_kind(self) -> pd.DataFrame:
        """Time by `part` and `kind`: durations by op kind, lags by edge kind; adds up to the path's length."""
        graph, pieces = self.schedule.graph, self.pieces
        kinds, edge_kinds = len(OpKind), len(EdgeKind)
        code = graph.kind[pieces.op].astype(np.int64)
        is_lag = pieces.part == PiecePart.LAG
        code[is_lag] = kinds + graph.edge_kind[pieces.edge[is_lag]]
        code[pieces.part == PiecePart.STREAM] = kinds + edge_kinds
        parts = ["duration"] * kinds + ["lag"] * edge_kinds + ["stream"]
        names = [*(kind.name.lower() for kind in OpKind), *(kind.name.lower() for kind in EdgeKind), "gap"]
        return self._table(code, {"part": parts, "kind": names})

    def by_evidence(self) -> pd.DataFrame:
        """Time in the lags of edges by `evidence` and `edge_kind`: how far the path rests on what was concluded."""
        graph = self.schedule.graph
        is_lag = self.pieces.part == PiecePart.LAG
        edge = self.pieces.edge[is_lag]
        code = graph.evidence[edge].astype(np.int64) * len(EdgeKind) + graph.edge_kind[edge]
        labels = {
            "evidence": [item.name.lower() for item in Evidence for _ in EdgeKind],
            "edge_kind": [kind.name.lower() for _ in Evidence for kind in EdgeKind],
        }
        return self._table(code, labels, is_lag)

    def rests_on(self) -> pd.DataFrame:
        """The edges of the path that were concluded, not measured: what the path's length rests on.

        One row for each `evidence`, `edge_kind` and names of the ops at both ends (`source`, `target`); an edge
        without lag counts, since the path would run elsewhere without it.
        """
        graph = self.schedule.graph
        concluded = np.zeros(len(self.pieces), np.bool_)
        is_lag = self.pieces.part == PiecePart.LAG
        concluded[is_lag] = graph.evidence[self.pieces.edge[is_lag]] != Evidence.MEASURED
        edge = self.pieces.edge[concluded]
        source, target = graph.name[graph.pred[edge]], graph.name[self.pieces.op[concluded]]
        columns = np.stack([graph.evidence[edge], graph.edge_kind[edge], source, target], axis=1).astype(np.int64)
        met, code = np.unique(columns, axis=0, return_inverse=True)
        labels = {
            "evidence": [Evidence(row[0]).name.lower() for row in met],
            "edge_kind": [EdgeKind(row[1]).name.lower() for row in met],
            "source": [graph.names[row[2]] for row in met],
            "target": [graph.names[row[3]] for row in met],
        }
        return self._table(code.reshape(-1), labels, concluded)

    def by_name(self) -> pd.DataFrame:
        """Time in durations by op `name` and `kind`."""
        graph = self.schedule.graph
        own = self.pieces.part == PiecePart.DURATION
        op = self.pieces.op[own]
        pair = graph.name[op].astype(np.int64) * len(OpKind) + graph.kind[op]
        met, code = np.unique(pair, return_inverse=True)
        labels = {
            "name": [graph.names[value // len(OpKind)] for value in met],
            "kind": [OpKind(value % len(OpKind)).name.lower() for value in met],
        }
        return self._table(code, labels, own)

    def by_rank(self) -> pd.DataFrame:
        """Time by the `rank` of the op or of the op that a lag leads to."""
        met, code = np.unique(self.schedule.graph.rank[self.pieces.op], return_inverse=True)
        return self._table(code, {"rank": [int(rank) for rank in met]})

    def _table(
        self, code: NDArray[Any], labels: dict[str, Any], chosen: NDArray[np.bool_] | None = None
    ) -> pd.DataFrame:
        """Sums by code of the chosen pieces (all unless told), for the codes that occur."""
        time_ns = self.pieces.length_ns if chosen is None else self.pieces.length_ns[chosen]
        size = len(next(iter(labels.values())))
        counts = np.bincount(code, minlength=size)
        met = np.flatnonzero(counts)
        told = {key: [values[place] for place in met] for key, values in labels.items()}
        return share_table(told, counts[met], sum_by(code, time_ns, size)[met], self.length_ns)


def critical_path(schedule: Schedule) -> CriticalPath:
    """The critical path: from the latest end back to time zero; its length is the makespan, exactly.

    Of several ops that end last, the first in op order is taken. Raises GraphError where the schedule's own
    columns contradict each other.
    """
    if not len(schedule.end_ns):
        return CriticalPath(schedule, walk_back(schedule, [], True, 0), 0, 0)
    return path_to(schedule, int(np.argmax(schedule.end_ns)))


def path_to(schedule: Schedule, op: int, from_ns: int = 0) -> CriticalPath:
    """What the end of `op` waited for, back to `from_ns`."""
    return CriticalPath(schedule, walk_back(schedule, op, True, from_ns), from_ns, int(schedule.end_ns[op]))


def _text(names: list[str], codes: NDArray[Any]) -> pd.Categorical:
    """`names[codes]` as a categorical column; the last name stands for -1."""
    distinct = list(dict.fromkeys(names))
    place = {name: number for number, name in enumerate(distinct)}
    table = np.array([place[name] for name in names], np.int64)
    return pd.Categorical.from_codes(table[codes], categories=distinct)
