"""Trace: columns that can't be changed by accident, sparse attributes, and honest counting of what was skipped."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makespan.errors import TraceError
from makespan.trace import Diagnostics, EventTable, NameTable, RankTrace, SparseColumn, Trace


def table(count: int, **columns: Any) -> EventTable:
    given: dict[str, Any] = {
        "start_ns": np.arange(count, dtype=np.int64), "duration_ns": np.full(count, 3, np.int64),
        "kind": np.zeros(count, np.uint8), "name": np.zeros(count, np.int32), "lane": np.zeros(count, np.int32),
        "correlation": np.full(count, -1, np.int64), "external_id": np.full(count, -1, np.int64),
    }  # fmt: skip
    return EventTable(**(given | columns), names=("op",), lanes=())


def rank_trace(rank: int, source: str, diagnostics: Diagnostics | None = None) -> RankTrace:
    return RankTrace(rank, source, "plain", table(2), diagnostics or Diagnostics())


@given(values=st.dictionaries(st.integers(0, 19), st.integers(0, 99)))
def test_a_sparse_column_is_a_dense_one_with_holes(values: dict[int, int]) -> None:
    rows = np.array(sorted(values), np.int32)
    column = SparseColumn(rows, np.array([values[row] for row in sorted(values)], np.int64))
    dense = column.dense(20)
    for row in range(20):
        assert column.get(row) == values.get(row)
        assert dense[row] == values.get(row, -1)


def test_text_in_a_sparse_column_comes_from_its_table() -> None:
    column = SparseColumn(np.array([4], np.int32), np.array([1], np.int32), ("a", "b"))
    assert (column.get(4), column.get(5)) == ("b", None)
    assert list(column.dense(6)) == [-1, -1, -1, -1, 1, -1]


def test_columns_are_read_only_and_of_one_length() -> None:
    events = table(3)
    assert len(events) == 3
    assert list(events.end_ns) == [3, 4, 5]
    assert events.name_of(2) == "op"
    for column in (events.start_ns, events.kind, events.flow_source):
        with pytest.raises(ValueError, match="read-only"):
            column[:1] = 0
        assert not column.flags.writeable
    with pytest.raises(ValueError, match="differ in length"):
        table(3, kind=np.zeros(2, np.uint8))


def test_each_rank_comes_once() -> None:
    trace = Trace((rank_trace(0, "a.json"), rank_trace(1, "b.json")))
    assert (len(trace), [part.rank for part in trace]) == (4, [0, 1])
    with pytest.raises(TraceError, match=r"rank 1 is claimed by two files, b.json and c.json; name the files"):
        Trace((rank_trace(1, "b.json"), rank_trace(1, "c.json")))


@given(added=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "p", "q", "r", "s"]), st.integers(0, 3))))
def test_diagnostics_count_everything_and_keep_the_first_places(added: list[tuple[str, str, int]]) -> None:
    whole, first, second = Diagnostics(), Diagnostics(), Diagnostics()
    for number, (reason, place, count) in enumerate(added):
        whole.add(reason, place, count)
        (first if number < len(added) // 2 else second).add(reason, place, count)
    first.merge(second)
    assert first.counts == whole.counts
    assert first.places == whole.places
    assert bool(whole) == any(count for _, _, count in added)
    for reason in "abc":
        assert whole.counts.get(reason, 0) == sum(count for told, _, count in added if told == reason)
        places = [place for told, place, count in added if told == reason and place and count]
        assert whole.places.get(reason, []) == places[:3]


def test_strict_reading_raises_the_first_reason() -> None:
    diagnostics = Diagnostics()
    diagnostics.raise_if_any("a.json")
    diagnostics.add("timestamp far in the future", "a.json:event 17", 2)
    diagnostics.add("bad escape")
    with pytest.raises(
        TraceError, match=r"a.json: timestamp far in the future, 2 time\(s\) \(first at a.json:event 17\)"
    ):
        diagnostics.raise_if_any("a.json")


def test_a_trace_tells_the_diagnostics_of_all_ranks() -> None:
    one, other = Diagnostics(), Diagnostics()
    one.add("x", "p")
    other.add("x", "q", 2)
    merged = Trace((rank_trace(0, "a", one), rank_trace(1, "b", other))).diagnostics
    assert (merged.counts, merged.places) == ({"x": 3}, {"x": ["p", "q"]})
    assert one.counts == {"x": 1}


@given(names=st.lists(st.text(max_size=3)))
def test_names_are_interned_in_order_of_appearance(names: list[str]) -> None:
    interned = NameTable()
    codes = [interned.code(name) for name in names]
    assert [interned.names()[code] for code in codes] == names
    assert list(interned.names()) == list(dict.fromkeys(names))
    assert NameTable(interned.names()).names() == interned.names()
