"""Rebucket: the graph of a captured job as it would be with other gradient buckets, or another network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from makespan.bucket_plan import BucketPlan
from makespan.capture_file import COPY_OUT, LAUNCH, WAIT
from makespan.cluster import Cluster
from makespan.edit import GraphEdit
from makespan.errors import PassError, PredictionError
from makespan.graph import NONE, EdgeKind, Graph, OpKind, Stream, StreamKind
from makespan.optimizers.bucketing.gradients import Backward
from makespan.protocols import CommunicationModel, Rewrite

REDUCTION: Final = "allreduce"
_Edge = tuple[int, int, EdgeKind]

YIELDS: Final = 1
TAKES: Final = 2
"""In the attribute `contention`: computing that yields, and communication that takes (see the contended order)."""


@dataclass(frozen=True, slots=True)
class BucketCosts:
    """What each bucket of a plan costs: (b,) ns of transfer, stretch, share left, ns of launch and of copying out.

    `call_ns` is a launch that has nothing to do.
    """

    transfer_ns: NDArray[np.int64]
    stretch: NDArray[np.float64]
    share_left: NDArray[np.float64]
    launch_ns: NDArray[np.int64]
    copy_ns: NDArray[np.int64]
    call_ns: int


def bucket_costs(
    sizes: Sequence[int], model: CommunicationModel, ranks: Sequence[int], cluster: Cluster | None
) -> BucketCosts:
    """Costs of buckets of (b,) `sizes` bytes; raises PredictionError outside of the model's range."""
    size_bytes = np.array(sizes, np.int64)
    stretch, share_left = model.contention(REDUCTION, size_bytes, ranks, cluster)
    return BucketCosts(
        model.transfer_ns(REDUCTION, size_bytes, ranks, cluster),
        stretch,
        share_left,
        model.host_ns("launch", size_bytes),
        model.host_ns("copy", size_bytes),
        int(model.host_ns("launch", np.zeros(1, np.int64))[0]),
    )


def rebucket(graph: Graph, backwards: Sequence[Backward], plan: BucketPlan, costs: BucketCosts) -> Rewrite:
    """`graph` (whose other collectives stay as they are) with its `backwards` reducing the buckets of `plan`.

    The buckets cost `costs`; there are no decisions.

    On each rank a bucket is enqueued once its last gradient and all buckets before it are ready; it is reduced
    once every rank has enqueued it and its link is free. After backward the training thread waits for the
    buckets in turn, and copies each out. What enqueuing the old buckets took beyond the call itself stays: it
    copied gradients, which is done whatever the buckets are.
    """
    missing = [key for key in ("contention", "stretch", "share_left") if key not in graph.attrs]
    if missing:
        graph = with_contention(graph)
    code = {name: number for number, name in enumerate(graph.names)}
    by_step: dict[int, list[Backward]] = {}
    for backward in backwards:
        by_step.setdefault(backward.step, []).append(backward)
    edit = GraphEdit(graph)
    links = _links(graph, backwards, edit)
    waiting = {rank: edit.add_stream(Stream(rank, "buckets to reduce", StreamKind.SHARED)) for rank in links}
    points = edit.add_stream(Stream(backwards[0].rank, "meeting points of buckets", StreamKind.SHARED))
    group = int(graph.group.max()) + 1 if len(graph) else 0
    wanted = [[_code_of(code, name) for name in bucket] for bucket in plan.buckets]
    before: dict[int, int] = {}
    edges: list[_Edge] = []
    for step in sorted(by_step):
        together = by_step[step]
        _take_out(graph, edit, together, costs)
        enqueued = [
            _enqueue(graph, edit, edges, backward, waiting[backward.rank], wanted, costs) for backward in together
        ]
        reduced: list[list[int]] = [[] for _ in together]
        for bucket, size in enumerate(plan.sizes):
            point = edit.add_op(
                kind=OpKind.BARRIER, stream=points, duration_ns=0, name="last rank has come", step=step,
                group=group, after=max(arrivals[bucket] for arrivals in enqueued).arrival,
            )  # fmt: skip
            for place, backward in enumerate(together):
                transfer = edit.add_op(
                    kind=OpKind.COLLECTIVE, stream=links[backward.rank], duration_ns=int(costs.transfer_ns[bucket]),
                    name="gloo:all_reduce", size_bytes=size, step=step, group=group, after=point,
                    attrs={"bucket": bucket, "contention": TAKES, "stretch": costs.stretch[bucket],
                           "share_left": costs.share_left[bucket]},
                    stands_for=backward.reductions,
                )  # fmt: skip
                edges.append((enqueued[place][bucket].arrival, point, EdgeKind.COLLECTIVE))
                edges.append((point, transfer, EdgeKind.COLLECTIVE))
                if backward.rank in before:
                    edges.append((before[backward.rank], transfer, EdgeKind.STREAM))
                before[backward.rank] = transfer
                reduced[place].append(transfer)
            group += 1
        for backward, transfers in zip(together, reduced, strict=True):
            _wait(graph, edit, edges, backward, transfers, costs)
    source, target, kind = zip(*edges, strict=True)
    edit.add_edge(source, target, kind=kind)
    return edit.finish()


def retime_broadcasts(graph: Graph, model: CommunicationModel, ranks: Sequence[int], cluster: Cluster | None) -> Graph:
    """`graph` whose broadcasts of known size (of a model's buffers) take what `model` says, if it says anything."""
    told = (graph.kind == OpKind.COLLECTIVE) & (graph.size_bytes > 0)
    is_broadcast = np.fromiter(("broadcast" in name for name in graph.names), np.bool_, len(graph.names))
    ops = np.flatnonzero(told & is_broadcast[graph.name])
    try:
        durations = model.transfer_ns("broadcast", graph.size_bytes[ops], ranks, cluster)
    except PredictionError:
        return graph
    duration_ns = graph.duration_ns.copy()
    duration_ns[ops] = durations
    return graph.replace(duration_ns=duration_ns)


def with_contention(graph: Graph) -> Graph:
    """`graph` with the attributes of the contended order: all host ops yield, nothing takes yet."""
    yields = graph.on_streams(StreamKind.HOST) & (graph.duration_ns > 0)
    return graph.with_attrs(
        contention=np.where(yields, YIELDS, 0).astype(np.int8),
        stretch=np.ones(len(graph), np.float32),
        share_left=np.ones(len(graph), np.float32),
    )


def _code_of(code: dict[str, int], name: str) -> int:
    if name not in code:
        raise PassError(f"the bucket plan names parameter {name!r}, which this capture doesn't have")
    return code[name]


def _links(graph: Graph, backwards: Sequence[Backward], edit: GraphEdit) -> dict[int, int]:
    """The stream of each rank's reductions, a new one where nothing was reduced."""
    links: dict[int, int] = {}
    for backward in backwards:
        if backward.rank not in links:
            known = backward.link
            links[backward.rank] = (
                known if known != NONE else edit.add_stream(Stream(backward.rank, "collectives", StreamKind.LINK))
            )
    return links


def _take_out(graph: Graph, edit: GraphEdit, together: Sequence[Backward], costs: BucketCosts) -> None:
    """Remove the old reductions of one step, what led to them, the waits and the copying."""
    taken = np.zeros(len(graph), np.bool_)
    on_thread = np.zeros(len(graph.streams), np.bool_)
    for backward in together:
        taken[backward.reductions] = taken[backward.others] = True
        taken[[op for op in (backward.wait, backward.copy_out) if op != NONE]] = True
        on_thread[graph.stream[backward.ready[0]]] = True
        edit.set_duration(backward.launches, np.maximum(graph.duration_ns[backward.launches] - costs.call_ns, 0))
    target = graph.edge_targets()
    along_thread = on_thread[graph.stream[graph.pred]] & (graph.stream[graph.pred] == graph.stream[target])
    edit.remove_edges((taken[graph.pred] | taken[target]) & ~along_thread)
    edit.remove_ops(taken)


class _Arrival(NamedTuple):
    """A bucket enqueued: the op `due` of the old graph after which it was, and its `arrival`."""

    due: int
    arrival: int


def _enqueue(
    graph: Graph,
    edit: GraphEdit,
    edges: list[_Edge],
    backward: Backward,
    queue: int,
    wanted: list[list[int]],
    costs: BucketCosts,
) -> list[_Arrival]:
    """Enqueue each bucket on the training thread of one rank."""
    ready = dict(zip(backward.parameter.tolist(), backward.ready.tolist(), strict=True))
    thread = backward.thread
    arrivals: list[_Arrival] = []
    latest, last = -1, NONE
    for bucket, parameters in enumerate(wanted):
        members = [ready[parameter] for parameter in parameters]
        edit.set_column("bucket", members, bucket)
        due = max(latest, *members)
        # Buckets whose gradients are ready at once are enqueued one after another.
        came_after = last if due == latest and last != NONE else due
        latest = due
        following = int(thread[np.searchsorted(thread, due, side="right")])
        launch = edit.add_op(
            kind=OpKind.HOST, stream=int(graph.stream[due]), duration_ns=int(costs.launch_ns[bucket]),
            name=LAUNCH + "gloo:all_reduce", step=backward.step, after=came_after,
            attrs={"contention": YIELDS, "stretch": 1.0, "share_left": 1.0}, stands_for=backward.launches,
        )  # fmt: skip
        edges += [(came_after, launch, EdgeKind.THREAD), (launch, following, EdgeKind.THREAD)]
        arrival = edit.add_op(
            kind=OpKind.MARK, stream=queue, duration_ns=0, name="arrival", step=backward.step, after=launch,
            attrs={"contention": 0, "stretch": 1.0, "share_left": 1.0},
        )  # fmt: skip
        edges.append((launch, arrival, EdgeKind.LAUNCH))
        arrivals.append(_Arrival(due, arrival))
        last = launch
    return arrivals


def _wait(
    graph: Graph, edit: GraphEdit, edges: list[_Edge], backward: Backward, transfers: list[int], costs: BucketCosts
) -> None:
    """Let the training thread of one rank wait for `transfers` in turn, and copy each out."""
    thread = backward.thread
    ends = [op for op in (backward.wait, backward.copy_out) if op != NONE]
    if ends:
        place = int(np.searchsorted(thread, min(ends)))
        came, following = int(thread[place - 1]), int(thread[np.searchsorted(thread, max(ends)) + 1])
    else:
        came = int(backward.ready[-1])
        following = int(thread[np.searchsorted(thread, came) + 1])
    stream = int(graph.stream[came])
    plain = {"stretch": 1.0, "share_left": 1.0}
    for bucket, transfer in enumerate(transfers):
        wait = edit.add_op(
            kind=OpKind.WAIT, stream=stream, duration_ns=0, name=WAIT, step=backward.step, before=following,
            attrs={"contention": 0, **plain},
        )  # fmt: skip
        copy = edit.add_op(
            kind=OpKind.HOST, stream=stream, duration_ns=int(costs.copy_ns[bucket]), name=COPY_OUT,
            step=backward.step, before=following, attrs={"contention": YIELDS, **plain},
        )  # fmt: skip
        edges += [(came, wait, EdgeKind.THREAD), (transfer, wait, EdgeKind.SYNC), (wait, copy, EdgeKind.THREAD)]
        came = copy
    edges.append((came, following, EdgeKind.THREAD))
