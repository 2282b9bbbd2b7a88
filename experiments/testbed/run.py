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
from dataclasses import dataclass
from itertools import combinations, product
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
    parser.add_argument("--hooks", default="plain", help="how buckets are reduced: plain, fp16 (DDP's own hook)")
    parser.add_argument(
        "--slow", type=int, default=0, help="forward passes that the last worker does in vain each step"
    )
    parser.add_argument("--stock", action="store_true", help="leave gloo's threads at their usual priority")
    parser.add_argument("--out", type=Path, default=Path("testbed-runs"), help="folder for captures, probes, raw runs")
    parser.add_argument("--again", action="store_true", help="only compare what the folder holds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = Settings(
        options.models.split(","), options.rates.split(","), options.hooks.split(","), options.slow,
        options.out.absolute(),
    )  # fmt: skip
    out = settings.out
    out.mkdir(parents=True, exist_ok=True)
    if not options.again:
        with network(options.workers) as places:
            learnt = launch(places, learning_actions(settings), real_time=not options.stock)
            (out / "learnt.json").write_text(json.dumps(learnt, indent=1))
            predictions = predict_all(settings)
            runs = launch(places, running_actions(predictions, learnt, settings), real_time=not options.stock)
        (out / "runs.json").write_text(json.dumps(runs, indent=1))
    else:
        predictions = predict_all(settings)
        runs = json.loads((out / "runs.json").read_text())
    report(compare(predictions, runs), as_json=options.json)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked for."""

    models: list[str]
    rates: list[str]
    hooks: list[str]
    slow: int
    out: Path

    def table(self, model: str, rate: str, hook: str) -> Path:
        """Where the communication table of a rate and hook, beside a model's computing, lies."""
        return self.out / f"network-{model}-{rate}-{hook}.json"


def learning_actions(settings: Settings) -> list[dict[str, Any]]:
    """What the first launch does: one capture of each model, one table for each model, rate and hook."""
    actions: list[dict[str, Any]] = [
        {"do": "capture", "model": model, "buckets": BUCKETS[SMALL], "rate": UNTHROTTLED, "slow": settings.slow,
         "out": str(settings.out / model), "steps": CAPTURED_STEPS}
        for model in settings.models
    ]  # fmt: skip
    actions.extend(
        {"do": "probe", "model": model, "rate": rate, "hook": hook, "out": str(settings.table(model, rate, hook)),
         "dtypes": ["float32"], "sizes": PROBE_SIZES.get(rate, PROBE_SIZES_ELSE), "repeats": 5}
        for rate, model, hook in product(settings.rates, settings.models, settings.hooks)
    )  # fmt: skip
    return actions


def running_actions(
    predictions: list[dict[str, Any]], learnt: list[dict[str, Any]], settings: Settings
) -> list[dict[str, Any]]:
    """What the second launch does: every predicted configuration, with the machine as fast as it was when captured."""
    sentinels = {row["model"]: row["sentinel_ms"] for row in learnt}
    return [
        {"do": "measure", "model": row["model"], "name": row["buckets"], "buckets": row["told"], "rate": row["rate"],
         "hook": row["hook"], "slow": settings.slow, "steps": STEPS.get(row["rate"], 8),
         "sentinel_ms": sentinels[row["model"]]}
        for row in predictions
    ]  # fmt: skip


def predict_all(settings: Settings) -> list[dict[str, Any]]:
    """Predicted iteration times of all configurations, and of the plan that is found for each model, rate and hook."""
    rows: list[dict[str, Any]] = []
    for model in settings.models:
        graph = ms.build(ms.load(*sorted((settings.out / model).glob("*.capture.json"))))
        for rate, hook in product(settings.rates, settings.hooks):
            cell = {"model": model, "rate": rate, "hook": hook}
            context = Context(replay=replay, communication=MeasuredCurve.load(settings.table(model, rate, hook)))
            rows += [{**cell, **row} for row in predict_named(graph, context)]
            rows.append({**cell, **find_plan(graph, context, settings.out / f"plan-{model}-{rate}-{hook}.json")})
            print(
                f"  {model} at {rate}, {hook}: found {rows[-1]['bucket_count']} buckets in "
                f"{rows[-1]['search_s']:.1f} CPU s",
                file=sys.stderr,
            )
    return rows


def predict_named(graph: Graph, context: Context) -> list[dict[str, Any]]:
    """Predicted iteration times of the named configurations that differ."""
    backwards = find_backwards(graph)
    order, sizes = ready_order(backwards), backwards[0].sizes()
    in_order = [sizes[parameter] for parameter in order]
    names = [graph.names[parameter] for parameter in order]
    rows: list[dict[str, Any]] = []
    for name in distinct(in_order):
        cut = cut_of(name, in_order)
        buckets = [names[begin:end] for begin, end in zip((0, *cut[:-1]), cut, strict=True)]
        rows.append(
            {"buckets": name, "told": BUCKETS[name], "predicted_ms": predict(graph, buckets, context),
             "bucket_count": len(buckets)}
        )  # fmt: skip
    return rows


def find_plan(graph: Graph, context: Context, path: Path) -> dict[str, Any]:
    """Search for a bucket plan, and write it to `path`."""
    began = time.process_time()
    decision = TensorFusion()(graph, context).decisions[0]
    ms.Plan(model=path.stem, cluster="testbed", decisions=(decision,)).save(path)
    return {
        "buckets": "found", "told": str(path), "predicted_ms": decision.payload["search"]["iteration_ns"] / 1e6,
        "bucket_count": len(decision.payload["buckets"]), "search_s": time.process_time() - began,
    }  # fmt: skip


def predict(graph: Graph, buckets: list[list[str]], context: Context) -> float:
    """Predicted iteration time in ms with these buckets."""
    made = TensorFusion(buckets)(graph, context)
    return iteration_ns(replay(made.graph, ORDER)) / 1e6


def compare(predictions: list[dict[str, Any]], runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The predictions with what was measured beside them."""
    measured = {(run["model"], run["rate"], run["hook"], run["name"]): run for run in runs}
    rows: list[dict[str, Any]] = []
    for row in predictions:
        run = measured.get((row["model"], row["rate"], row["hook"], row["buckets"]))
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
        f"{'model':6} {'rate':8} {'hook':6} {'buckets':16} {'n':>3} {'formed':>6} {'predicted':>10} {'measured':>9} "
        f"{'error':>7} {'spread':>7} {'moved':>6}"
    )
    for row in rows:
        print(
            f"{row['model']:6} {row['rate']:8} {row['hook']:6} {row['buckets']:16} "
            f"{row['bucket_count']:3} {row['formed']:6} "
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
    gains: dict[str, str] = {}
    regrets: list[float] = []
    small: list[float] = []
    for cell in dict.fromkeys(map(_cell, rows)):
        cells = [row for row in rows if _cell(row) == cell]
        by_name = {row["buckets"]: row for row in cells}
        best = min(row["measured_ms"] for row in cells)
        if "found" in by_name and "default" in by_name:
            found, default = by_name["found"], by_name["default"]
            gains["{} at {}, {}".format(*cell)] = (
                f"measured {default['measured_ms'] / found['measured_ms']:.2f}x, "
                f"predicted {default['predicted_ms'] / found['predicted_ms']:.2f}x"
            )
            regrets.append(100 * (found["measured_ms"] / best - 1))
            if "1 MiB" in by_name:
                small.append(100 * (found["measured_ms"] / by_name["1 MiB"]["measured_ms"] - 1))
    steady = [row for row in rows if abs(row["moved_pct"]) <= 100 * STEADY]
    right, pairs = _order(rows)
    return {
        "error, median / 90th / worst (%)": _spread(rows),
        f"the same of {len(steady)} of {len(rows)} cells whose sentinel stayed within {STEADY:.0%}": _spread(steady),
        **{
            f"the same at {rate}": _spread([row for row in steady if row["rate"] == rate])
            for rate in dict.fromkeys(row["rate"] for row in steady)
        },
        **{
            f"the same, {hook}": _spread([row for row in steady if row["hook"] == hook])
            for hook in dict.fromkeys(row["hook"] for row in steady)
        },
        "pairs in the right order": f"{right} of {pairs}",
        "found plan over DDP's default": gains,
        "regret of the found plan, worst (%)": round(max(regrets, default=0.0), 2),
        "found plan against 1 MiB buckets (%)": [round(value, 2) for value in small],
    }


def _order(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Of the pairs of one model and rate that differ noticeably, how many were told in the right order."""
    right = pairs = 0
    for one, other in combinations(rows, 2):
        apart = abs(one["measured_ms"] / other["measured_ms"] - 1) > NOTICEABLE
        if apart and _cell(one)[:2] == _cell(other)[:2]:
            pairs += 1
            right += (one["measured_ms"] < other["measured_ms"]) == (one["predicted_ms"] < other["predicted_ms"])
    return right, pairs


def _cell(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["model"], row["rate"], row["hook"]


def _spread(rows: list[dict[str, Any]]) -> list[float]:
    """Median, 90th percentile and worst of the absolute errors, in per cent."""
    errors = sorted(abs(row["error_pct"]) for row in rows)
    if not errors:
        return []
    return [round(value, 2) for value in (median(errors), errors[int(0.9 * len(errors))], errors[-1])]


if __name__ == "__main__":
    main()
