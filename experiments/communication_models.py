"""Communication models on others' measurements: fitted on half of the sizes, held against the other half.

Data: NCCL collectives on four kinds of GPU (AIConfigurator: `llm_ops/collectives.parquet`) and all-reduces and sends on
five networks (Vidur: `llm_layers/network.parquet`), beside the checkout. Every second size is fitted and predicts those
between, then the other way round; so each measurement is predicted once from its neighbours, the smallest and
the largest from one side.

Rows of MeasuredCurve count what is off by more than 10 %: "jumps" lie between their fitted neighbours, but not where
the curve puts them (NCCL changes its protocol there: twice the bytes take twice the time of a moment ago, or less
than before, which a curve that never falls levels out); "noise" lies outside of both neighbours by itself.

AIConfigurator's column `message_size` counts elements, whatever is said of it: at equal numbers of *bytes* so
computed, float16 and int8 take the same time. It is NCCL's size: for an all-gather what each rank ends up with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from shared_traces import Row, print_rows

from makespan.cluster_file import load_cluster
from makespan.communication_table import CommunicationTable, Measured
from makespan.predictors.alpha_beta import AlphaBeta
from makespan.predictors.links import Links
from makespan.predictors.measured_curve import MeasuredCurve
from makespan.protocols import CommunicationModel

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
OPERATIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "alltoall": "alltoall",
    "send_recv": "send",
}
ASKED = "<= 10 asked"
FAR = 0.1
Fit = Callable[[CommunicationTable, str], CommunicationModel]


@dataclass(frozen=True, slots=True)
class Found:
    """Relative errors of all predictions, and how many of those beyond FAR are jumps; the rest is noise."""

    errors: list[float]
    jumps: int = 0

    def row(self, claim: str, how: str, *, causes: bool = False) -> Row:
        """Median error in per cent, and the worst."""
        sizes = [abs(error) for error in self.errors]
        far = sum(size > FAR for size in sizes)
        why = f": {self.jumps} jumps, {far - self.jumps} noise" if far and causes else ""
        told = f"worst {100 * max(self.errors, key=abs):+.0f} %, {far} of {len(sizes)} beyond 10 %{why}"
        return Row(f"{claim}, median |error|, %", ASKED, 100 * median(sizes), told, how)


def read(name: str) -> pd.DataFrame:
    """One of the public tables; exits with a sentence where it is not there."""
    path = DATA / name
    if not path.is_file():
        sys.exit(f"{path}: not found; put the public measurements under shared/data beside the checkout")
    return pd.read_parquet(path)


def nccl_tables() -> Iterator[tuple[str, CommunicationTable]]:
    """AIConfigurator's measurements, a table for each kind of GPU."""
    for device, rows in read("llm_ops/collectives.parquet").groupby("system", observed=True):
        measured: list[Measured] = []
        for row in rows.itertuples():
            dtype, width = {"half": ("float16", 2), "int8": ("int8", 1)}[row.nccl_dtype]
            size = row.message_size * width
            # What a rank puts in; NCCL's size of an all-gather is what it gets.
            size //= row.num_gpus if row.op_name == "all_gather" else 1
            times = [round(row.latency_ms * 1e6)]
            measured.append(Measured(OPERATIONS[row.op_name], row.num_gpus, dtype, size, times))
        yield str(device), CommunicationTable(network=str(device), measured=measured)


def vidur_tables() -> Iterator[tuple[str, CommunicationTable]]:
    """Vidur's measurements, a table for each network: hosts x GPUs used on each. A size measured twice counts once."""
    rows = read("llm_layers/network.parquet")
    times_ms = rows["time_stats.all_reduce.median"].fillna(rows["time_stats.send_recv.median"])
    rows = rows.assign(ns=(times_ms * 1e6).round().astype(int), hosts=rows.num_workers // rows.devices_per_node)
    for (topology, hosts, gpus), group in rows.groupby(["topology", "hosts", "devices_per_node"]):
        measured = [
            Measured(OPERATIONS[str(collective)], hosts * gpus, "float16", int(size), repeats.tolist())
            for (collective, size), repeats in group.groupby(["collective", "size"]).ns
        ]
        name = f"{topology} {hosts}x{gpus}"
        yield name, CommunicationTable(network=name, measured=measured)


def dtypes_of(table: CommunicationTable, operation: str) -> Iterator[tuple[str, dict[int, dict[int, Measured]]]]:
    """Each dtype, with its rows of an operation by number of ranks and size."""
    for dtype in sorted({entry.dtype for entry in table.measured}):
        rows: dict[int, dict[int, Measured]] = {}
        for entry in table.measured:
            if (entry.operation, entry.dtype) == (operation, dtype):
                rows.setdefault(entry.ranks, {})[entry.size_bytes] = entry
        yield dtype, {count: dict(sorted(by_size.items())) for count, by_size in rows.items()}


def held_out(table: CommunicationTable, operation: str, fit: Fit) -> Found:
    """Each half of the sizes of each number of ranks and dtype, predicted by a model of the other half."""
    errors: list[float] = []
    jumps = 0
    for dtype, rows in dtypes_of(table, operation):
        for half in (0, 1):
            seen = [entry for by_size in rows.values() for entry in list(by_size.values())[half::2]]
            model = fit(CommunicationTable(network=table.network, measured=seen), dtype)
            for count, by_size in rows.items():
                sizes = list(by_size)
                times = [median(entry.alone_ns) for entry in by_size.values()]
                unseen = range(1 - half, len(sizes), 2)
                asked = np.array([sizes[place] for place in unseen])
                for place, guess in zip(
                    unseen, model.transfer_ns(operation, asked, range(count), None).tolist(), strict=True
                ):
                    errors.append(guess / times[place] - 1)
                    around = times[max(place - 1, 0) : place] + times[place + 1 : place + 2]
                    jumps += abs(errors[-1]) > FAR and min(around) <= times[place] <= max(around)
    return Found(errors, jumps)


def more_ranks(table: CommunicationTable, operation: str, most: int) -> Found:
    """`most` ranks predicted by an AlphaBeta of fewer, over all sizes."""
    errors: list[float] = []
    for dtype, rows in dtypes_of(table, operation):
        fewer = [entry for count, by_size in rows.items() if count < most for entry in by_size.values()]
        model = AlphaBeta.fit(CommunicationTable(network=table.network, measured=fewer), dtype)
        guesses = model.transfer_ns(operation, np.array(list(rows[most])), range(most), None).tolist()
        errors += [
            guess / median(entry.alone_ns) - 1 for guess, entry in zip(guesses, rows[most].values(), strict=True)
        ]
    return Found(errors)


def bound_rows(table: CommunicationTable, device: str, cluster_name: str) -> Iterator[Row]:
    """The largest all-reduce against the cluster's data sheet: what links could do, which nothing may beat."""
    cluster = load_cluster(cluster_name)
    for count in (2, 4, 8):
        largest = max(
            (entry for entry in table.measured if (entry.operation, entry.ranks) == ("allreduce", count)),
            key=lambda entry: (entry.size_bytes, entry.dtype),
        )
        guess = Links().transfer_ns("allreduce", np.array([largest.size_bytes]), range(count), cluster)[0]
        yield Row(
            f"{device}: all-reduce of {largest.size_bytes >> 20} MiB, {count} GPUs, ms",
            f"measured {median(largest.alone_ns) / 1e6:.2f}",
            float(guess) / 1e6,
            f"{100 * (float(guess) / median(largest.alone_ns) - 1):+.0f} %",
            f"Links on {cluster_name}: data-sheet rates, a bound",
        )


def main() -> None:
    """Print one row for each device or network, collective and model; the last rows pool all."""
    rows: list[Row] = []
    nccl, vidur = list(nccl_tables()), list(vidur_tables())
    models: dict[str, Fit] = {"MeasuredCurve": MeasuredCurve, "AlphaBeta": AlphaBeta.fit}
    pooled: dict[str, list[float]] = {}
    for model, fit in models.items():
        for name, table in nccl + vidur:
            for operation in operations_of(table):
                found = held_out(table, operation, fit)
                pooled.setdefault(model, []).extend(found.errors)
                how = f"{model}; each half of the sizes from the other"
                rows.append(found.row(f"{name} {operation}: unseen sizes", how, causes=model == "MeasuredCurve"))
    for name, table in nccl:
        for operation in operations_of(table):
            rows.append(more_ranks(table, operation, 8).row(f"{name} {operation}: 8 GPUs from 2 and 4", "AlphaBeta"))
    for name, cluster in (("a100_sxm", "dgx-a100"), ("h100_sxm", "dgx-h100")):
        rows += bound_rows(dict(nccl)[name], name, cluster)
    rows += [Found(errors).row(f"{model}: all unseen sizes", "all of its rows") for model, errors in pooled.items()]
    print_rows(rows)


def operations_of(table: CommunicationTable) -> list[str]:
    """What was measured, in order."""
    return sorted({entry.operation for entry in table.measured})


if __name__ == "__main__":
    main()
