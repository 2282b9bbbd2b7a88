"""Comparison: predicted iteration times beside measured ones, and what they come to."""

from __future__ import annotations

import json
from itertools import combinations
from statistics import median
from typing import Any

from cells import STEADY

NOTICEABLE = 0.03
"""Configurations whose measured times differ by less are not expected to be told apart."""


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
