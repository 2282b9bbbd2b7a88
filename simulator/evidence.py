"""Evidence: how much of a graph rests on waits that nothing recorded explains."""

from __future__ import annotations

import numpy as np
import pandas as pd

from makespan.graph import EdgeKind, Evidence, Graph


def unexplained(graph: Graph) -> pd.DataFrame:
    """Residual waits by edge kind: `edges`, `wait_ms` beyond the usual lag, `share` of all device and host work."""
    usual = _usual_lags(graph)
    chosen = graph.evidence == Evidence.RESIDUAL
    kinds = graph.edge_kind[chosen]
    beyond = np.maximum(graph.lag_ns[chosen] - usual[kinds], 0)
    work_ns = max(int(graph.duration_ns.sum()), 1)
    rows = [
        {
            "edge": EdgeKind(kind).name.lower(),
            "edges": int(np.count_nonzero(kinds == kind)),
            "wait_ms": float(beyond[kinds == kind].sum() / 1e6),
            "share": float(beyond[kinds == kind].sum() / work_ns),
        }
        for kind in np.unique(kinds)
    ]
    return pd.DataFrame(rows, columns=["edge", "edges", "wait_ms", "share"])


def with_usual_lags(graph: Graph) -> Graph:
    """The graph with each residual wait replaced by the usual lag of its kind (the median of the measured ones).

    What this graph still replays rightly is what the trace explains. Offsets from the origin stay: a thread that
    nothing woke has to begin somewhere.
    """
    chosen = (graph.evidence == Evidence.RESIDUAL) & (graph.edge_kind != EdgeKind.ORIGIN)
    lag_ns = graph.lag_ns.copy()
    lag_ns[chosen] = np.minimum(lag_ns[chosen], _usual_lags(graph)[graph.edge_kind[chosen]])
    return graph.replace(lag_ns=lag_ns)


def _usual_lags(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    usual = np.zeros(max(EdgeKind) + 1, np.int64)
    known = graph.evidence != Evidence.RESIDUAL
    for kind in EdgeKind:
        lags = graph.lag_ns[known & (graph.edge_kind == kind)]
        if len(lags):
            usual[kind] = int(np.median(lags))
    return usual
