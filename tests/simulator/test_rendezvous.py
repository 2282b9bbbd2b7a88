"""Collectives of several ranks: who waits for whom, and what cannot be matched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from event_tables import Row, trace_of

import makespan as ms
from makespan.graph import EdgeKind, Graph, OpKind
from makespan.simulator.build import build
from makespan.simulator.replay import replay
from makespan.trace import EventKind

CPU, COLLECTIVE = EventKind.CPU_OP, EventKind.COLLECTIVE
MET = "collectives in which ranks wait for each other"


def rank_rows(arrives: float, ends: float, name: str = "gloo:all_reduce", **attrs: int | str) -> list[Row]:
    """One rank that computes until shortly before it arrives."""
    return [
        Row(CPU, "start", "main", 0, 1),
        Row(CPU, "compute", "main", 1, arrives - 5),
        Row(CPU, f"c10d::{name.split(':')[-1]}_", "main", arrives - 4, 2),
        Row(COLLECTIVE, name, "worker", arrives, ends - arrives, attrs=attrs or None),
        Row(CPU, "after", "main", ends + 1, 10),
    ]


def built(*ranks: Sequence[Row]) -> Graph:
    graph = build(trace_of(*ranks))
    graph.verify()
    return graph


def ends(graph: Graph, factor: np.ndarray | None = None) -> list[int]:
    """When each rank's last op ends, in microseconds."""
    durations = None if factor is None else np.rint(graph.duration_ns * factor).astype(np.int64)
    schedule = replay(graph, durations=durations)
    after = [op for op in range(len(graph)) if graph.name_of(op) == "after"]
    return [int(schedule.end_ns[op]) // 1000 for op in sorted(after, key=lambda op: graph.rank[op])]


def test_waiting_is_parted_from_transfer() -> None:
    graph = built(rank_rows(50, 130), rank_rows(100, 130))
    transfers = graph.duration_ns[graph.kind == OpKind.COLLECTIVE]
    assert transfers.tolist() == [30_000, 30_000]
    assert graph.notes[MET] == 1
    np.testing.assert_array_equal(replay(graph).start_ns, graph.attrs["measured_start_ns"])


def test_the_last_to_come_decides_for_all() -> None:
    graph = built(rank_rows(50, 130), rank_rows(100, 130))
    compute = np.array([graph.name_of(op) == "compute" for op in range(len(graph))])
    assert ends(graph) == [141, 141]
    early, late = (np.where(compute & (graph.rank == rank), 0.5, 1.0) for rank in (0, 1))
    assert ends(graph, early) == [141, 141]
    # Rank 1 now comes 47.5 us earlier, after rank 0.
    assert ends(graph, late) == [93, 93]


def test_both_orders_agree_and_a_critical_path_crosses_ranks() -> None:
    graph = built(rank_rows(50, 130), rank_rows(100, 130))
    schedule = ms.replay(graph)
    assert ms.replay(graph, "ready").makespan_ns == schedule.makespan_ns
    assert set(schedule.critical_path().by_rank()["rank"]) >= {1}
    assert np.count_nonzero(graph.edge_kind == EdgeKind.COLLECTIVE) == 4


def test_sequence_numbers_match_whatever_the_order_in_time() -> None:
    def two(first: int, second: int) -> list[Row]:
        rows = rank_rows(50, 130, "all_reduce", group_name="0", group_sequence=first)
        again = Row(COLLECTIVE, "all_reduce", "other", 60, 72, attrs={"group_name": "0", "group_sequence": second})
        return [*rows, again]

    graph = built(two(1, 2), two(2, 1))
    assert graph.notes[MET] == 2
    # Matched by number, the transfer of each begins when the later of the two spans did.
    assert sorted(graph.duration_ns[graph.kind == OpKind.COLLECTIVE].tolist()) == [70_000, 70_000, 72_000, 72_000]


def test_ranks_that_recorded_different_numbers_are_counted_and_left_alone() -> None:
    more = [*rank_rows(50, 130), Row(COLLECTIVE, "gloo:all_reduce", "worker", 200, 5)]
    graph = built(more, rank_rows(100, 130))
    assert MET not in graph.notes
    assert graph.notes["collectives whose ranks recorded different numbers of them"] == 3


def test_a_collective_that_ended_before_all_had_come_is_counted_and_left_alone() -> None:
    graph = built(rank_rows(50, 60), rank_rows(100, 130))
    assert graph.notes["collectives that a rank ended before the last one came"] == 1
    assert sorted(graph.duration_ns[graph.kind == OpKind.COLLECTIVE].tolist()) == [10_000, 30_000]


def test_a_broadcast_does_not_make_its_root_wait() -> None:
    graph = built(rank_rows(50, 130, "gloo:broadcast"), rank_rows(100, 130, "gloo:broadcast"))
    assert MET not in graph.notes


@pytest.mark.parametrize("name", ["ddp_gloo_2ranks", "ddp_gloo_2ranks_straggler"])
def test_real_ranks_replay_exactly_together(name: str) -> None:
    graph = ms.build(ms.load(ms.bundled_trace(name)))
    assert graph.notes[MET] > 10
    schedule = ms.replay(graph)
    np.testing.assert_array_equal(schedule.start_ns, graph.attrs["measured_start_ns"])
    assert schedule.steps()["error_pct"].abs().max() < 1e-9


def test_a_faster_straggler_makes_the_other_rank_faster() -> None:
    graph = ms.build(ms.load(ms.bundled_trace("ddp_gloo_2ranks_straggler")))
    steps = ms.whatif(graph, remove=["rank:1,under:extra work"]).steps()
    assert (steps[steps["rank"] == 0]["change_pct"] < 0).mean() > 0.8
