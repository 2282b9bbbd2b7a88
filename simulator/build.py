"""Build: a trace of one or many ranks becomes the global dataflow graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.errors import TraceError
from makespan.graph import NONE, Edges, Graph, OpKind, Step, Stream, StreamKind, assemble
from makespan.simulator.builder.dependency_graph import build_dependency_graph
from makespan.simulator.builder.rank_graph import RankGraph, build_rank_graph, mark_whole_trace
from makespan.simulator.builder.rendezvous import join_collectives
from makespan.trace import EventKind, EventTable, NameTable, RankTrace, Trace

NO_WORK: Final = (
    EventKind.ANNOTATION, EventKind.DEVICE_ANNOTATION, EventKind.SYNC_RECORD, EventKind.OVERHEAD, EventKind.INSTANT,
    EventKind.COUNTER,
)  # fmt: skip


def build(trace: Trace) -> Graph:
    """The dataflow graph of all ranks in `trace`.

    Op 0 is the origin at time zero; work whose cause was not recorded hangs on it. Attributes, -1 where there is
    none: `event` (n,) int32 row in the rank's event table; `outer` (n,) int32 name of the outermost event around
    a host op; `user_range` (n,) int32 name of the innermost annotation around it or around the launch of device
    work; `measured_start_ns` (n,) int64 from the origin.
    Captures add `parameter` (n,) int32, the name of the parameter whose gradient is complete when an op ends, and
    `bucket` (n,) int32, the gradient bucket that a collective reduces. Ranks on a common clock keep their offsets,
    and their collectives wait for each other; otherwise each starts at time zero. Raises TraceError where nothing
    in the trace has a duration.
    """
    timed = [part for part in trace if part.timed and len(part.events)]
    if not timed:
        told = ", ".join(part.source for part in trace) or "the trace"
        if not len(trace):
            raise TraceError(f"{told}: holds no event, so there is nothing to replay; record a longer run")
        raise TraceError(
            f"{told}: no event has a time, so there is nothing to replay; give the timed trace of the same run as well"
        )
    origins, aligned = _origins(timed)
    parts = [_build_rank(part, origin) for part, origin in zip(timed, origins, strict=True)]
    notes: dict[str, int] = {}
    for found in parts:
        for reason, count in found.notes.items():
            notes[reason] = notes.get(reason, 0) + count
    if not aligned:
        notes["ranks on clocks of their own, each starts at time zero"] = len(timed)
    meetings = Edges.of(np.empty(0), np.empty(0))
    if aligned and len(parts) > 1:
        met = join_collectives(parts, timed, origins)
        parts, meetings = met.parts, met.edges
        notes.update(met.notes)
    return _join(parts, timed, origins, meetings, notes)


def _build_rank(part: RankTrace, origin_ns: int) -> RankGraph:
    stated = len(part.dependency_source) > 0
    graph = build_dependency_graph(part, origin_ns) if stated else build_rank_graph(part, origin_ns)
    return graph if graph.steps else mark_whole_trace(graph, part.rank, origin_ns)


def _first_work_ns(part: RankTrace) -> int:
    """Start of the first event that stands for work, or of the first at all where there is none."""
    events = part.events
    works = ~np.isin(events.kind, NO_WORK)
    return int(events.start_ns[works].min() if np.any(works) else events.start_ns.min())


def _origins(parts: list[RankTrace]) -> tuple[list[int], bool]:
    """Time zero on each rank's own clock, and whether all ranks share a clock."""
    first = [_first_work_ns(part) for part in parts]
    spans = [
        (start + part.clock_base_ns, int(part.events.end_ns.max()) + part.clock_base_ns)
        for part, start in zip(parts, first, strict=True)
    ]
    zero = min(start for start, _ in spans)
    overlap = max(start for start, _ in spans) < min(end for _, end in spans)
    if len({part.clock for part in parts}) == 1 and overlap:
        return [zero - part.clock_base_ns for part in parts], True
    return first, len(parts) == 1


def _join(
    parts: list[RankGraph], ranks: list[RankTrace], origins: list[int], meetings: Edges, notes: dict[str, int]
) -> Graph:
    names, step_names = NameTable(["trace start"]), NameTable()
    streams = [Stream(ranks[0].rank, "trace", StreamKind.HOST)]
    columns: list[dict[str, NDArray[Any]]] = [
        {
            "kind": np.array([OpKind.ORIGIN]), "stream": np.zeros(1, np.int64), "duration_ns": np.zeros(1, np.int64),
            "size_bytes": np.zeros(1, np.int64), "name": np.zeros(1, np.int64), "step": np.full(1, NONE),
            "event": np.full(1, NONE), "outer": np.full(1, NONE), "user_range": np.full(1, NONE),
            "start_ns": np.zeros(1, np.int64), "parameter": np.full(1, NONE), "bucket": np.full(1, NONE),
        }
    ]  # fmt: skip
    edges: list[Edges] = []
    steps: list[Step] = []
    offset = 1
    for part, rank, origin_ns in zip(parts, ranks, origins, strict=True):
        code = np.array([names.code(name) for name in part.names], np.int64)
        step_code = np.array([step_names.code(name) for name in part.step_names], np.int64)
        columns.append(
            {
                "kind": part.kind, "stream": part.stream + len(streams), "duration_ns": part.duration_ns,
                "size_bytes": part.size_bytes, "name": code[part.name],
                "step": np.where(part.step >= 0, step_code[part.step], NONE), "event": part.event,
                "outer": np.where(part.outer >= 0, code[rank.events.name[part.outer]], NONE),
                "user_range": np.where(part.user_range >= 0, code[rank.events.name[part.user_range]], NONE),
                "start_ns": part.start_ns - origin_ns, "parameter": _parameters(part, rank.events, names),
                "bucket": _buckets(part, rank.events),
            }
        )  # fmt: skip
        streams.extend(part.streams)
        # A source of -1 is the trace's origin, op 0.
        source = np.where(part.edges.source >= 0, part.edges.source + offset, 0).astype(np.int32)
        edges.append(replace(part.edges, source=source, target=part.edges.target + np.int32(offset)))
        steps.extend(
            replace(
                step,
                begin_op=step.begin_op + offset if step.begin_op >= 0 else 0,
                end_op=step.end_op + offset,
                measured_start_ns=step.measured_start_ns - origin_ns,
                measured_end_ns=step.measured_end_ns - origin_ns,
            )
            for step in part.steps
        )
        offset += len(part.kind)
    edges.append(replace(meetings, source=meetings.source + np.int32(1), target=meetings.target + np.int32(1)))
    joined: dict[str, Any] = {key: np.concatenate([part[key] for part in columns]) for key in columns[0]}
    start_ns = joined.pop("start_ns")
    attrs = {key: joined.pop(key).astype(np.int32) for key in ("event", "outer", "user_range")}
    # Only captures tell of gradients.
    told = {key: joined.pop(key).astype(np.int32) for key in ("parameter", "bucket")}
    attrs.update({key: column for key, column in told.items() if np.any(column >= 0)})
    graph, _ = assemble(
        **joined,
        streams=streams,
        names=names.names(),
        edges=Edges.concatenate(edges),
        order_ns=start_ns,
        step_names=step_names.names(),
        steps=steps,
        attrs={**attrs, "measured_start_ns": start_ns},
        origin_ns=origins[0] + ranks[0].clock_base_ns,
        notes=notes,
    )
    return graph


def _parameters(part: RankGraph, events: EventTable, names: NameTable) -> NDArray[np.int32]:
    """(n,) code of the parameter whose gradient is complete when an op ends: the last op of its event."""
    parameter = np.full(len(part.kind), NONE, np.int32)
    told = events.attrs.get("parameter")
    if told is not None and told.table is not None:
        last = np.full(len(events), NONE, np.int64)
        works = np.flatnonzero((part.event >= 0) & (part.kind != OpKind.MARK))
        last[part.event[works]] = works
        code = np.array([names.code(name) for name in told.table], np.int32)
        found = last[told.rows] >= 0
        parameter[last[told.rows[found]]] = code[told.values[found]]
    return parameter


def _buckets(part: RankGraph, events: EventTable) -> NDArray[np.int32]:
    """(n,) the gradient bucket that a collective reduces."""
    bucket = np.full(len(part.kind), NONE, np.int32)
    told = events.attrs.get("bucket")
    if told is not None:
        reduces = (part.event >= 0) & (part.kind == OpKind.COLLECTIVE)
        bucket[reduces] = told.dense(len(events))[part.event[reduces]]
    return bucket
