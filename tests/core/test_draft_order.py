"""Draft order against the plainest model there is: a Python list."""

from hypothesis import given
from hypothesis import strategies as st

from makespan.draft_order import DraftOrder

MOVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=20)


@given(moves=MOVES, further=st.integers(0, 3))
def test_single_moves_are_list_moves_while_anchors_stay(moves: list[tuple[int, int, bool]], further: int) -> None:
    """Ops below 5 move, ops from 5 on are the anchors; each op moves at most once."""
    order = DraftOrder(10)
    beside: dict[tuple[int, bool], list[int]] = {}
    moved: set[int] = set()
    for op, anchor, after in moves:
        op, anchor = op % 5, 5 + anchor % 5
        if op in moved:
            continue
        moved.add(op)
        order.place(op, after=anchor if after else None, before=None if after else anchor)
        beside.setdefault((anchor, after), []).append(op)
    wanted: list[int] = []
    for op in range(10 + further):
        if op not in moved:
            wanted += [*beside.get((op, False), []), op, *beside.get((op, True), [])]
    position = order.positions(10 + further)
    assert sorted(range(10 + further), key=lambda op: position[op]) == wanted


@given(moves=MOVES)
def test_any_moves_give_a_permutation_with_the_last_move_in_force(moves: list[tuple[int, int, bool]]) -> None:
    order = DraftOrder(10)
    for op, anchor, after in moves:
        try:
            order.place(op, after=anchor if after else None, before=None if after else anchor)
        except Exception as error:
            assert "placed beside" in str(error)
            continue
        position = order.positions(10)
        assert sorted(position) == list(range(10))
        assert (position[op] > position[anchor]) == after
