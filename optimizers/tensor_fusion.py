"""Tensor fusion: which gradients to reduce together, so that an iteration is shortest (dPRO, section 4.2).

Small buckets start early and hide behind the backward pass; large ones pay overheads once. What is best depends on
the network, on when gradients become ready, and on what communication takes from computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.bucket_plan import BYTES_PER_MIB, BucketPlan
from makespan.errors import PassError
from makespan.graph import Graph
from makespan.iteration import iteration_ns
from makespan.optimizers.bucketing.gradients import Backward, find_backwards, ready_order
from makespan.optimizers.bucketing.rebucket import bucket_costs, rebucket, retime_broadcasts
from makespan.optimizers.bucketing.search import Cut, capped_cut, fewest_exposed, improve
from makespan.plan import Decision
from makespan.protocols import Context, Rewrite

DDP_CAPS: Final = (BYTES_PER_MIB, 25 * BYTES_PER_MIB)
"""Caps of DistributedDataParallel unless it is told otherwise: a small first bucket, then 25 MiB."""
ORDER: Final = "contended"


class TensorFusion:
    """The pass; `buckets` sets the plan instead of searching for it, as lists of parameter names."""

    def __init__(self, buckets: Sequence[Sequence[str]] | None = None) -> None:
        self._buckets = None if buckets is None else [list(bucket) for bucket in buckets]

    def __call__(self, graph: Graph, context: Context) -> Rewrite:
        """`graph` with the gradient buckets that make its iteration shortest, under `context.communication`.

        The decision holds the plan (BucketPlan), and under "search" what the named plans would have taken.
        Raises PassError where the graph tells of no gradients or no communication model is given.
        """
        if context.communication is None:
            raise PassError("no communication model is given; measure one on the job's network, or name one")
        backwards = find_backwards(graph)
        ranks = sorted({backward.rank for backward in backwards})
        if len(ranks) < 2:
            raise PassError("the capture is of one rank, which reduces nothing; capture at least two ranks")
        graph = retime_broadcasts(graph, context.communication, ranks, context.cluster)
        sizes = backwards[0].sizes()
        order = ready_order(backwards)
        if self._buckets is not None:
            plan = _given(graph, self._buckets, sizes)
            return _decided(self._applied(graph, backwards, plan, context, ranks), plan)

        held = np.concatenate([[0], np.cumsum([sizes[parameter] for parameter in order])])

        def plan_of(cut: Cut) -> BucketPlan:
            pieces = list(zip((0, *cut[:-1]), cut, strict=True))
            return BucketPlan(
                [[graph.names[parameter] for parameter in order[begin:end]] for begin, end in pieces],
                [int(held[end] - held[begin]) for begin, end in pieces],
            )

        def evaluate(cut: Cut) -> int:
            made = self._applied(graph, backwards, plan_of(cut), context, ranks)
            return iteration_ns(context.replay(made.graph, ORDER))

        named = _named_cuts(graph, backwards, [sizes[parameter] for parameter in order], context, ranks)
        found = improve(
            named, evaluate, [sizes[parameter] for parameter in order], seed=context.seed, progress=context.progress
        )
        chosen = plan_of(found.cut)
        made = self._applied(graph, backwards, chosen, context, ranks)
        told = {"iteration_ns": found.iteration_ns, "named_ns": found.named_ns, "evaluations": found.evaluations}
        return _decided(made, BucketPlan(chosen.buckets, chosen.sizes, told))

    def _applied(
        self, graph: Graph, backwards: list[Backward], plan: BucketPlan, context: Context, ranks: list[int]
    ) -> Rewrite:
        assert context.communication is not None
        costs = bucket_costs(plan.sizes, context.communication, ranks, context.cluster)
        return rebucket(graph, backwards, plan, costs)


def _decided(made: Rewrite, plan: BucketPlan) -> Rewrite:
    return Rewrite(made.graph, made.provenance, (Decision("tensor-fusion", plan.payload()),))


def _given(graph: Graph, buckets: list[list[str]], sizes: dict[int, int]) -> BucketPlan:
    """The user's own buckets, checked to hold every parameter once."""
    by_name = {graph.names[parameter]: size for parameter, size in sizes.items()}
    named = [name for bucket in buckets for name in bucket]
    if sorted(named) != sorted(by_name):
        strange = sorted(set(named) ^ set(by_name)) or sorted(name for name in set(named) if named.count(name) > 1)
        raise PassError(
            f"the buckets don't hold each of the {len(by_name)} parameters once; {strange[0]!r} is missing, unknown or "
            "there twice"
        )
    return BucketPlan(buckets, [sum(by_name[name] for name in bucket) for bucket in buckets])


def _named_cuts(
    graph: Graph, backwards: list[Backward], sizes: list[int], context: Context, ranks: list[int]
) -> dict[str, Cut]:
    """The cuts that a search starts from: the captured one, those that people take, and the dynamic programme's."""
    named = {
        "ddp default": capped_cut(sizes, DDP_CAPS),
        "one bucket": (len(sizes),),
        "one tensor each": tuple(range(1, len(sizes) + 1)),
    }
    for mib in (1, 2, 5, 10):
        named[f"{mib} MiB"] = capped_cut(sizes, [mib * BYTES_PER_MIB])
    captured = np.diff(backwards[0].bucket_of)
    # Buckets that were not filled in the order of readiness are no cut of it.
    if np.all(backwards[0].bucket_of >= 0) and np.all(captured >= 0):
        ends = np.flatnonzero(captured) + 1
        named["as captured"] = (*ends.tolist(), len(sizes))
    ready_ns = _ready_ns(graph, backwards)
    held = np.concatenate([[0], np.cumsum(sizes)])
    pairs = np.array([held[end] - held[:end] for end in range(1, len(sizes) + 1)], dtype=object)
    flat = np.unique(np.concatenate([np.asarray(pair, np.int64) for pair in pairs]))
    costs = bucket_costs(flat.tolist(), context.communication, ranks, context.cluster)  # pyright: ignore[reportArgumentType]
    for name, values in (
        ("dynamic programme", costs.transfer_ns),
        ("dynamic programme, hindered", np.rint(costs.transfer_ns * costs.stretch).astype(np.int64)),
    ):
        table = dict(zip(flat.tolist(), (values + costs.launch_ns).tolist(), strict=True))
        named[name] = fewest_exposed(ready_ns, lambda begin, end, table=table: table[int(held[end] - held[begin])])[0]
    return named


def _ready_ns(graph: Graph, backwards: list[Backward]) -> NDArray[np.int64]:
    """(k,) median over the steps of when the last rank's gradient is ready, from the first gradient's begin."""
    reached = [
        np.cumsum(graph.duration_ns[backward.thread])[np.searchsorted(backward.thread, backward.ready)]
        for backward in backwards
    ]
    return np.rint(np.median(reached, axis=0)).astype(np.int64)
