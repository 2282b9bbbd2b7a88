"""Provenance as a relation: checked against plain sets of pairs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makespan.errors import GraphError
from makespan.provenance import Provenance, compose


@st.composite
def relations(draw: st.DrawFn, new_count: int | None = None, old_count: int | None = None) -> Provenance:
    new = draw(st.integers(0, 6)) if new_count is None else new_count
    old = draw(st.integers(0, 6)) if old_count is None else old_count
    pairs = (
        draw(st.lists(st.tuples(st.integers(0, new - 1), st.integers(0, old - 1)), max_size=12)) if new and old else []
    )
    return Provenance.from_pairs([n for n, _ in pairs], [o for _, o in pairs], new, old)


@st.composite
def chains(draw: st.DrawFn, length: int) -> list[Provenance]:
    counts = draw(st.lists(st.integers(0, 6), min_size=length + 1, max_size=length + 1))
    return [draw(relations(new, old)) for old, new in pairwise(counts)]


def as_set(provenance: Provenance) -> set[tuple[int, int]]:
    provenance.verify()
    new, old = provenance.pairs()
    return {(int(n), int(o)) for n, o in zip(new, old, strict=True)}


@given(chain=chains(2))
def test_then_is_composition_of_relations(chain: list[Provenance]) -> None:
    first, second = chain
    wanted = {(new, old) for new, middle in as_set(second) for other, old in as_set(first) if middle == other}
    composed = first.then(second)
    assert as_set(composed) == wanted
    assert (len(composed), composed.old_count) == (len(second), first.old_count)


@given(chain=chains(3))
def test_composition_is_associative(chain: list[Provenance]) -> None:
    first, second, third = chain
    assert as_set(first.then(second).then(third)) == as_set(first.then(second.then(third))) == as_set(compose(chain))


@given(relation=relations())
def test_identity_is_neutral_and_inverse_undoes_itself(relation: Provenance) -> None:
    before, after = Provenance.identity(relation.old_count), Provenance.identity(len(relation))
    assert before.is_identity()
    assert as_set(before.then(relation)) == as_set(relation) == as_set(relation.then(after))
    assert as_set(relation.inverse()) == {(old, new) for new, old in as_set(relation)}
    assert as_set(relation.inverse().inverse()) == as_set(relation)


@given(relation=relations())
def test_added_and_removed(relation: Provenance) -> None:
    pairs = as_set(relation)
    assert set(relation.added()) == set(range(len(relation))) - {new for new, _ in pairs}
    assert set(relation.removed()) == set(range(relation.old_count)) - {old for _, old in pairs}
    assert relation.is_identity() == (
        len(relation) == relation.old_count and pairs == {(op, op) for op in range(len(relation))}
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(GraphError, match="provenance of 3 ops can't be followed by one that starts from 2"):
        Provenance.identity(3).then(Provenance.identity(2))
    with pytest.raises(GraphError, match="at least one"):
        compose([])
    with pytest.raises(GraphError, match="old op outside the 2"):
        Provenance.from_pairs([0], [5], 1, 2)


@pytest.mark.parametrize(
    ("pointer", "old", "told"),
    [
        ([0, 1], [0, 1], "doesn't cut 2 old ops"),
        ([0, 2, 1, 2], [0, 1], "doesn't cut"),
        ([], [], "doesn't cut"),
        ([0, 1], [4], "outside the 3"),
        ([0, 2], [1, 1], "ascending and distinct"),
        ([0, 1, 3], [0, 2, 1], "ascending and distinct"),
    ],
)
def test_verify_names_what_is_broken(pointer: list[int], old: list[int], told: str) -> None:
    broken = Provenance(np.array(pointer, np.int64), np.array(old, np.int32), 3)
    with pytest.raises(GraphError, match=told):
        broken.verify()
