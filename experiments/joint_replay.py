"""Joint replay: all ranks of a job on one clock, in one graph; waiting parted from transfer on each rank.

For each rank: the recorded and the replayed steps, how long it waited for others in its collectives, and how long the
transfers took. Two ways to know a transfer are held against each other. One puts all ranks on one clock and counts
from the moment at which the last came; the other needs no clocks: whoever came last waited for nobody, so the shortest
of a collective's spans over all ranks is transfer alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared_traces import REAL, Row, print_rows

import makespan as ms
from makespan.simulator.alignment.collectives import Meets
from makespan.simulator.alignment.matching import match_collectives
from makespan.trace import Trace
from makespan.units import NS_PER_MS

DLRM = "param/et_replay__tests__inputs__dlrm_kineto.tar.gz"
ERROR_ASKED = "<= 0.1"
TRANSFER_ASKED = "within 5 %"


@dataclass(frozen=True, slots=True)
class RankResult:
    """One rank: worst step error in per cent, ns waited and transferred, and ns of transfer by the shortest spans."""

    rank: int
    error_pct: float
    waiting_ns: int
    transfer_ns: int
    shortest_ns: int

    @property
    def transfer_error_pct(self) -> float:
        """Transfer by aligned spans against that by the shortest spans."""
        return 100 * (self.transfer_ns / self.shortest_ns - 1)


def joint_replay(trace: Trace) -> list[RankResult]:
    """The ranks of `trace`, aligned, joined and replayed in recorded order."""
    schedule = ms.replay(ms.build(trace, align=True))
    errors = schedule.steps().groupby("rank")["error_pct"].apply(lambda errors: errors.abs().max())
    shortest = shortest_spans_ns(trace)
    return [
        RankResult(row.rank, float(errors[row.rank]), row.waiting_ns, row.transfer_ns, shortest[row.rank])
        for row in schedule.waiting().itertuples()
    ]


def shortest_spans_ns(trace: Trace) -> dict[int, int]:
    """For each rank, the shortest spans of the collectives of all that it took part in, added up; no clock needed."""
    ranks = list(trace)
    total = dict.fromkeys((part.rank for part in ranks), 0)
    for meeting in match_collectives(ranks).meetings:
        if meeting.meets == Meets.ALL:
            shortest_ns = min(part.end_ns - part.start_ns for part in meeting.parts.values())
            for place in meeting.parts:
                total[ranks[place].rank] += shortest_ns
    return total


def traces() -> Iterator[tuple[str, Path]]:
    """What there is of many ranks."""
    if (REAL / DLRM).is_file():
        yield "DLRM, 8 GPUs", REAL / DLRM
    else:
        print(f"{DLRM}: not found under shared/traces/real beside the checkout, left out")
    for name in ("ddp_gloo_2ranks", "ddp_gloo_2ranks_straggler"):
        yield name, ms.bundled_trace(name)


def main() -> None:
    """Print two rows for each rank of each trace."""
    rows: list[Row] = []
    for name, path in traces():
        trace = ms.load(path)
        spread_us = ms.align(trace).spread_ns / 1000
        for found in joint_replay(trace):
            which = f"{name}, rank {found.rank}"
            apart = f"waiting {found.waiting_ns / NS_PER_MS:.3f} ms, transfer {found.transfer_ns / NS_PER_MS:.3f} ms"
            rows.append(Row(f"{which}: worst |error| of a step, %", ERROR_ASKED, found.error_pct, "", apart))
            shortest = f"shortest over ranks {found.shortest_ns / NS_PER_MS:.3f} ms; ends within {spread_us:.3g} us"
            error = f"{found.transfer_error_pct:+.1f} %"
            rows.append(Row(f"{which}: transfer, ms", TRANSFER_ASKED, found.transfer_ns / NS_PER_MS, error, shortest))
    print_rows(rows)


if __name__ == "__main__":
    main()
