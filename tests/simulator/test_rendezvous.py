"""Collectives of several ranks: who waits for whom, and what cannot be matched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from event_tables import Row, trace_of

import makespan as ms
from makespan.errors import TraceError
from makespan.graph import COMMUNICATION, EdgeKind, Evidence, Graph, OpKind
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


def test_ranks_that_recorded_different_numbers_are_told_and_left_alone() -> None:
    more = [*rank_rows(50, 130), Row(COLLECTIVE, "gloo:all_reduce", "worker", 200, 5)]
    graph = built(more, rank_rows(100, 130))
    assert MET not in graph.notes
    (told,) = (reason for reason in graph.notes if "which one is extra" in reason)
    assert told.startswith("rank 1 recorded 1 collectives of no named group and rank 0 2")
    with pytest.raises(TraceError, match="record the same steps on every rank"):
        build(trace_of(more, rank_rows(100, 130)), strict=True)


def test_a_collective_that_ended_before_all_had_come_is_counted_and_left_alone() -> None:
    graph = built(rank_rows(50, 60), rank_rows(100, 130))
    assert graph.notes["collectives that a rank ended before the last one came"] == 1
    assert sorted(graph.duration_ns[graph.kind == OpKind.COLLECTIVE].tolist()) == [10_000, 30_000]


def rooted(name: str, **attrs: int | str) -> Graph:
    """Rank 0 takes part from 50 to 130 us, rank 1 from 100 to 130."""
    return built(rank_rows(50, 130, name, **attrs), rank_rows(100, 130, name, **attrs))


def transfers_us(graph: Graph) -> list[float]:
    """The length of each rank's communication, its waiting taken out."""
    ops = np.flatnonzero(np.isin(graph.kind, COMMUNICATION))
    return [graph.duration_ns[op] / 1000 for op in sorted(ops, key=lambda op: graph.rank[op])]


def compute_of(graph: Graph, rank: int) -> np.ndarray:
    """Factors that make the compute of `rank` three times as long, 100 us later."""
    compute = np.array([graph.name_of(op) == "compute" for op in range(len(graph))])
    return np.where(compute & (graph.rank == rank), 3.0, 1.0)


def test_a_broadcast_waits_for_its_root_alone() -> None:
    graph = rooted("gloo:broadcast", root=1)
    assert transfers_us(graph) == [30, 30]  # rank 0 waited for the root from 50 to 100
    assert ends(graph, compute_of(graph, 1)) == [331, 331]
    # The root doesn't wait for rank 0, which comes at 140 then: the data is there when it comes.
    assert ends(graph, compute_of(graph, 0)) == [181, 141]


def test_a_broadcast_without_recorded_root_gets_the_lowest_rank_that_fits() -> None:
    graph = rooted("gloo:broadcast")
    assert graph.notes["rooted collectives whose root was concluded from times"] == 1
    assert transfers_us(graph) == [80, 30]
    inferred = graph.evidence[graph.edge_kind == EdgeKind.COLLECTIVE] == Evidence.INFERRED
    assert inferred.all()
    early = built(rank_rows(50, 60, "gloo:broadcast"), rank_rows(55, 130, "gloo:broadcast"))
    assert transfers_us(early) == [10, 75]
    impossible = built(rank_rows(100, 130, "gloo:broadcast"), rank_rows(50, 60, "gloo:broadcast"))
    assert transfers_us(impossible) == [30, 10]  # rank 1 alone can have been the root, and rank 0 came after it


def test_the_root_of_a_reduce_waits_for_all_and_nobody_else_does() -> None:
    graph = rooted("gloo:reduce", root=0)
    assert transfers_us(graph) == [30, 30]
    assert ends(graph, compute_of(graph, 1)) == [331, 331]
    assert ends(graph, compute_of(graph, 0)) == [181, 141]


def test_a_receiver_waits_for_its_sender_and_not_the_other_way_round() -> None:
    def pair(kind: EventKind, arrives: float, ends: float, peer: int) -> list[Row]:
        row = Row(kind, kind.name.lower(), "worker", arrives, ends - arrives, attrs={"peer": peer, "bytes": 8})
        return [row if each.kind == COLLECTIVE else each for each in rank_rows(arrives, ends)]

    graph = built(pair(EventKind.RECV, 50, 130, 1), pair(EventKind.SEND, 100, 130, 0))
    assert graph.notes["sends that their receivers wait for"] == 1
    assert transfers_us(graph) == [30, 30]
    assert ends(graph, compute_of(graph, 1)) == [331, 331]
    assert ends(graph, compute_of(graph, 0))[1] == 141
    np.testing.assert_array_equal(replay(graph).start_ns, graph.attrs["measured_start_ns"])


def test_subgroups_meet_among_themselves() -> None:
    members = ({"group_name": "left", "group_ranks": "[0, 1]"}, {"group_name": "right", "group_ranks": "[2, 3]"})
    arrivals = (50, 100, 70, 60)
    graph = built(*(rank_rows(at, 130, "all_reduce", **members[rank // 2]) for rank, at in enumerate(arrivals)))
    assert graph.notes[MET] == 2
    assert transfers_us(graph) == [30, 30, 60, 60]


def test_ops_of_one_collective_share_a_group() -> None:
    graph = built(rank_rows(50, 130), rank_rows(100, 130))
    kinds = graph.kind[graph.group == 0]
    assert sorted(kinds.tolist()) == sorted([OpKind.MARK, OpKind.MARK, OpKind.BARRIER] + 2 * [OpKind.COLLECTIVE])


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
