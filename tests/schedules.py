"""Random graphs of all relations, and the recorded replay straight from its definition, in pure Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from makespan.graph import EdgeKind, Edges, Evidence, Graph, OpKind, Relation, Step, Stream, StreamKind, assemble
from makespan.schedule import BY_DURATION, BY_NOTHING, BY_STREAM, Schedule

HOST_KINDS = (OpKind.HOST, OpKind.PYTHON, OpKind.RUNTIME, OpKind.THINK, OpKind.WAIT, OpKind.COLLECTIVE)
DEVICE_KINDS = (OpKind.COMPUTE, OpKind.MEMCPY, OpKind.MEMSET, OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV)
NAMES = ("aten::mm", "aten::add", "cudaLaunchKernel", "nccl:all_reduce", "think time", "train.py(3): loop")


def sweep(graph: Graph, duration_ns: Sequence[int] | None = None, lag_ns: Sequence[int] | None = None) -> Schedule:
    """Recorded replay, op by op: the earliest times that edges and stream order allow, and what set them."""
    count = len(graph)
    duration = list(graph.duration_ns if duration_ns is None else duration_ns)
    lag = list(graph.lag_ns if lag_ns is None else lag_ns)
    start, end = [0] * count, [0] * count
    bound_by, bound_edge, end_bound = [-1] * count, [BY_NOTHING] * count, [BY_DURATION] * count
    last_on: dict[int, int] = {}
    for op in range(count):
        stream = int(graph.stream[op])
        incoming = range(graph.pred_ptr[op], graph.pred_ptr[op + 1])
        instants = {
            edge: int((start if graph.relation[edge] & 1 else end)[graph.pred[edge]] + lag[edge]) for edge in incoming
        }
        starts = [edge for edge in incoming if not graph.relation[edge] & 2]
        if starts:
            edge = max(starts, key=lambda item: instants[item])
            start[op], bound_by[op], bound_edge[op] = instants[edge], int(graph.pred[edge]), edge
        before = last_on.get(stream)
        if before is not None and end[before] > start[op]:
            start[op], bound_by[op], bound_edge[op] = end[before], before, BY_STREAM
        end[op] = start[op] + int(duration[op])
        for edge in incoming:
            if graph.relation[edge] & 2 and instants[edge] > end[op]:
                end[op], end_bound[op] = instants[edge], edge
        if graph.streams[stream].kind != StreamKind.SHARED:
            last_on[stream] = op
    return Schedule(
        graph,
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array(bound_by, np.int32),
        np.array(bound_edge, np.int32),
        "recorded",
        np.array(end_bound, np.int32) if np.any(graph.relation & 2) else None,
    )


@st.composite
def graphs(
    draw: st.DrawFn, max_ops: int = 24, max_ranks: int = 2, device: bool | None = None, shared: bool = True
) -> Graph:
    """Ranks with two host threads each and, where `device` says so or chance, two device streams and a link."""
    ranks = draw(st.integers(1, max_ranks))
    streams: list[Stream] = []
    for rank in range(ranks):
        streams += [Stream(rank, "main", StreamKind.HOST), Stream(rank, "autograd", StreamKind.HOST)]
        if draw(st.booleans()) if device is None else device:
            streams += [Stream(rank, f"stream {number}", StreamKind.DEVICE, 0) for number in (7, 20)]
        if shared and draw(st.booleans()):
            streams.append(Stream(rank, "nic", StreamKind.SHARED))
    count = draw(st.integers(1, max_ops))
    place = draw(st.lists(st.integers(0, len(streams) - 1), min_size=count, max_size=count))
    kinds = [
        draw(st.sampled_from(HOST_KINDS if streams[stream].kind == StreamKind.HOST else DEVICE_KINDS))
        for stream in place
    ]
    edges = draw(
        st.lists(
            st.tuples(
                st.integers(0, count - 1),
                st.integers(0, count - 1),
                st.integers(0, 5),
                st.sampled_from(list(Relation)),
                st.sampled_from(list(EdgeKind)),
                st.sampled_from(list(Evidence)),
            ).filter(lambda edge: edge[0] < edge[1]),
            max_size=2 * count,
        )
    ) if count > 1 else []  # fmt: skip
    columns = np.array(edges, np.int64).reshape(-1, 6).T
    step_names = ("ProfilerStep#1", "ProfilerStep#2")
    step = draw(st.lists(st.integers(-1, 1), min_size=count, max_size=count))
    marked = []
    for rank in range(ranks):
        own = [op for op in range(count) if streams[place[op]].rank == rank]
        if own and draw(st.booleans()):
            middle = len(own) // 2
            marked.append(Step(step_names[0], rank, own[0], own[middle], 0, 7))
            marked.append(Step(step_names[1], rank, own[middle], own[-1], 7, 20))
    graph, _ = assemble(
        kind=kinds,
        stream=place,
        duration_ns=draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)),
        streams=streams,
        name=draw(st.lists(st.integers(0, len(NAMES) - 1), min_size=count, max_size=count)),
        names=NAMES,
        edges=Edges.of(*columns),
        order_ns=np.arange(count),
        size_bytes=np.arange(count) * 10,
        step=step,
        step_names=step_names,
        steps=marked,
        attrs={"measured_start_ns": np.arange(count) * 3, "event": np.full(count, -1, np.int32)},
    )
    graph.verify()
    return graph
