"""Dependency graph: a rank whose file states its dependencies itself (Chakra and other execution traces)."""

from __future__ import annotations

import numpy as np

from makespan.graph import NONE, EdgeKind, Edges, Evidence, OpKind, Stream, StreamKind
from makespan.simulator.builder.rank_graph import OP_KIND, RankGraph
from makespan.trace import LaneKind, RankTrace


def build_dependency_graph(part: RankTrace) -> RankGraph:
    """One op for each event, one edge for each stated dependency; what is not stated is not guessed."""
    events = part.events
    count = len(events)
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
    return RankGraph(
        streams=streams,
        stream=events.lane,
        kind=op_kind[events.kind],
        start_ns=events.start_ns,
        duration_ns=events.duration_ns,
        size_bytes=np.maximum(sizes.dense(count, 0), 0).astype(np.int64) if sizes else np.zeros(count, np.int64),
        event=np.arange(count, dtype=np.int32),
        outer=np.full(count, NONE, np.int32),
        user_range=np.full(count, NONE, np.int32),
        name=events.name,
        names=events.names,
        step=np.full(count, NONE, np.int32),
        step_names=(),
        steps=(),
        edges=Edges.of(part.dependency_source, part.dependency_target, kind=EdgeKind.DATA, evidence=Evidence.MEASURED),
        notes={},
    )
