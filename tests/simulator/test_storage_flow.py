from hypothesis import given
from hypothesis import strategies as st

from makespan.simulator.reading.storage_flow import storage_dependencies


def pairs(numbers, parents, reads, writes) -> list[tuple[int, int]]:
    source, target = storage_dependencies(numbers, parents, reads, writes)
    return list(zip(source.tolist(), target.tolist(), strict=True))


def test_the_innermost_writer_counts() -> None:
    # Row 0 calls row 1, which writes storage 5; row 0 claims it as its output as well. Row 2 reads it.
    assert pairs([1, 2, 3], [-1, 0, -1], [[], [], [5]], [[5], [5], []]) == [(1, 2)]


def test_an_op_that_hides_its_inside_is_the_writer_itself() -> None:
    assert pairs([1, 2, 3], [-1, 0, -1], [[], [], [5]], [[5], [], []]) == [(0, 2)]


def test_in_place_ops_read_what_stood_there_before() -> None:
    # 0 writes; 1 (with its inside, 2) reads and overwrites in place; 3 reads.
    assert pairs([1, 2, 3, 4], [-1, -1, 1, -1], [[], [5], [5], [5]], [[5], [5], [5], []]) == [
        (0, 1), (0, 2), (2, 3),
    ]  # fmt: skip


def test_rows_may_stand_in_another_order_than_their_events_began() -> None:
    assert pairs([30, 10, 20], [-1, -1, -1], [[7], [], [7]], [[], [7], [7]]) == [(2, 0), (1, 2)]


@st.composite
def ops(draw: st.DrawFn):
    count = draw(st.integers(1, 12))
    parents = [draw(st.integers(-1, row - 1)) for row in range(count)]
    storages = st.lists(st.integers(1, 4), max_size=2)
    return parents, [draw(storages) for _ in range(count)], [draw(storages) for _ in range(count)]


@given(ops())
def test_against_a_walk_event_by_event(tree) -> None:
    parents, reads, writes = tree
    count = len(parents)

    def inside(row: int) -> list[int]:
        return [each for each in range(count) if row in ancestors(each)]

    def ancestors(row: int) -> list[int]:
        return [] if parents[row] < 0 else [parents[row], *ancestors(parents[row])]

    last = [max([row, *inside(row)]) for row in range(count)]
    expected = set()
    for reader in range(count):
        for storage in reads[reader]:
            done = [w for w in range(count) if storage in writes[w] and last[w] < reader]
            if done:
                # Of the writers that are done, the one that began last is the latest or the innermost.
                expected.add((max(done), reader))
    assert set(pairs(list(range(count)), parents, reads, writes)) == expected
    assert all(source < target for source, target in expected)
