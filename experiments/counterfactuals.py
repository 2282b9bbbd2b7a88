"""Counterfactuals: what a trace says about a run that was not recorded, held against one that was.

1. A trace bound by its launch queue: the device twice as fast must pay, the host twice as fast must not.
2. The same ResNet-50 job recorded with 0 and with 4 loader workers: each predicted from the other by scaling what
   runs inside the loader's event, against plain subtraction of the loader times. The first step, an outlier
   (it tunes convolutions), is left out.
3. Two ranks over gloo: the extra work of the slow one taken out of the recording with a straggler, against the
   recording without one.
"""

from __future__ import annotations

from statistics import median

from shared_traces import Row, print_rows, real_trace

import makespan as ms
from makespan.graph import Graph
from makespan.simulator.analysis.selectors import select

QUEUE_BOUND = "hta/ns_resolution*"
LOADER_PAIRS = {"plugin": "kineto/plugin__*workers_{}*", "tb_plugin": "kineto/tb_plugin__*workers_{}*"}
LOADER = "under:DataLoader"


def loader_ms(graph: Graph) -> float:
    """Median time inside the loader in a step, the first left out."""
    chosen = select(graph, LOADER)
    spent = [graph.duration_ns[chosen & (graph.step == step)].sum() / 1e6 for step in range(len(graph.step_names))]
    return median(spent[1:])


def predict(source: Graph, target: Graph) -> tuple[float, float, float]:
    """(predicted, by subtraction, measured) median step time of `target`, in ms, from `source`.

    Steps are compared with themselves: the median step changes by the median of the steps' changes.
    """
    steps = ms.whatif(source, scale={LOADER: loader_ms(target) / loader_ms(source)}).steps()[1:]
    typical = median(steps["baseline_ms"])
    predicted = typical * (1 + median(steps["change_pct"]) / 100)
    subtracted = typical - loader_ms(source) + loader_ms(target)
    return predicted, subtracted, median(step.measured_ns / 1e6 for step in target.steps[1:])


def _off(predicted: float, measured: float) -> str:
    return f"{100 * (predicted / measured - 1):+.1f} %"


def main() -> None:
    """Print one row for each counterfactual."""
    graph = ms.build(ms.load(real_trace(QUEUE_BOUND)))
    rows: list[Row] = []
    for what, expected in (("gpu", "-40 .. -50"), ("cpu", "-5 .. +5")):
        found = ms.whatif(graph, scale={what: 0.5})
        steps = found.steps()
        total = 100 * (steps["changed_ms"].sum() / steps["baseline_ms"].sum() - 1)
        how = f"replay; all steps together {total:+.1f} %"
        rows.append(Row(f"queue-bound: {what} x0.5, change of the step, %", expected, found.change_pct, "", how))
    for name, pattern in LOADER_PAIRS.items():
        graphs = {workers: ms.build(ms.load(real_trace(pattern.format(workers)))) for workers in (0, 4)}
        for source, target in ((0, 4), (4, 0)):
            predicted, subtracted, measured = predict(graphs[source], graphs[target])
            rows.append(
                Row(
                    f"{name}: {source} -> {target} loader workers, median step ms",
                    f"measured {measured:.1f}",
                    predicted,
                    f"{_off(predicted, measured)} (subtraction {_off(subtracted, measured)})",
                    "replay of the other recording",
                )
            )
    straggler, clean = (
        ms.build(ms.load(ms.bundled_trace(name))) for name in ("ddp_gloo_2ranks_straggler", "ddp_gloo_2ranks")
    )
    found = ms.whatif(straggler, remove=["rank:1,under:extra work"])
    measured = ms.replay(clean).measured_iteration_time_ms
    rows.append(
        Row(
            "two ranks, straggler's extra work removed, iteration ms",
            f"measured {measured:.1f}",
            found.iteration_time_ms,
            f"{_off(found.iteration_time_ms, measured)} (as it is {_off(found.baseline_ms, measured)})",
            "replay of the recording with a straggler",
        )
    )
    print_rows(rows)


if __name__ == "__main__":
    main()
