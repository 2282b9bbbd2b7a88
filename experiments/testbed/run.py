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
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cells import BUCKETS, CAPTURED_STEPS, PROBE_SIZES, PROBE_SIZES_ELSE, SMALL, STEPS, cut_of, distinct
from comparison import compare, report
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


if __name__ == "__main__":
    main()
