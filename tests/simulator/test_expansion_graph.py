"""Expansion as a change of a graph: who meets, what becomes of edges, steps and streams, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from small_clusters import collective_graph, mesh, star

from makespan.cluster_file import load_cluster
from makespan.errors import ClusterError, GraphError, MakespanError, SelectorError
from makespan.graph import NONE, Edges, Graph, OpKind, Relation, Step, Stream, StreamKind, assemble
from makespan.simulator.analysis.breakdown import breakdown
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.build import build
from makespan.simulator.collectives.hierarchical import hierarchical
from makespan.simulator.collectives.ring import ring
from makespan.simulator.expansion.collective import Collective
from makespan.simulator.expansion.exchange import Exchange
from makespan.simulator.expansion.expand import expand
from makespan.simulator.load import load
from makespan.simulator.replay import replay

TRACES = Path(__file__).parents[2] / "datasets" / "traces"


def two_ranks(edges: Edges | None = None, steps: tuple[Step, ...] = (), kinds: StreamKind = StreamKind.DEVICE) -> Graph:
    """Ops 0 and 1 work, 2 and 3 are an all-reduce, 4 and 5 work, each on the one stream of its rank; 10 ns each."""
    graph, _ = assemble(
        kind=[OpKind.COMPUTE] * 2 + [OpKind.COLLECTIVE] * 2 + [OpKind.COMPUTE] * 2,
        stream=[0, 1] * 3,
        duration_ns=[10] * 6,
        streams=[Stream(rank, "stream 7", kinds) for rank in (0, 1)],
        name=[0, 0, 1, 1, 2, 2],
        names=["before", "ncclAllReduce", "after"],
        edges=Edges.concatenate([]) if edges is None else edges,
        size_bytes=[0, 0, 100, 100, 0, 0],
        group=[NONE, NONE, 3, 3, NONE, NONE],
        priority=[0, 0, 5, 5, 0, 0],
        step=0,
        step_names=["step#0"],
        steps=steps,
        attrs={"event": np.arange(6, dtype=np.int32), "flops": np.ones(6)},
    )
    return graph


def ops_named(graph: Graph, name: str) -> list[int]:
    """Ops of that name, those of one rank before those of the next."""
    return sorted((op for op in range(len(graph)) if graph.name_of(op) == name), key=lambda op: graph.rank[op])


@pytest.mark.parametrize("order", ["recorded", "ready"])
def test_the_stream_is_held_until_the_collective_is_over(order: str) -> None:
    schedule = replay(expand(two_ranks(), None, "ring", mesh(2)).graph, order)
    graph = schedule.graph
    assert len(graph) == 4 + 2 * 2 + 2 * 2 * 2
    held, after = ops_named(graph, "ncclAllReduce"), ops_named(graph, "after")
    assert schedule.start_ns[held].tolist() == [10, 10]
    assert schedule.end_ns[held].tolist() == [10 + 2 * 1050] * 2
    assert schedule.start_ns[after].tolist() == [10 + 2 * 1050] * 2


def test_what_an_added_op_is() -> None:
    graph = two_ranks()
    rewrite = expand(graph, None, "ring", mesh(2))
    made, provenance = rewrite.graph, rewrite.provenance
    assert not rewrite.decisions
    assert not len(provenance.removed())
    for rank in (0, 1):
        (send, _later), (receive, _) = (
            [op for op in ops_named(made, f"ncclAllReduce: {role}") if made.rank[op] == rank]
            for role in ("send", "receive")
        )
        assert (made.kind[send], made.kind[receive]) == (OpKind.SEND, OpKind.RECV)
        for op, source, target in ((send, rank, 1 - rank), (receive, 1 - rank, rank)):
            assert (made.attrs["transfer_source"][op], made.attrs["transfer_target"][op]) == (source, target)
            assert (made.size_bytes[op], made.group[op], made.priority[op], made.step[op]) == (50, 3, 5, 0)
            assert made.streams[made.stream[op]].kind == StreamKind.LINK
            assert list(provenance.of(op)) == [2 + rank]
            assert made.attrs["event"][op] == NONE and np.isnan(made.attrs["flops"][op])
    held = ops_named(made, "ncclAllReduce")
    assert made.attrs["event"][held].tolist() == [2, 3]
    assert made.size_bytes[held].tolist() == [100, 100]
    others = np.isin(made.kind, (OpKind.SEND, OpKind.RECV), invert=True)
    assert np.all(made.attrs["transfer_source"][others] == NONE)
    assert [list(provenance.of(op)) for op in held] == [[2], [3]]


def test_edges_and_steps_go_to_the_beginning_or_the_end() -> None:
    """Into op 2 and out of op 3, by start and by end; a step that ends with the collective."""
    edges = Edges.of([0, 0, 3, 3], [3, 2, 4, 4], [7, 2000, 3, 9], [0, 2, 0, 1])
    graph = two_ranks(edges, (Step("step#0", 0, 0, 2), Step("step#0", 1, 1, 3)), StreamKind.HOST)
    schedule = replay(expand(graph, None, "ring", mesh(2)).graph)
    made = schedule.graph
    (begins, held) = [ops_named(made, name)[1] for name in ("ncclAllReduce: begin", "ncclAllReduce")]
    assert schedule.start_ns[begins] == schedule.start_ns[held] == 17
    # Rank 0 may end no earlier than 2000 after its first op, which holds here anyway; rank 1 is over at the same time.
    over = 17 + 2 * 1050
    assert schedule.end_ns[made.steps[1].end_op] == over
    assert schedule.end_ns[made.steps[0].end_op] == over
    assert schedule.start_ns[ops_named(made, "after")].tolist() == [over + 3, over]
    by_start = made.edge_targets()[(made.relation == Relation.START_START) & (made.lag_ns == 9)]
    assert by_start.tolist() == [ops_named(made, "after")[0]]


def test_collectives_on_one_link_keep_the_order_that_edges_ask_for() -> None:
    """The recorded numbers have group 1 before group 0, whose result it needs."""
    graph, _ = assemble(
        kind=[OpKind.COLLECTIVE] * 4,
        stream=[0, 2, 1, 3],
        duration_ns=10,
        streams=[Stream(rank, name, StreamKind.DEVICE) for name in ("first", "second") for rank in (0, 1)],
        name=0,
        names=["allreduce"],
        edges=Edges.of([0], [1]),
        size_bytes=100,
        group=[0, 1, 1, 0],
        order_ns=[0, 1, 2, 3],
    )
    assert graph.group.tolist() == [0, 1, 1, 0]
    for order in ("recorded", "ready"):
        schedule = replay(expand(graph, None, "ring", mesh(2)).graph, order)
        held = np.flatnonzero(schedule.graph.kind == OpKind.COLLECTIVE)
        assert sorted(schedule.end_ns[held].tolist()) == [2100, 2100, 4200, 4200]


def test_opposite_orders_on_two_ranks_are_a_cycle_and_said_so() -> None:
    graph = collective_graph(2, 100, count=2)
    ops = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
    group = graph.group.copy()
    group[ops] = [0, 1, 1, 0]
    with pytest.raises(GraphError, match=r"^the graph waits on itself: .*'allreduce: begin' .*'allreduce: send'"):
        expand(graph.replace(group=group), None, "ring", mesh(2))


def test_a_chosen_few_are_expanded() -> None:
    graph = collective_graph(2, 100, count=3)
    ops = np.flatnonzero(graph.group == 1)
    by_number, by_selector = expand(graph, ops, "ring", mesh(2)).graph, expand(graph, "comm", "ring", mesh(2)).graph
    assert np.count_nonzero(by_number.kind == OpKind.SEND) == 4
    assert np.count_nonzero(by_selector.kind == OpKind.SEND) == 12
    rest = np.flatnonzero((by_number.kind == OpKind.COLLECTIVE) & (by_number.group != 1))
    again = expand(by_number, rest, "tree", mesh(2)).graph
    assert len(again.streams) == len(by_number.streams), "links are used again"
    assert again.names == by_number.names
    assert np.count_nonzero(again.kind == OpKind.SEND) == 4 + 2 * 2


def test_rank_order_root_and_outside_algorithms() -> None:
    graph = collective_graph(4, 1000, "broadcast")
    made = expand(graph, None, "ring", mesh(4), root=2, rank_order=[3, 1]).graph
    sends = np.flatnonzero(made.kind == OpKind.SEND)
    pairs = {(int(made.attrs["transfer_source"][op]), int(made.attrs["transfer_target"][op])) for op in sends}
    assert pairs == {(2, 3), (3, 1), (1, 0)}
    outside = expand(graph, None, f"{ring.__module__}:ring", mesh(4)).graph
    assert replay(outside).makespan_ns == 3 * 2000


def test_recorded_collectives_of_two_ranks_meet_and_expand() -> None:
    """The bundled trace of two gloo processes: transfers after the meeting points, and still the same steps."""
    graph = build(load(TRACES / "ddp_gloo_2ranks"))
    rewrite = expand(graph, "name:all_reduce", "ring", load_cluster("local-2cpu"))
    made = rewrite.graph
    assert len(made.steps) == len(graph.steps)
    assert not len(rewrite.provenance.removed())
    for order in ("recorded", "ready"):
        schedule = replay(made, order)
        assert critical_path(schedule).length_ns == schedule.makespan_ns
        assert set(breakdown(schedule)["rank"]) == {0, 1}
    held = (made.kind == OpKind.COLLECTIVE) & (made.duration_ns == 0)
    spans = (schedule.end_ns - schedule.start_ns)[held]
    # Two messages of half the bytes each way, over one link of 3.5 GB/s that both directions share.
    assert spans.min() >= 2 * made.size_bytes[held].min() / 3.5


def test_what_is_refused() -> None:
    graph = collective_graph(2, 100)
    cluster = star(2)
    wrong: list[tuple[dict[str, object], type[MakespanError], str]] = [
        ({"ops": "rank:7"}, SelectorError, "selects nothing"),
        ({"ops": [0]}, GraphError, "op 0 'work' is no collective"),
        ({"ops": [17]}, GraphError, "numbers from 0 to 3"),
        ({"ops": [1.5]}, GraphError, "numbers from 0 to 3"),
        ({"ops": np.zeros(4, bool)}, GraphError, "no collective to expand"),
        ({"ops": [2]}, GraphError, "is alone in its collective"),
        ({"algorithm": "rong"}, MakespanError, "did you mean 'ring'"),
        ({"algorithm": "ring", "kind": "alltoall"}, GraphError, "ring knows no alltoall"),
        ({"kind": "allreduc"}, GraphError, "did you mean 'allreduce'"),
        ({"cluster": star(1)}, ClusterError, "no rank 1"),
        ({"slice_bytes": -1}, GraphError, "slice_bytes is -1"),
        ({"sum_bytes_per_s": float("nan")}, GraphError, "sum_bytes_per_s is nan"),
        ({"sum_bytes_per_s": -1.0}, GraphError, "sum_bytes_per_s is -1"),
        ({"root": 5}, GraphError, "root 5 is none of the ranks"),
        ({"servers": [1, 1]}, GraphError, "name a rank twice"),
        ({"size_bytes": -4}, GraphError, "size_bytes is -4"),
        ({"size_bytes": 10**9, "slice_bytes": 1}, GraphError, "take larger slices"),
    ]  # fmt: skip
    for changed, error, told in wrong:
        settings = {"ops": None, "algorithm": "ring", "cluster": cluster} | changed
        with pytest.raises(error, match=told):
            expand(graph, **settings)  # type: ignore[arg-type]


def test_graphs_that_do_not_say_enough() -> None:
    graph = collective_graph(2, 100)
    ops = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
    with pytest.raises(GraphError, match="has no group and waits for no meeting point"):
        expand(graph.replace(group=np.full(4, NONE, np.int32)), None, "ring", star(2))
    with pytest.raises(GraphError, match="can't be told from its name: say its kind"):
        expand(graph.replace(names=("work", "exchange")), None, "ring", star(2))
    with pytest.raises(GraphError, match="isn't known: say its size_bytes"):
        expand(graph.replace(size_bytes=np.zeros(4, np.int64)), None, "ring", star(2))
    three = collective_graph(2, 100, count=2)
    group = np.where(three.kind == OpKind.COLLECTIVE, 0, NONE).astype(np.int32)
    group[np.flatnonzero(group == 0)[-1]] = NONE
    with pytest.raises(GraphError, match="group 0 has unlike numbers of collectives: 2 on rank 0, 1 on rank 1"):
        expand(three.replace(group=group), np.flatnonzero(group == 0), "ring", star(2))
    expanded = expand(graph, ops, "ring", star(2)).graph
    with pytest.raises(GraphError, match="is expanded already"):
        expand(expanded, None, "ring", star(2))
    uneven = Collective("allreduce", 10, (0, 1, 8), load_cluster("v100-16-tcp"))
    with pytest.raises(GraphError, match="as many ranks on every host, but they have from 1 to 2"):
        hierarchical(uneven, Exchange())
