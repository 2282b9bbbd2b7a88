"""Build: a trace of one or many ranks becomes the global dataflow graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from makespan.errors import TraceError
from makespan.graph import NONE, Edges, Graph, OpKind, Step, Stream, StreamKind, assemble
from makespan.simulator.alignment.align import Alignment
from makespan.simulator.alignment.common_clock import on_common_clock
from makespan.simulator.alignment.matching import Matched, match_collectives
from makespan.simulator.builder.dependency_graph import build_dependency_graph
from makespan.simulator.builder.rank_graph import RankGraph, build_rank_graph, mark_whole_trace
from makespan.simulator.builder.rendezvous import Met, join_collectives
from makespan.trace import EventTable, NameTable, RankTrace, Trace


def build(trace: Trace, *, align: bool | Alignment | None = None, strict: bool = False) -> Graph:
    """The dataflow graph of all ranks in `trace`.

    Op 0 is the origin at time zero; work whose cause was not recorded hangs on it. Attributes, -1 where there is
    none: `event` (n,) int32 row in the rank's event table; `outer` (n,) int32 name of the outermost event around
    a host op; `user_range` (n,) int32 name of the innermost annotation around it or around the launch of device
    work; `measured_start_ns` (n,) int64 from the origin.
    Captures add `parameter` (n,) int32, the name of the parameter whose gradient is complete when an op ends, and
    `bucket` (n,) int32, the gradient bucket that a collective reduces or a gradient goes into. `group`: the
    collective that an op, its arrival or its meeting point belongs to.

    The collectives of several ranks wait for each other. `align` says whether their clocks are aligned before: where
    they disagree by more than the ends of collectives spread (None), always, never, or by a given Alignment. Ranks
    whose clocks can't be compared start at a time zero of their own. `notes` tell what was done and what doesn't fit
    together. Raises TraceError where nothing in the trace has a duration, where `strict` is set and ranks recorded
    collectives that don't fit together, and where `align` is True and nothing ties a rank to the others.
    """
    timed = [part for part in trace if part.timed and len(part.events)]
    if not timed:
        told = ", ".join(part.source for part in trace) or "the trace"
        if not len(trace):
            raise TraceError(f"{told}: holds no event, so there is nothing to replay; record a longer run")
        raise TraceError(
            f"{told}: no event has a time, so there is nothing to replay; give the timed trace of the same run as well"
        )
    matched = match_collectives(timed) if len(timed) > 1 else Matched()
    if strict and matched.problems:
        raise TraceError(next(iter(matched.problems)))
    clock = on_common_clock(timed, matched, align)
    parts = [_build_rank(part, origin) for part, origin in zip(clock.ranks, clock.origins, strict=True)]
    notes: dict[str, int] = {}
    for found in parts:
        for reason, count in found.notes.items():
            notes[reason] = notes.get(reason, 0) + count
    met = join_collectives(parts, matched.meetings, clock.origins, clock.together)
    notes |= clock.notes | matched.problems | matched.notes | met.notes
    return _join(met, clock.ranks, clock.origins, notes)


def _build_rank(part: RankTrace, origin_ns: int) -> RankGraph:
    stated = len(part.dependency_source) > 0
    graph = build_dependency_graph(part, origin_ns) if stated else build_rank_graph(part, origin_ns)
    return graph if graph.steps else mark_whole_trace(graph, part.rank, origin_ns)


def _join(met: Met, ranks: list[RankTrace], origins: list[int], notes: dict[str, int]) -> Graph:
    names, step_names = NameTable(["trace start"]), NameTable()
    streams = [Stream(ranks[0].rank, "trace", StreamKind.HOST)]
    columns: list[dict[str, NDArray[Any]]] = [
        {
            "kind": np.array([OpKind.ORIGIN]), "stream": np.zeros(1, np.int64), "duration_ns": np.zeros(1, np.int64),
            "size_bytes": np.zeros(1, np.int64), "name": np.zeros(1, np.int64), "step": np.full(1, NONE),
            "event": np.full(1, NONE), "outer": np.full(1, NONE), "user_range": np.full(1, NONE),
            "start_ns": np.zeros(1, np.int64), "group": np.full(1, NONE), "parameter": np.full(1, NONE),
            "bucket": np.full(1, NONE),
        }
    ]  # fmt: skip
    edges: list[Edges] = []
    steps: list[Step] = []
    offset = 1
    for part, group, rank, origin_ns in zip(met.parts, met.groups, ranks, origins, strict=True):
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
                "bucket": _buckets(part, rank.events), "group": group,
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
    edges.append(replace(met.edges, source=met.edges.source + np.int32(1), target=met.edges.target + np.int32(1)))
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
    """(n,) the gradient bucket that a collective reduces or that a gradient goes into."""
    bucket = np.full(len(part.kind), NONE, np.int32)
    told = events.attrs.get("bucket")
    if told is not None:
        takes_part = (part.event >= 0) & (part.kind != OpKind.MARK)
        bucket[takes_part] = told.dense(len(events))[part.event[takes_part]]
    return bucket
