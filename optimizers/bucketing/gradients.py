"""Gradients: where in a captured graph each rank's gradients become ready, are reduced, and are waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from makespan.capture_file import COPY_OUT
from makespan.errors import PassError
from makespan.graph import NONE, Graph, OpKind


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward pass of one rank in one step, by op numbers of its graph.

    `ready` (k,) int64: the op whose end makes each gradient ready, in that order, with `parameter` (k,) int32, a
    name code, and `size_bytes` (k,) int64. `reductions` (b,): the collectives of its buckets in order, with
    `bucket_of` (k,) int64, the bucket that each gradient went into (-1 where that is not known). `others`: the
    arrivals and meeting points that belong to the reductions; `launches` (b,): the ops that enqueued them.
    `wait`, `copy_out`: the ops that await them and that copy the results, -1 for none; `thread`: ops of the
    training thread from the first gradient on, in order; `link`: the stream that the reductions run on, -1 none.
    """

    rank: int
    step: int
    ready: NDArray[np.int64]
    parameter: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    bucket_of: NDArray[np.int64]
    reductions: NDArray[np.int64]
    others: NDArray[np.int64]
    launches: NDArray[np.int64]
    wait: int
    copy_out: int
    thread: NDArray[np.int64]
    link: int

    def sizes(self) -> dict[int, int]:
        """Bytes of each parameter's gradient, by name code."""
        return dict(zip(self.parameter.tolist(), self.size_bytes.tolist(), strict=True))


def find_backwards(graph: Graph) -> list[Backward]:
    """The last backward pass of each step on each rank, in the order of ranks, then steps.

    Raises PassError where the graph tells of no gradients, or where ranks differ in their parameters.
    """
    parameter = graph.attrs.get("parameter")
    if parameter is None or not np.any(parameter >= 0):
        raise PassError(
            "the graph tells of no gradients; record the job with makespan.capture, which notes when each is ready"
        )
    found: list[Backward] = []
    for rank in np.unique(graph.rank[parameter >= 0]).tolist():
        of_rank = np.flatnonzero((graph.rank == rank) & (graph.step >= 0))
        for step in np.unique(graph.step[of_rank]).tolist():
            backward = _find(graph, parameter, of_rank[graph.step[of_rank] == step], rank, step)
            if backward is not None:
                found.append(backward)
    whole = {frozenset(backward.parameter.tolist()) for backward in found}
    if len(whole) != 1:
        raise PassError(
            "the steps of this capture end with gradients of different parameters on some ranks or steps; buckets can "
            "only be planned where every step trains all of them"
        )
    return found


def _find(graph: Graph, parameter: NDArray[np.int32], ops: NDArray[np.int64], rank: int, step: int) -> Backward | None:
    gradients = ops[parameter[ops] >= 0]
    if not len(gradients):
        return None
    # With gradient accumulation a parameter comes several times; what is reduced is complete after the last time.
    _, last = np.unique(parameter[gradients][::-1], return_index=True)
    ready = np.sort(gradients[len(gradients) - 1 - last])
    thread = ops[(graph.stream[ops] == graph.stream[ready[0]]) & (ops >= ready[0])]
    bucket = graph.attrs.get("bucket")
    if bucket is None:
        bucket = np.full(len(graph), NONE, np.int32)
    reductions = ops[(bucket[ops] >= 0) & (graph.kind[ops] == OpKind.COLLECTIVE)]
    others, launches = _what_led_to(graph, reductions)
    waits = thread[graph.kind[thread] == OpKind.WAIT]
    named = [int(op) for op in thread if graph.name_of(int(op)) == COPY_OUT]
    return Backward(
        rank=rank,
        step=step,
        ready=ready,
        parameter=parameter[ready],
        size_bytes=graph.size_bytes[ready],
        bucket_of=bucket[ready].astype(np.int64),
        reductions=reductions,
        others=others,
        launches=launches,
        wait=int(waits[-1]) if len(waits) else NONE,
        copy_out=named[-1] if named else NONE,
        thread=thread,
        link=int(graph.stream[reductions[0]]) if len(reductions) else NONE,
    )


def _what_led_to(graph: Graph, reductions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Arrivals and meeting points of `reductions`, and the ops of their own rank that enqueued them, ascending."""
    others: set[int] = set()
    launches: set[int] = set()
    waiting = reductions.tolist()
    while waiting:
        op = waiting.pop()
        for before in graph.pred[graph.pred_ptr[op] : graph.pred_ptr[op + 1]].tolist():
            if graph.kind[before] in (OpKind.MARK, OpKind.BARRIER):
                if before not in others and (
                    graph.rank[before] == graph.rank[op] or graph.kind[before] == OpKind.BARRIER
                ):
                    others.add(before)
                    waiting.append(before)
            elif graph.kind[before] == OpKind.HOST and graph.rank[before] == graph.rank[reductions[0]]:
                launches.add(before)
    return np.array(sorted(others), np.int64), np.array(sorted(launches), np.int64)


def ready_order(backwards: Sequence[Backward]) -> list[int]:
    """Parameter codes in the order in which their gradients become ready: that of the first rank's first step.

    Frameworks number their buckets by the order of one early step on the first rank.
    """
    return backwards[0].parameter.tolist()
