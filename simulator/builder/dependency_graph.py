"""Dependency graph: a rank whose file states its dependencies itself (Chakra and other execution traces)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from makespan.graph import NONE, EdgeKind, Edges, Evidence, OpKind, Step, Stream, StreamKind
from makespan.simulator.builder.rank_graph import OP_KIND, RankGraph
from makespan.trace import EventKind, LaneKind, RankTrace


def build_dependency_graph(part: RankTrace, origin_ns: int) -> RankGraph:
    """One op for each event, one edge for each stated dependency; what is not stated is not guessed.

    What waits for nothing starts when it was first seen, if the file says when. An explicit wait ends with what it
    waits for, and keeps only what it took beyond. Marked steps are no ops.
    """
    events = part.events
    rows = np.flatnonzero(events.kind != EventKind.STEP).astype(np.int32)
    count = len(rows)
    op_of = np.full(len(events), NONE, np.int32)
    op_of[rows] = np.arange(count, dtype=np.int32)
    # A source of -1 is the moment at which the recording began.
    source = np.where(part.dependency_source >= 0, op_of[part.dependency_source], NONE)
    target = op_of[part.dependency_target]
    start_ns, end_ns = events.start_ns[rows].copy(), events.end_ns[rows]
    waits = events.kind[rows] == EventKind.WAIT
    awaited_ns = start_ns.copy()
    np.maximum.at(awaited_ns, target[source >= 0], end_ns[source[source >= 0]])
    start_ns[waits] = np.minimum(awaited_ns, end_ns)[waits]
    kinds = {
        LaneKind.HOST: StreamKind.HOST,
        LaneKind.DEVICE: StreamKind.DEVICE,
        LaneKind.OTHER: StreamKind.LINK,
    }
    streams = tuple(
        Stream(part.rank, lane.label or lane.thread, kinds[lane.kind], lane.device) for lane in events.lanes
    )
    op_kind = np.full(256, OpKind.OTHER, np.uint8)
    for event_kind, kind in OP_KIND.items():
        op_kind[event_kind] = kind
    sizes = events.attrs.get("bytes")
    size_bytes = (
        np.maximum(sizes.dense(len(events), 0), 0).astype(np.int64) if sizes else np.zeros(len(events), np.int64)
    )
    at_origin = source < 0
    edges = Edges.of(
        source,
        target,
        np.where(at_origin, events.start_ns[rows][target] - origin_ns, 0),
        kind=np.where(at_origin, EdgeKind.ORIGIN, EdgeKind.DATA),
        evidence=np.where(at_origin, Evidence.RESIDUAL, Evidence.MEASURED),
    )
    step, steps = _find_steps(part, rows)
    return RankGraph(
        streams=streams,
        stream=events.lane[rows],
        kind=op_kind[events.kind[rows]],
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        size_bytes=size_bytes[rows],
        event=rows,
        outer=np.full(count, NONE, np.int32),
        user_range=np.full(count, NONE, np.int32),
        name=events.name[rows],
        names=events.names,
        step=step,
        step_names=tuple(found.name for found in steps),
        steps=steps,
        edges=edges,
        notes={},
    )


def _find_steps(part: RankTrace, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], tuple[Step, ...]]:
    """The step that each op of `rows` began in, and the steps: from the first to the last op on the mark's own lane."""
    events = part.events
    start_ns, end_ns = events.start_ns[rows], events.end_ns[rows]
    step = np.full(len(rows), NONE, np.int32)
    steps: list[Step] = []
    marks = np.flatnonzero(events.kind == EventKind.STEP)
    for mark in marks[np.argsort(events.start_ns[marks], kind="stable")].tolist():
        begin_ns, until_ns = int(events.start_ns[mark]), int(events.end_ns[mark])
        inside = (start_ns >= begin_ns) & (start_ns < until_ns)
        own = np.flatnonzero(inside & (events.lane[rows] == events.lane[mark]))
        if len(own):
            step[inside] = len(steps)
            first, last = own[np.argmin(start_ns[own])], own[np.argmax(end_ns[own])]
            steps.append(Step(events.name_of(mark), part.rank, int(first), int(last), begin_ns, until_ns))
    return step, tuple(steps)
