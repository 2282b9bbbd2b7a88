"""Waiting against transfer, on ranks written by hand whose every microsecond is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from event_tables import Row, trace_of
from hypothesis import given
from hypothesis import strategies as st

import makespan as ms
from makespan.graph import COMMUNICATION, Graph
from makespan.simulator.analysis.waiting import waiting
from makespan.simulator.build import build
from makespan.simulator.replay import replay
from makespan.trace import EventKind

COLUMNS = ["rank", "count", "total_ns", "waiting_ns", "transfer_ns", "unmatched_count", "unmatched_ns"]


class Span(NamedTuple):
    """A rank's part in a communication, from when it came to when it was done, in microseconds."""

    came: int
    done: int
    name: str = "gloo:all_reduce"
    kind: EventKind = EventKind.COLLECTIVE
    attrs: dict[str, int | str] = {}  # noqa: RUF012 - never changed


def rank_rows(*spans: Span) -> list[Row]:
    """A rank whose main thread hands each span to a worker as it begins, and goes on once all are done."""
    rows = [Row(EventKind.CPU_OP, "begin", "main", 0, 1)]
    for span in spans:
        rows.append(Row(EventKind.CPU_OP, f"enqueue {span.name}", "main", span.came - 3, 2))
        rows.append(Row(span.kind, span.name, "worker", span.came, span.done - span.came, attrs=span.attrs or None))
    rows.append(Row(EventKind.CPU_OP, "after", "main", max([span.done for span in spans], default=1) + 1, 10))
    return rows


def built(*ranks: Sequence[Span]) -> Graph:
    graph = build(trace_of(*(rank_rows(*spans) for spans in ranks)))
    graph.verify()
    return graph


def told(*ranks: Sequence[Span]) -> dict[int, tuple[int, ...]]:
    """Of each rank the columns after `rank`, times in microseconds."""
    table = waiting(replay(built(*ranks)))
    assert list(table.columns) == COLUMNS
    return {row.rank: tuple(row[2:]) for row in in_us(table).itertuples()}


def in_us(table: pd.DataFrame) -> pd.DataFrame:
    times = [name for name in COLUMNS if name.endswith("_ns")]
    assert not np.any(table[times] % 1000)
    return table.assign(**{name: table[name] // 1000 for name in times})


def test_who_comes_first_waits_for_who_comes_last() -> None:
    assert told([Span(50, 130)], [Span(100, 130)]) == {0: (1, 80, 50, 30, 0, 0), 1: (1, 30, 0, 30, 0, 0)}


def test_three_ranks_and_two_collectives_add_up_on_each() -> None:
    found = told(
        [Span(50, 130), Span(200, 260)],
        [Span(100, 131), Span(240, 260)],
        [Span(70, 130), Span(230, 262)],
    )
    # The last comes at 100, then at 240.
    assert found == {0: (2, 140, 90, 50, 0, 0), 1: (2, 51, 0, 51, 0, 0), 2: (2, 92, 40, 52, 0, 0)}


def test_a_rank_that_never_communicates_has_no_row() -> None:
    found = told([Span(50, 130)], [Span(100, 130)], [])
    assert found == {0: (1, 80, 50, 30, 0, 0), 1: (1, 30, 0, 30, 0, 0)}


def test_nothing_communicates_no_rows() -> None:
    table = waiting(replay(built([], [])))
    assert list(table.columns) == COLUMNS
    assert len(table) == 0


def test_one_rank_alone_can_tell_nothing_apart() -> None:
    assert told([Span(50, 130), Span(200, 210)]) == {0: (0, 0, 0, 0, 2, 90)}


def test_what_nobody_else_recorded_is_unmatched() -> None:
    """Rank 1 recorded one all-reduce more, so none of them is matched; their broadcasts are."""
    broadcasts = [
        Span(300, 350, "gloo:broadcast", attrs={"root": 1}),
        Span(320, 350, "gloo:broadcast", attrs={"root": 1}),
    ]
    found = told([Span(50, 130), broadcasts[0]], [Span(100, 130), Span(200, 215), broadcasts[1]])
    assert found == {0: (1, 50, 20, 30, 1, 80), 1: (1, 30, 0, 30, 2, 45)}


def test_a_collective_left_before_all_had_come_is_unmatched() -> None:
    assert told([Span(50, 60)], [Span(100, 130)]) == {0: (0, 0, 0, 0, 1, 10), 1: (0, 0, 0, 0, 1, 30)}


def test_in_a_broadcast_the_root_waits_for_nobody() -> None:
    late, early = (
        Span(100, 130, "gloo:broadcast", attrs={"root": 1}),
        Span(50, 130, "gloo:broadcast", attrs={"root": 1}),
    )
    assert told([early], [late]) == {0: (1, 80, 50, 30, 0, 0), 1: (1, 30, 0, 30, 0, 0)}
    # The root comes first: whoever comes later finds the data there, and the root's own time is all transfer.
    assert told([late], [early]) == {0: (1, 30, 0, 30, 0, 0), 1: (1, 80, 0, 80, 0, 0)}


def test_in_a_reduce_the_root_alone_waits() -> None:
    early, late = (Span(came, 130, "gloo:reduce", attrs={"root": 0}) for came in (50, 100))
    assert told([early], [late]) == {0: (1, 80, 50, 30, 0, 0), 1: (1, 30, 0, 30, 0, 0)}
    assert told([late], [early]) == {0: (1, 30, 0, 30, 0, 0), 1: (1, 80, 0, 80, 0, 0)}


def test_a_receiver_waits_for_its_sender() -> None:
    receive = Span(50, 130, "recv", EventKind.RECV, {"peer": 1, "bytes": 8})
    send = Span(100, 130, "send", EventKind.SEND, {"peer": 0, "bytes": 8})
    assert told([receive], [send]) == {0: (1, 80, 50, 30, 0, 0), 1: (1, 30, 0, 30, 0, 0)}


def test_subgroups_wait_among_themselves() -> None:
    groups = ({"group_name": "left", "group_ranks": "[0, 1]"}, {"group_name": "right", "group_ranks": "[2, 3]"})
    came = (50, 100, 70, 60)
    found = told(*([Span(at, 130, "all_reduce", attrs=dict(groups[rank // 2]))] for rank, at in enumerate(came)))
    waited = {rank: row[2] for rank, row in found.items()}
    assert waited == {0: 50, 1: 0, 2: 0, 3: 10}
    assert {row[3] for row in found.values()} == {30, 60}


def test_a_faster_rank_waits_longer_and_transfers_take_what_they_took() -> None:
    graph = built([Span(50, 130)], [Span(100, 130)])
    begins = np.array([graph.name_of(op) == "enqueue gloo:all_reduce" for op in range(len(graph))]) & (graph.rank == 1)
    # Rank 1 enqueues 40 us later: rank 0 waits so much longer.
    slower = replay(graph, durations=graph.duration_ns + np.where(begins, 40_000, 0))
    table = in_us(waiting(slower))
    assert table["waiting_ns"].tolist() == [90, 0]
    assert table["transfer_ns"].tolist() == [30, 30]


came = st.lists(st.integers(10, 50), min_size=2, max_size=4)


@given(st.lists(st.tuples(came, st.integers(0, 30)), min_size=1, max_size=4), st.integers(2, 4))
def test_waiting_and_transfer_are_all_the_time_there_is(rounds: list[tuple[list[int], int]], ranks: int) -> None:
    spans: list[list[Span]] = [[] for _ in range(ranks)]
    last: list[int] = []
    at = 0
    for arrivals, transfer in rounds:
        moments = [at + 10 + arrivals[rank % len(arrivals)] for rank in range(ranks)]
        last.append(max(moments))
        at = max(moments) + transfer
        for rank, moment in enumerate(moments):
            spans[rank].append(Span(moment, at))
    table = in_us(waiting(ms.replay(built(*spans))))
    assert (table["total_ns"] == table["waiting_ns"] + table["transfer_ns"]).all()
    assert table["total_ns"].tolist() == [sum(span.done - span.came for span in mine) for mine in spans]
    assert table["waiting_ns"].tolist() == [
        sum(latest - span.came for latest, span in zip(last, mine, strict=True)) for mine in spans
    ]
    assert (table["count"] == len(rounds)).all()


def test_real_ranks_wait_as_much_as_their_spans_are_longer_than_transfers() -> None:
    schedule = ms.replay(ms.build(ms.load(ms.bundled_trace("ddp_gloo_2ranks_straggler"))))
    table = schedule.waiting().set_index("rank")
    assert (table["total_ns"] == table["waiting_ns"] + table["transfer_ns"]).all()
    # Rank 1 has the extra work, so rank 0 waits.
    assert table["waiting_ns"][0] > 3 * table["waiting_ns"][1]
    recorded = np.isin(schedule.graph.kind, COMMUNICATION)
    for rank in (0, 1):
        spent = schedule.graph.duration_ns[recorded & (schedule.graph.rank == rank)].sum()
        assert spent == table["transfer_ns"][rank] + table["unmatched_ns"][rank]
