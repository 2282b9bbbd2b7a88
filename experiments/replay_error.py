"""Replay error of recorded steps, and how much of it is understanding: residual waits replaced by usual lags.

The first figure is true by construction in part, since the replay is given the measured durations; the second is not.
Prints one row for each public trace with profiler steps, then the summary rows.
"""

from __future__ import annotations

from statistics import median

import numpy as np
from shared_traces import Row, print_rows, real_traces

import makespan as ms
from makespan.errors import MakespanError
from makespan.graph import Graph, StreamKind
from makespan.simulator.evidence import with_usual_lags

MIN_KERNELS = 50


def step_errors_pct(graph: Graph) -> list[float]:
    """Signed error of each step in per cent."""
    return ms.replay(graph).steps()["error_pct"].dropna().tolist()


def main() -> None:
    """Measure every trace with steps under the shared folder."""
    rows: list[Row] = []
    errors: list[float] = []
    understood: dict[str, float] = {}
    for path in real_traces("*/*.json.gz"):
        try:
            trace = ms.load(path)
            graph = ms.build(trace)
        except MakespanError as error:
            rows.append(Row(f"{path.parent.name}/{path.name[:44]}", "", "no times to replay", "", str(error)[-60:]))
            continue
        marked = [step for step in graph.steps if step.name.startswith("ProfilerStep")]
        if not marked:
            continue
        exact = step_errors_pct(graph)
        usual = step_errors_pct(with_usual_lags(graph))
        errors.extend(exact)
        kernels = int(np.count_nonzero(graph.on_streams(StreamKind.DEVICE)))
        if kernels >= MIN_KERNELS:
            understood[path.name] = max(map(abs, usual))
        rows.append(
            Row(
                f"{path.parent.name}/{path.name[:44]}",
                "",
                f"{len(exact)} steps, {kernels} device ops",
                f"worst {max(map(abs, exact)):.4f} %; usual lags {max(map(abs, usual)):.3f} %",
                "recorded order",
            )
        )
    held = sum(error <= 0.3 for error in understood.values())
    sizes = [abs(error) for error in errors]
    rows += [
        Row("median |error| of a step, %", "<= 0.1", median(sizes), f"{len(sizes)} steps", "recorded order"),
        Row("worst |error| of a step, %", "<= 0.3", max(sizes), "", "recorded order"),
        Row(
            "traces within 0.3 % with usual lags for residual waits",
            ">= 11 of 12",
            f"{held} of {len(understood)}",
            f"median of worst steps {median(understood.values()):.3f} %",
            "recorded order",
        ),
    ]
    print_rows(rows)


if __name__ == "__main__":
    main()
