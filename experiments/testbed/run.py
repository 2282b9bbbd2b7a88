"""Testbed: capture, predict, optimize, run and compare real data-parallel training on shaped links.

One launch captures each model once (one bucket, no limit on the link) and probes the network at each rate. From that
alone the iteration time of every other configuration is predicted, and bucket plans are searched for. A second launch
runs all configurations and the found plans, and the table compares.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cells import BUCKETS, CAPTURED_STEPS, PROBE_SIZES, PROBE_SIZES_ELSE, SMALL, STEADY, STEPS, cut_of, distinct
from launch import launch
from models import MODELS
from network import UNTHROTTLED, network

import makespan as ms
from makespan.graph import Graph
from makespan.iteration import iteration_ns
from makespan.optimizers.bucketing.gradients import find_backwards, ready_order
from makespan.optimizers.tensor_fusion import ORDER, TensorFusion
from makespan.plan import Decision
from makespan.predictors.measured_curve import MeasuredCurve
from makespan.protocols import Context
from makespan.simulator.replay import replay

NOTICEABLE = 0.03
"""Configurations whose measured times differ by less are not expected to be told apart."""


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="mlp,cnn,gpt", help="of " + ", ".join(MODELS))
    parser.add_argument("--rates", default="300mbit,1gbit,2gbit", help="as tc takes them, or none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stock", action="store_true", help="leave gloo's threads at their usual priority")
    parser.add_argument("--out", type=Path, default=Path("testbed-runs"), help="folder for captures, probes, raw runs")
    parser.add_argument("--again", action="store_true", help="only compare what the folder holds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    models, rates = options.models.split(","), options.rates.split(",")
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if not options.again:
        with network(options.workers) as places:
            learnt = launch(places, learning_actions(models, rates, out), real_time=not options.stock)
            (out / "learnt.json").write_text(json.dumps(learnt, indent=1))
            predictions = predict_all(models, rates, out)
            runs = launch(places, running_actions(predictions, learnt), real_time=not options.stock)
        (out / "runs.json").write_text(json.dumps(runs, indent=1))
    else:
        predictions = predict_all(models, rates, out)
        runs = json.loads((out / "runs.json").read_text())
    report(compare(predictions, runs), as_json=options.json)


def learning_actions(models: list[str], rates: list[str], out: Path) -> list[dict[str, Any]]:
    """What the first launch does: one capture of each model, one table for each model and rate."""
    actions: list[dict[str, Any]] = [
        {"do": "capture", "model": model, "buckets": BUCKETS[SMALL], "rate": UNTHROTTLED, "out": str(out / model),
         "steps": CAPTURED_STEPS}
        for model in models
    ]  # fmt: skip
    for rate in rates:
        sizes = PROBE_SIZES.get(rate, PROBE_SIZES_ELSE)
        actions.extend(
            {"do": "probe", "model": model, "rate": rate, "out": str(table_path(out, model, rate)),
             "dtypes": ["float32"], "sizes": sizes, "repeats": 5}
            for model in models
        )  # fmt: skip
    return actions


def running_actions(predictions: list[dict[str, Any]], learnt: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the second launch does: every predicted configuration, with the machine as fast as it was when captured."""
    sentinels = {row["model"]: row["sentinel_ms"] for row in learnt}
    return [
        {"do": "measure", "model": row["model"], "name": row["buckets"], "buckets": row["told"], "rate": row["rate"],
         "steps": STEPS.get(row["rate"], 8), "sentinel_ms": sentinels[row["model"]]}
        for row in predictions
    ]  # fmt: skip


def table_path(out: Path, model: str, rate: str) -> Path:
    """Where the communication table of a rate beside a model's computing lies."""
    return out / f"network-{model}-{rate}.json"


def predict_all(models: list[str], rates: list[str], out: Path) -> list[dict[str, Any]]:
    """Predicted iteration times of all configurations, and of the plan that is found for each model and rate."""
    rows: list[dict[str, Any]] = []
    for model in models:
        graph = ms.build(ms.load(*sorted((out / model).glob("*.capture.json"))))
        backwards = find_backwards(graph)
        order, sizes = ready_order(backwards), backwards[0].sizes()
        in_order = [sizes[parameter] for parameter in order]
        names = [graph.names[parameter] for parameter in order]
        for rate in rates:
            context = Context(replay=replay, communication=MeasuredCurve.load(table_path(out, model, rate)))
            for name in distinct(in_order):
                cut = cut_of(name, in_order)
                buckets = [names[begin:end] for begin, end in zip((0, *cut[:-1]), cut, strict=True)]
                predicted = predict(graph, buckets, context)
                rows.append(
                    {"model": model, "rate": rate, "buckets": name, "told": BUCKETS[name], "predicted_ms": predicted,
                     "bucket_count": len(buckets)}
                )  # fmt: skip
            began = time.process_time()
            made = TensorFusion()(graph, context)
            decision = made.decisions[0]
            path = out / f"plan-{model}-{rate}.json"
            ms.Plan(
                model=model, cluster=f"testbed at {rate}", decisions=(Decision("tensor-fusion", decision.payload),)
            ).save(path)
            rows.append(
                {"model": model, "rate": rate, "buckets": "found", "told": str(path),
                 "predicted_ms": decision.payload["search"]["iteration_ns"] / 1e6,
                 "bucket_count": len(decision.payload["buckets"]), "search_s": time.process_time() - began}
            )  # fmt: skip
            print(
                f"  {model} at {rate}: found {rows[-1]['bucket_count']} buckets in {rows[-1]['search_s']:.1f} CPU s",
                file=sys.stderr,
            )
    return rows


def predict(graph: Graph, buckets: list[list[str]], context: Context) -> float:
    """Predicted iteration time in ms with these buckets."""
    made = TensorFusion(buckets)(graph, context)
    return iteration_ns(replay(made.graph, ORDER)) / 1e6


def compare(predictions: list[dict[str, Any]], runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The predictions with what was measured beside them."""
    measured = {(run["model"], run["rate"], run["name"]): run for run in runs}
    rows: list[dict[str, Any]] = []
    for row in predictions:
        run = measured.get((row["model"], row["rate"], row["buckets"]))
        if run is not None:
            error = 100 * (row["predicted_ms"] / run["median_ms"] - 1)
            spread = 100 * (max(run["lengths_ms"]) - min(run["lengths_ms"])) / run["median_ms"]
            rows.append(
                {
                    **row,
                    "measured_ms": run["median_ms"],
                    "error_pct": error,
                    "spread_pct": spread,
                    "formed": run["formed"],
                    "moved_pct": 100 * run["moved"],
                }
            )
    return rows


def report(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print the table, and what it comes to."""
    summary = summarise(rows)
    if as_json:
        print(json.dumps({"rows": rows, "summary": summary}, indent=1))
        return
    print(
        f"{'model':6} {'rate':8} {'buckets':16} {'n':>3} {'formed':>6} {'predicted':>10} {'measured':>9} "
        f"{'error':>7} {'spread':>7} {'moved':>6}"
    )
    for row in rows:
        print(
            f"{row['model']:6} {row['rate']:8} {row['buckets']:16} {row['bucket_count']:3} {row['formed']:6} "
            f"{row['predicted_ms']:10.1f} {row['measured_ms']:9.1f} {row['error_pct']:+6.1f}% "
            f"{row['spread_pct']:6.1f}% {row['moved_pct']:+5.1f}%"
        )
    for name, value in summary.items():
        print(f"{name}: {value}")


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors, pairs in the right order, and what the found plans gained over DDP's default.

    A cell that was measured while the machine was faster or slower than at the capture, as its sentinel tells, is
    shown and counted; the errors of all others are given apart.
    """
    right = pairs = 0
    gains: dict[str, str] = {}
    regrets: list[float] = []
    small: list[float] = []
    for model, rate in dict.fromkeys((row["model"], row["rate"]) for row in rows):
        cells = [row for row in rows if (row["model"], row["rate"]) == (model, rate)]
        for one, other in combinations(cells, 2):
            if abs(one["measured_ms"] / other["measured_ms"] - 1) > NOTICEABLE:
                pairs += 1
                right += (one["measured_ms"] < other["measured_ms"]) == (one["predicted_ms"] < other["predicted_ms"])
        by_name = {row["buckets"]: row for row in cells}
        best = min(row["measured_ms"] for row in cells)
        if "found" in by_name and "default" in by_name:
            found, default = by_name["found"], by_name["default"]
            gains[f"{model} at {rate}"] = (
                f"measured {default['measured_ms'] / found['measured_ms']:.2f}x, "
                f"predicted {default['predicted_ms'] / found['predicted_ms']:.2f}x"
            )
            regrets.append(100 * (found["measured_ms"] / best - 1))
            if "1 MiB" in by_name:
                small.append(100 * (found["measured_ms"] / by_name["1 MiB"]["measured_ms"] - 1))
    steady = [row for row in rows if abs(row["moved_pct"]) <= 100 * STEADY]
    return {
        "error, median / 90th / worst (%)": _spread(rows),
        f"the same of {len(steady)} of {len(rows)} cells whose sentinel stayed within {STEADY:.0%}": _spread(steady),
        **{
            f"the same at {rate}": _spread([row for row in steady if row["rate"] == rate])
            for rate in dict.fromkeys(row["rate"] for row in steady)
        },
        "pairs in the right order": f"{right} of {pairs}",
        "found plan over DDP's default": gains,
        "regret of the found plan, worst (%)": round(max(regrets, default=0.0), 2),
        "found plan against 1 MiB buckets (%)": [round(value, 2) for value in small],
    }


def _spread(rows: list[dict[str, Any]]) -> list[float]:
    """Median, 90th percentile and worst of the absolute errors, in per cent."""
    errors = sorted(abs(row["error_pct"]) for row in rows)
    if not errors:
        return []
    return [round(value, 2) for value in (median(errors), errors[int(0.9 * len(errors))], errors[-1])]


if __name__ == "__main__":
    main()
