"""Contended order against a brute force in fractions, against ready order, by hand; its invariants and its errors."""

from fractions import Fraction

import numpy as np
import pytest
from brute_contention import ContendedRun
from brute_force import Standstill
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ALL_RELATIONS, START_RELATIONS, assemble_plain, graphs, random_graph

from makespan.edit import GraphEdit
from makespan.errors import GraphError
from makespan.graph import Edges, Graph, OpKind, Relation, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.orders.bounds import path_length_ns
from makespan.simulator.orders.contention import SLOWEST
from makespan.simulator.replay import replay

DEVICE, LINK, SHARED = StreamKind.DEVICE, StreamKind.LINK, StreamKind.SHARED


def random_case(seed: int, longest_ns: int = 8) -> Graph:
    random = np.random.default_rng(seed)
    shared = int(random.integers(0, 3))
    return random_graph(
        random,
        ops=int(random.integers(2, 35)),
        edges_per_op=float(random.uniform(0, 1.2)),
        streams=int(random.integers(3, 7)) + shared,
        shared_streams=shared,
        relations=ALL_RELATIONS if seed % 2 else START_RELATIONS,
        window=int(random.integers(1, 20)),
        longest_ns=longest_ns,
    )


def contending(graph: Graph, seed: int) -> Graph:
    """`graph` with random roles, a third of the ops each, and amounts of which some are round and some are not."""
    random = np.random.default_rng(seed)
    count = len(graph)
    stretch = np.where(random.random(count) < 0.5, random.choice([1, 1.5, 2, 4], count), random.uniform(1, 5, count))
    share_left = np.where(random.random(count) < 0.5, random.choice([0.25, 0.5, 1], count), random.random(count))
    return with_contention(graph, random.integers(0, 3, count), stretch, share_left)


def with_contention(graph: Graph, role: object, stretch: object = 1.0, share_left: object = 1.0) -> Graph:
    count = (len(graph),)
    return graph.with_attrs(
        contention=np.broadcast_to(np.asarray(role, np.int8), count).copy(),
        stretch=np.broadcast_to(np.asarray(stretch, np.float32), count).copy(),
        share_left=np.broadcast_to(np.asarray(share_left, np.float32), count).copy(),
    )


def side_by_side(works: list[int], delays: list[int], kinds: list[StreamKind], stream: list[int]) -> Graph:
    """Ops of rank 0 that start at `delays`, on streams of `kinds`; the ops that delay them come first, on rank 1."""
    count = len(works)
    place = [2 * number for number in stream] + [1] * count
    lines = [kind for each in kinds for kind in (each, SHARED)]
    # Delays are lags behind ops of no length.
    edges = Edges.of(np.arange(count), np.arange(count) + count, delays)
    return assemble_plain(np.array(place[count:] + place[:count]), lines, np.array([0] * count + works), edges)


def ends(schedule: Schedule, last: int) -> list[int]:
    return schedule.end_ns[-last:].tolist()


def same_schedule(one: Schedule, other: Schedule) -> bool:
    """Every column but the graph and the name of the order."""
    columns = ("start_ns", "end_ns", "bound_by", "bound_edge", "end_bound_edge")
    pairs = [(getattr(one, name), getattr(other, name)) for name in columns]
    return all(mine is theirs or np.array_equal(mine, theirs) for mine, theirs in pairs)


def test_equals_brute_force_in_fractions():
    """To the nanosecond: 2**-16 ns are forgiven on both sides, and rounding errors are thousands of times smaller."""
    equal = slowed = slowed_on_shared = stuck = 0
    for seed in range(900):
        graph = contending(random_case(seed, longest_ns=(8, 100, 10**6, 10**9)[seed % 4]), seed)
        try:
            expected = ContendedRun(graph).run()
        except Standstill:
            stuck += 1
            with pytest.raises(GraphError, match="never end in contended order"):
                replay(graph, "contended")
            continue
        schedule = replay(graph, "contended")
        assert (schedule.start_ns.tolist(), schedule.end_ns.tolist()) == expected, seed
        equal += 1
        changed = schedule.graph.duration_ns != graph.duration_ns
        slowed += bool(np.any(changed))
        slowed_on_shared += bool(np.any(changed & graph.on_streams(SHARED)))
    assert equal >= 700 and slowed >= 500 and slowed_on_shared >= 200 and stuck >= 20


@st.composite
def contended_graphs(draw: st.DrawFn) -> Graph:
    graph = draw(graphs(max_ops=9))
    size = {"min_size": len(graph), "max_size": len(graph)}
    return with_contention(
        graph,
        draw(st.lists(st.integers(-1, 2), **size)),
        draw(st.lists(st.sampled_from([1, 1.25, 2, 7]), **size)),
        draw(st.lists(st.sampled_from([0, 0.3, 0.5, 1]), **size)),
    )


@settings(max_examples=200)
@given(contended_graphs())
def test_equals_brute_force_on_whatever_hypothesis_finds(graph):
    try:
        expected = ContendedRun(graph).run()
    except Standstill:
        with pytest.raises(GraphError, match="never end"):
            replay(graph, "contended")
        return
    schedule = replay(graph, "contended")
    assert (schedule.start_ns.tolist(), schedule.end_ns.tolist()) == expected


def test_where_nothing_contends_it_is_ready_order():
    """Bit for bit: without attributes, without amounts, with amounts that cost nothing, with one side only."""
    compared = 0
    for seed in range(600):
        graph = random_case(seed, longest_ns=(8, 10**6, 10**12)[seed % 3])
        role = np.random.default_rng(seed).integers(0, 3, len(graph))
        variants = [
            graph,
            graph.with_attrs(contention=role.astype(np.int8)),
            with_contention(graph, role),
            with_contention(graph, 1, 3, 0.5),
            with_contention(graph, 2, 3, 0.5),
            with_contention(graph, np.where(graph.rank == 0, 1, 2), 3, 0.5),
            with_contention(graph, 0, 3, 0.5),
        ]
        try:
            ready = replay(graph, "ready")
        except GraphError as error:
            for variant in variants:
                with pytest.raises(GraphError) as found:
                    replay(variant, "contended")
                assert str(found.value) == str(error).replace("ready order", "contended order")
            continue
        for variant in variants:
            contended = replay(variant, "contended")
            assert contended.order == "contended"
            assert same_schedule(contended, ready), seed
            assert np.array_equal(contended.graph.duration_ns, graph.duration_ns)
        assert replay(graph, "contended").graph is graph
        compared += 1
    assert compared >= 400


def test_without_length_nothing_contends():
    graph = with_contention(assemble_plain(np.zeros(0, int), [], np.zeros(0, int), Edges.of([], [])), 1)
    assert replay(graph, "contended").makespan_ns == 0
    graph = with_contention(side_by_side([10, 0], [0, 5], [DEVICE, SHARED], [0, 1]), [0, 0, 1, 2], 2, 0.5)
    assert ends(replay(graph, "contended"), 2) == [10, 5]


@pytest.mark.parametrize(
    ("role", "works", "delays", "stretch", "share_left", "expected"),
    [
        # At 2/3 the transfer needs 90 ns; 45 of the computation are done by then, and 55 are left.
        ([1, 2], [100, 60], [0, 0], [1, 1.5], [1, 0.5], [145, 90]),
        # Computed at 20; 13 1/3 are transferred by then, and 46 2/3 are left.
        ([1, 2], [10, 60], [0, 0], [1, 1.5], [1, 0.5], [20, 67]),
        # One side is slowed, the other is not.
        ([1, 2], [30, 60], [0, 0], [1, 2], [1, 1], [30, 75]),
        ([1, 2], [100, 60], [0, 0], [1, 1], [1, 0.25], [145, 60]),
        # The transfer comes late: 40 are computed alone, 45 beside it, 15 alone.
        ([1, 2], [100, 60], [0, 40], [1, 1.5], [1, 0.5], [145, 130]),
        # The computation comes late: 30 are transferred, the other 30 take 45 ns, in which 22 1/2 are computed.
        ([1, 2], [100, 60], [30, 0], [1, 1.5], [1, 0.5], [153, 75]),
        # Two transfers: the computation goes at 1/5 for 20 ns, then at 7/10 for 20 ns, then alone.
        ([1, 2, 2], [100, 20, 40], [0, 0, 0], [1, 1, 1], [1, 0.5, 0.7], [122, 20, 40]),
        # They would take more than all: the computation goes at 1/20 for 40 ns.
        ([1, 2, 2], [10, 40, 40], [0, 0, 0], [1, 1, 1], [1, 0.25, 0.25], [48, 40, 40]),
        ([1, 2], [10, 40], [0, 0], [1, 1], [1, 0], [48, 40]),
        # Two that compute are slowed both; the transfer as by one of them, until both are done.
        ([1, 1, 2], [10, 30, 100], [0, 0, 0], [1, 1, 2], [1, 1, 0.5], [20, 60, 130]),
    ],
)
def test_by_hand(role, works, delays, stretch, share_left, expected):
    """Ops of one rank, each on a stream of its own."""
    count = len(works)
    graph = side_by_side(works, delays, [DEVICE] * count, list(range(count)))
    graph = with_contention(graph, [0] * count + role, [1.0] * count + stretch, [1.0] * count + share_left)
    schedule = replay(graph, "contended")
    assert ends(schedule, count) == expected
    assert schedule.graph.duration_ns[count:].tolist() == [end - at for end, at in zip(expected, delays, strict=True)]
    assert schedule.graph.attrs["uncontended_ns"].tolist() == [0] * count + works


def test_a_shared_link_beside_computation_by_hand():
    """Two transfers get 1/4 each beside the computation, which goes at 1/2; 5 of each are left when it ends at 100."""
    graph = side_by_side([50, 30, 30], [0, 0, 0], [DEVICE, SHARED], [0, 1, 1])
    graph = with_contention(graph, [0, 0, 0, 1, 2, 2], 2, 0.75)
    assert ends(replay(graph, "contended"), 3) == [100, 110, 110]


def test_only_transfers_that_contend_are_slowed_on_a_shared_link():
    """Both have half of the link; the one that contends goes at 1/4, 15 being left when the other has gone at 60."""
    graph = side_by_side([200, 30, 30], [0, 0, 0], [DEVICE, SHARED], [0, 1, 1])
    graph = with_contention(graph, [0, 0, 0, 1, 0, 2], 2, 1)
    assert ends(replay(graph, "contended"), 3) == [200, 60, 90]


def test_other_ranks_are_left_alone():
    graph = assemble_plain(np.array([0, 1]), [DEVICE, LINK], np.array([100, 60]), Edges.of([], []))
    assert replay(with_contention(graph, [1, 2], 2, 0.5), "contended").end_ns.tolist() == [100, 60]


@pytest.mark.parametrize(("gap", "transferred"), [(0, 90), (10, 85)])
def test_computation_that_follows_at_once_is_no_pause(gap, transferred):
    graph = side_by_side([50, 50, 60], [0, 50 + gap, 0], [DEVICE, LINK], [0, 0, 1])
    graph = with_contention(graph, [0, 0, 0, 1, 1, 2], 1.5)
    assert ends(replay(graph, "contended"), 3) == [50, 100 + gap, transferred]


def test_who_only_waits_for_its_end_takes_and_yields_nothing():
    """Op 0 of rank 1 holds the end of op 1 until 100; what runs beside op 1 is slowed only while that works."""
    graph = assemble_plain(
        np.array([1, 0, 2]),
        [DEVICE, DEVICE, LINK],
        np.array([100, 10, 60]),
        Edges.of([0], [1], [0], Relation.FINISH_FINISH),
    )
    computing = replay(with_contention(graph, [0, 1, 2], 2), "contended")
    assert computing.end_ns.tolist() == [100, 100, 65]
    assert computing.end_bound_edge is not None and computing.end_bound_edge.tolist() == [-1, 0, -1]
    assert computing.graph.duration_ns.tolist() == [100, 10, 65]
    communicating = replay(with_contention(graph, [0, 2, 1], 1, 0.5), "contended")
    assert communicating.end_ns.tolist() == [100, 100, 65]


def test_what_does_not_concern_them_changes_nothing():
    """The same schedule with a thousand unrelated ops in between, on the same ranks and on others."""
    for seed in range(40):
        graph = contending(random_graph(seed, ops=30, relations=START_RELATIONS, longest_ns=1000), seed)
        streams = len(graph.streams)
        random = np.random.default_rng(seed)
        edges = graph.edges()
        more = assemble_plain(
            np.concatenate([graph.stream, random.integers(streams, streams + 3, 1000)]),
            [*(stream.kind for stream in graph.streams), DEVICE, SHARED, LINK],
            np.concatenate([graph.duration_ns, random.integers(0, 20, 1000)]),
            edges,
            np.concatenate([graph.priority, np.zeros(1000, int)]),
        )
        few = {name: np.concatenate([column, np.zeros(1000, column.dtype)]) for name, column in graph.attrs.items()}
        alone, among = replay(graph, "contended"), replay(more.with_attrs(**few), "contended")
        assert np.array_equal(alone.start_ns, among.start_ns[:30]) and np.array_equal(alone.end_ns, among.end_ns[:30])


def test_invariants_on_larger_graphs():
    for seed in range(30):
        graph = contending(
            random_graph(seed, ops=500, streams=6, shared_streams=seed % 2, window=60, relations=START_RELATIONS), seed
        )
        schedule = replay(graph, "contended")
        took, given = schedule.graph.duration_ns, graph.duration_ns
        start, end = schedule.start_ns, schedule.end_ns
        assert path_length_ns(schedule) == schedule.makespan_ns == end.max()
        assert np.array_equal(schedule.graph.attrs["uncontended_ns"], given)
        role, shared = graph.attrs["contention"], graph.on_streams(SHARED)
        assert np.all(took >= given) and np.array_equal(took[role == 0], given[role == 0])
        assert np.all(end[~shared] == (start + took)[~shared]) and np.all(end >= start + took)
        longest = np.where(role == 1, 1 / SLOWEST, graph.attrs["stretch"].astype(float))
        assert np.all(took[~shared] <= np.ceil(given * longest)[~shared])
        for number in np.flatnonzero([stream.kind != SHARED for stream in graph.streams]):
            ops = np.flatnonzero(graph.stream == number)
            ops = ops[np.lexsort((end[ops], start[ops]))]
            assert np.all(start[ops][1:] >= end[ops][:-1]), "one op at a time"


def test_the_schedule_of_what_they_took_is_the_same():
    """The graph of a contended schedule replays to it in ready order: the contention is in its durations."""
    for seed in range(60):
        graph = contending(random_graph(seed, ops=60, streams=6, relations=START_RELATIONS), seed)
        schedule = replay(graph, "contended")
        assert same_schedule(replay(schedule.graph, "ready"), schedule)
        with pytest.raises(GraphError, match="those of a contended replay already"):
            replay(schedule.graph, "contended")


def test_given_durations_are_those_that_are_kept():
    graph = with_contention(side_by_side([1, 1], [0, 0], [DEVICE, LINK], [0, 1]), [0, 0, 1, 2], 1.5, 0.5)
    schedule = replay(graph, "contended", durations=np.array([0, 0, 100, 60]))
    assert ends(schedule, 2) == [145, 90]
    assert schedule.graph.attrs["uncontended_ns"].tolist() == [0, 0, 100, 60]
    assert graph.duration_ns.tolist() == [0, 0, 1, 1]


def test_many_transfers_on_one_link_beside_computation():
    """Five thousand that join one by one, slowed and not, in turns: the link stays in order."""
    count = 5000
    random = np.random.default_rng(0)
    works = random.integers(1, 200, count)
    computing = np.arange(0, 2_000_000, 20_000)
    graph = side_by_side(
        [*works.tolist(), *[5_000] * len(computing)],
        [*random.integers(0, 100_000, count).tolist(), *computing.tolist()],
        [SHARED, DEVICE],
        [0] * count + [1] * len(computing),
    )
    half = len(graph) // 2
    role = np.concatenate([np.zeros(half), np.full(count, 2), np.ones(len(computing))])
    schedule = replay(with_contention(graph, role, 2), "contended")
    start, end = schedule.start_ns[half : half + count], schedule.end_ns[half : half + count]
    # The link always serves all it has; beside computation it does so at half its rate.
    times, order = np.unique(np.concatenate([start, end]), return_inverse=True)
    running = np.cumsum(np.bincount(order[:count], minlength=len(times)) - np.bincount(order[count:]))[:-1]
    edges = np.unique(np.concatenate([times, computing, computing + 5_000]))
    edges = edges[(edges >= times[0]) & (edges <= times[-1])]
    busy = running[np.searchsorted(times, edges[:-1], side="right") - 1] > 0
    slow = edges[:-1] % 20_000 < 5_000
    served = np.sum(np.diff(edges) * busy * np.where(slow, 0.5, 1))
    assert served == pytest.approx(works.sum(), abs=count)
    assert np.all(end >= start + works)


def test_the_wait_cycle_is_told():
    """Op 2 starts at 0 and holds stream 0 until op 1 ends, which needs stream 0; both contend."""
    graph = assemble_plain(
        np.array([1, 0, 0]),
        [DEVICE] * 2,
        np.array([5, 1, 1]),
        Edges.of([0, 1], [1, 2], [0, 0], [Relation.FINISH_START, Relation.FINISH_FINISH]),
    )
    with pytest.raises(GraphError) as error:
        replay(with_contention(graph, [1, 2, 1], 2, 0.5), "contended")
    assert "2 of 3 ops never end in contended order" in str(error.value)
    told = str(error.value).split(": ", 1)[1]
    assert told.count("'op 1'") + told.count("'op 2'") == 3 and "'op 0'" not in told


@pytest.mark.parametrize(
    ("attribute", "column", "said"),
    [
        ("contention", np.array([1, 3], np.int8), r"op 1 \('op 1'\) has contention 3, expected 0, 1 \(computes\)"),
        ("contention", np.array([-2, 2], np.int8), "op 0 .* has contention -2"),
        ("contention", np.array([1, 2]), r"attribute contention is int64\[2\], expected int8\[2\]"),
        ("stretch", np.array([1, 0.5], np.float32), "op 1 .* has stretch 0.5, expected a number from 1 up"),
        ("stretch", np.array([1, np.nan], np.float32), "op 1 .* has stretch nan"),
        ("stretch", np.array([1, np.inf], np.float32), "op 1 .* has stretch inf"),
        ("stretch", np.array([1.0, 2.0]), r"attribute stretch is float64\[2\], expected float32\[2\]"),
        ("stretch", np.array([1], np.float32), r"attribute stretch is float32\[1\], expected float32\[2\]"),
        ("stretch", np.array([1, 1e20], np.float32), r"op 1 contends and lasts beyond \d+ ns \(104 days\), stretched"),
        ("share_left", np.array([1, -0.1], np.float32), "op 1 .* has share_left -0.1.*, expected a number from 0 to 1"),
        ("share_left", np.array([1, 1.1], np.float32), "op 1 .* has share_left 1.1"),
        ("share_left", np.array([1, np.nan], np.float32), "op 1 .* has share_left nan"),
    ],
)
def test_attributes_out_of_range_are_refused_in_one_sentence(attribute, column, said):
    graph = assemble_plain(np.array([0, 2]), [DEVICE, DEVICE, LINK], np.array([100, 60]), Edges.of([], []))
    with pytest.raises(GraphError, match=said) as error:
        replay(with_contention(graph, [1, 2]).with_attrs(**{attribute: column}), "contended")
    assert "\n" not in str(error.value) and ". " not in str(error.value)


def test_amounts_count_for_communication_alone():
    """What other ops say about stretch and share is not looked at, such as the NaN that an edit gives to new ops."""
    graph = side_by_side([100, 60], [0, 0], [DEVICE, LINK], [0, 1])
    graph = with_contention(graph, [0, 0, 1, 2], [np.nan, 0, np.inf, 1.5], [-1, np.nan, 7, 0.5])
    edit = GraphEdit(graph)
    edit.add_edge(2, edit.add_op(kind=OpKind.COMPUTE, stream=0, duration_ns=5, name="new"))
    changed = edit.finish().graph
    assert changed.attrs["contention"].tolist() == [0, 0, 1, 2, -1]
    assert replay(changed, "contended").end_ns.tolist() == [0, 0, 145, 90, 150]


def test_times_beyond_the_limit_are_refused():
    graph = side_by_side([1 << 52, 60], [(1 << 62) - (1 << 52), 0], [DEVICE, LINK], [0, 1])
    with pytest.raises(GraphError, match="grow beyond"):
        replay(with_contention(graph, [0, 0, 1, 2]), "contended")
    graph = side_by_side([-5, 60], [0, 0], [DEVICE, LINK], [0, 1])
    with pytest.raises(GraphError, match="durations are never negative"):
        replay(with_contention(graph, [0, 0, 1, 2]), "contended")


def test_work_of_days_is_exact():
    """A quarter of 2**53 ns: beside it a transfer of the same length at the least representable slowness."""
    work, slowness = 1 << 51, float(np.nextafter(np.float32(1), np.float32(2)))
    graph = side_by_side([4 * work - 4, work], [0, 0], [DEVICE, LINK], [0, 1])
    schedule = replay(with_contention(graph, [0, 0, 1, 2], slowness), "contended")
    assert ends(schedule, 2) == [4 * work - 4, int(work * Fraction(slowness))]
