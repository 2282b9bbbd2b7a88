"""Counterfactuals: what a trace says about a run that was not recorded, held against one that was.

1. A trace bound by its launch queue: the device twice as fast must pay, the host twice as fast must not.
2. The same ResNet-50 job recorded with 0 and with 4 loader workers: each predicted from the other by scaling what
   runs inside the loader's event, against plain subtraction of the loader times. The first step, an outlier
   (it tunes convolutions), is left out.
"""

from __future__ import annotations

from statistics import median

import numpy as np
from numpy.typing import NDArray
from shared_traces import Row, print_rows, real_trace

import makespan as ms
from makespan.graph import Graph, StreamKind

QUEUE_BOUND = "hta/ns_resolution*"
LOADER_PAIRS = {"plugin": "kineto/plugin__*workers_{}*", "tb_plugin": "kineto/tb_plugin__*workers_{}*"}


def total_change_pct(graph: Graph, chosen: NDArray[np.bool_], factor: float) -> float:
    """Change of the summed step times when the durations of the `chosen` ops (n,) are scaled."""
    duration_ns = np.where(chosen, np.rint(graph.duration_ns * factor), graph.duration_ns).astype(np.int64)
    before = ms.replay(graph).steps()["replayed_ms"].sum()
    after = ms.replay(graph.replace(duration_ns=duration_ns)).steps()["replayed_ms"].sum()
    return 100.0 * (after / before - 1.0)


def loader_ops(graph: Graph) -> NDArray[np.bool_]:
    """(n,) ops that ran inside the loader's event."""
    is_loader = np.fromiter(("DataLoader" in name for name in graph.names), np.bool_, len(graph.names))
    outer = graph.attrs["outer"]
    return (outer >= 0) & is_loader[outer]


def later_steps_ms(graph: Graph) -> list[float]:
    """Replayed step times without the first."""
    return ms.replay(graph).steps()["replayed_ms"].tolist()[1:]


def loader_ms(graph: Graph) -> float:
    """Median time inside the loader in a step, the first left out."""
    chosen = loader_ops(graph)
    spent = [graph.duration_ns[chosen & (graph.step == step)].sum() / 1e6 for step in range(len(graph.step_names))]
    return median(spent[1:])


def predict(source: Graph, target: Graph) -> tuple[float, float, float]:
    """(predicted, by subtraction, measured) median step time of `target`, in ms, from `source`."""
    factor = loader_ms(target) / loader_ms(source)
    scaled = np.where(loader_ops(source), np.rint(source.duration_ns * factor), source.duration_ns).astype(np.int64)
    predicted = median(later_steps_ms(source.replace(duration_ns=scaled)))
    subtracted = median(later_steps_ms(source)) - loader_ms(source) + loader_ms(target)
    measured = median(step.measured_ns / 1e6 for step in target.steps[1:])
    return predicted, subtracted, measured


def main() -> None:
    """Print one row for each counterfactual."""
    graph = ms.build(ms.load(real_trace(QUEUE_BOUND)))
    device = graph.on_streams(StreamKind.DEVICE)
    rows = [
        Row("queue-bound: GPU x0.5, step change %", "-40 .. -50", total_change_pct(graph, device, 0.5), "", "replay"),
        Row("queue-bound: CPU x0.5, step change %", "-5 .. 0", total_change_pct(graph, ~device, 0.5), "", "replay"),
    ]
    for name, pattern in LOADER_PAIRS.items():
        graphs = {workers: ms.build(ms.load(real_trace(pattern.format(workers)))) for workers in (0, 4)}
        for source, target in ((0, 4), (4, 0)):
            predicted, subtracted, measured = predict(graphs[source], graphs[target])
            rows.append(
                Row(
                    f"{name}: {source} -> {target} loader workers, median step ms",
                    f"measured {measured:.1f}",
                    predicted,
                    f"{100 * (predicted / measured - 1):+.1f} % (subtraction {100 * (subtracted / measured - 1):+.1f} %)",
                    "replay of the other recording",
                )
            )
    print_rows(rows)


if __name__ == "__main__":
    main()
