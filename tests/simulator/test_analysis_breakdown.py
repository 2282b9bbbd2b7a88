"""Breakdown and overlap against a sweep that looks at every single nanosecond, and on schedules written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from schedules import graphs, sweep

from makespan.graph import (
    COMMUNICATION,
    NONE,
    EdgeKind,
    Edges,
    Evidence,
    Graph,
    OpKind,
    Relation,
    Step,
    Stream,
    StreamKind,
    assemble,
)
from makespan.schedule import BY_STREAM, Schedule
from makespan.simulator.analysis.activity import IDLE, Activity, main_thread, rank_activities
from makespan.simulator.analysis.breakdown import breakdown, idle_by_op
from makespan.simulator.analysis.overlap import overlap, overlap_by_name
from makespan.simulator.analysis.steps import WHOLE
from makespan.simulator.build import build
from makespan.simulator.load import load
from makespan.simulator.replay import replay

IDLE_BY_KIND = {OpKind.PYTHON: "PYTHON", OpKind.THINK: "THINK", OpKind.WAIT: "SYNC_WAIT"}
IDLE_BY_EDGE = {
    EdgeKind.LAUNCH: "LAUNCH", EdgeKind.STREAM: "STREAM_GAP", EdgeKind.GRAPH: "STREAM_GAP",
    EdgeKind.SYNC: "SYNC_WAIT", EdgeKind.QUEUE: "SYNC_WAIT", EdgeKind.HANDOFF: "SYNC_WAIT",
    EdgeKind.THREAD: "SYNC_WAIT", EdgeKind.COLLECTIVE: "COLLECTIVE_WAIT",
}  # fmt: skip


def cause_at(schedule: Schedule, rank: int, op: int, at_end: bool, moment: int) -> tuple[str, int]:
    """Why `op` had not started (or ended) at `moment` to `moment` + 1, by walking its chain in plain Python."""
    graph = schedule.graph
    while True:
        now = int((schedule.end_ns if at_end else schedule.start_ns)[op])
        edge = -1
        if at_end:
            edge = -1 if schedule.end_bound_edge is None else int(schedule.end_bound_edge[op])
        elif schedule.bound_edge[op] >= 0:
            edge = int(schedule.bound_edge[op])
        if edge >= 0:
            source, source_end = (
                int(graph.pred[edge]),
                graph.relation[edge] in (Relation.FINISH_START, Relation.FINISH_FINISH),
            )
        elif at_end:
            source, source_end = op, False
        else:
            assert schedule.bound_edge[op] == BY_STREAM
            source, source_end = int(schedule.bound_by[op]), True
        before = int((schedule.end_ns if source_end else schedule.start_ns)[source])
        if before <= moment < now:
            break
        op, at_end = source, source_end
    foreign = graph.rank[op] != rank
    if edge < 0:
        return ("COLLECTIVE_WAIT" if foreign else IDLE_BY_KIND.get(OpKind(graph.kind[op]), "HOST_OP")), op
    if graph.evidence[edge] == Evidence.RESIDUAL or graph.edge_kind[edge] == EdgeKind.ORIGIN:
        return "UNRECORDED", op
    if foreign or graph.rank[graph.pred[edge]] != graph.rank[op]:
        return "COLLECTIVE_WAIT", op
    return IDLE_BY_EDGE.get(EdgeKind(graph.edge_kind[edge]), "STREAM_WAIT"), op


def activity_at(schedule: Schedule, rank: int, moment: int) -> tuple[str, int]:
    """What `rank` does from `moment` to `moment` + 1, and the op to blame where it is idle."""
    graph = schedule.graph
    lasting = [op for op in range(len(graph)) if graph.rank[op] == rank and schedule.end_ns[op] > schedule.start_ns[op]]
    on_device = [graph.streams[stream].kind == StreamKind.DEVICE for stream in graph.stream]
    has_device = any(on_device[op] for op in lasting)
    main = main_thread(schedule, rank)
    works = [op for op in lasting if (on_device[op] if has_device else graph.stream[op] == main)]
    quiet = (OpKind.PYTHON, OpKind.THINK, OpKind.WAIT)
    busy = [op for op in lasting if graph.kind[op] in COMMUNICATION or op in works]
    running = {OpKind(graph.kind[op]) for op in busy if schedule.start_ns[op] <= moment < schedule.end_ns[op]}
    copies = running & {OpKind.MEMCPY, OpKind.MEMSET}
    comm = running & set(COMMUNICATION)
    silent = set() if has_device else running & set(quiet)
    compute = running - copies - comm - silent
    if comm:
        return ("OVERLAPPED_COMM" if compute or OpKind.PYTHON in silent else "EXPOSED_COMM"), -1
    if compute:
        return "COMPUTE", -1
    if copies:
        return "MEMORY", -1
    for kind, name in ((OpKind.PYTHON, "PYTHON"), (OpKind.WAIT, "SYNC_WAIT"), (OpKind.THINK, "THINK")):
        if kind in silent:
            return name, -1
    later = [op for op in busy if schedule.start_ns[op] > moment]
    if later:
        soonest = min(later, key=lambda op: (schedule.start_ns[op], op))
        return cause_at(schedule, rank, soonest, False, moment)
    last = max(lasting, key=lambda op: (schedule.end_ns[op], -op))
    if schedule.end_ns[last] > moment:
        return cause_at(schedule, rank, last, True, moment)
    return "FINISHED", -1


@given(graphs())
def test_every_nanosecond_is_what_a_slow_look_at_it_says(graph: Graph) -> None:
    schedule = sweep(graph)
    for found in rank_activities(schedule):
        assert found.from_ns[0] == 0
        assert found.to_ns[-1] == schedule.makespan_ns
        assert np.array_equal(found.from_ns[1:], found.to_ns[:-1])
        assert np.all(found.to_ns > found.from_ns)
        length = found.to_ns - found.from_ns
        told = [(Activity(kind).name, int(op)) for kind, op in zip(found.activity, found.op, strict=True)]
        each = [span for span, times in zip(told, length, strict=True) for _ in range(times)]
        assert each == [activity_at(schedule, found.rank, moment) for moment in range(schedule.makespan_ns)]


@given(graphs())
def test_parts_add_up_to_every_window(graph: Graph) -> None:
    schedule = sweep(graph)
    table = breakdown(schedule)
    columns = [f"{kind.name.lower()}_ns" for kind in Activity]
    assert table["window_ns"].tolist() == table[columns].sum(axis=1).tolist()
    whole = table[table["step"] == WHOLE]
    assert set(whole["window_ns"]) <= {schedule.makespan_ns}
    ranks = {int(rank) for rank in graph.rank[schedule.end_ns > schedule.start_ns]}
    assert set(whole["rank"]) == ranks
    for row in table.itertuples():
        if row.step == WHOLE:
            begin, end = 0, schedule.makespan_ns
        else:
            step = next(step for step in graph.steps if (step.name, step.rank) == (row.step, row.rank))
            begin, end = schedule.start_ns[step.begin_op], schedule.end_ns[step.end_op]
        assert row.window_ns == end - begin
        counted = [activity_at(schedule, row.rank, moment)[0] for moment in range(begin, end)]
        assert [getattr(row, name) for name in columns] == [counted.count(kind.name) for kind in Activity]


@given(graphs())
def test_hidden_and_exposed_communication_by_every_nanosecond(graph: Graph) -> None:
    schedule = sweep(graph)
    table = overlap(schedule)
    for row in table.itertuples():
        seen = [activity_at(schedule, row.rank, moment)[0] for moment in range(schedule.makespan_ns)]
        assert row.hidden_ns == seen.count("OVERLAPPED_COMM")
        assert row.exposed_ns == seen.count("EXPOSED_COMM")
        assert row.comm_ns == row.hidden_ns + row.exposed_ns
        assert np.isnan(row.hidden_pct) if row.comm_ns == 0 else row.hidden_pct == 100 * row.hidden_ns / row.comm_ns
    by_name = overlap_by_name(schedule)
    for row in by_name.itertuples():
        ops = [
            op
            for op in range(len(graph))
            if graph.rank[op] == row.rank and graph.name_of(op) == row.name and graph.kind[op] in COMMUNICATION
        ]
        seen = [
            activity_at(schedule, row.rank, moment)[0]
            for op in ops
            for moment in range(schedule.start_ns[op], schedule.end_ns[op])
        ]
        assert (row.total_ns, row.hidden_ns) == (len(seen), seen.count("OVERLAPPED_COMM"))
        assert row.size_bytes == sum(int(graph.size_bytes[op]) for op in ops)


def two_ranks() -> Graph:
    """Rank 0: a slow host launches a kernel and a collective; rank 1 comes late to it, after nothing recorded."""
    streams = [
        Stream(0, "main", StreamKind.HOST), Stream(0, "stream 7", StreamKind.DEVICE, 0),
        Stream(0, "stream 20", StreamKind.DEVICE, 0),
        Stream(1, "main", StreamKind.HOST), Stream(1, "stream 20", StreamKind.DEVICE, 0),
    ]  # fmt: skip
    names = ["origin", "think time", "cudaLaunchKernel", "gemm", "all_reduce", "loop"]
    ops = [  # kind, stream, duration, name
        (OpKind.ORIGIN, 0, 0, 0),
        (OpKind.THINK, 0, 10, 1),
        (OpKind.RUNTIME, 0, 4, 2),
        (OpKind.COMPUTE, 1, 20, 3),
        (OpKind.PYTHON, 3, 50, 5),
        (OpKind.RUNTIME, 3, 4, 2),
        (OpKind.COLLECTIVE, 2, 30, 4),
        (OpKind.COLLECTIVE, 4, 30, 4),
        (OpKind.COMPUTE, 1, 10, 3),
    ]
    edges = Edges.concatenate(
        [
            Edges.of(0, 4, 7, kind=EdgeKind.ORIGIN, evidence=Evidence.RESIDUAL),
            Edges.of([1, 4], [2, 5], kind=EdgeKind.THREAD),
            Edges.of([2, 2, 5], [3, 6, 7], [6, 6, 6], Relation.START_START, EdgeKind.LAUNCH),
            Edges.of([5, 5], [6, 7], [8, 8], Relation.START_START, EdgeKind.COLLECTIVE),
            Edges.of(6, 8, 3, kind=EdgeKind.EVENT, evidence=Evidence.INFERRED),
        ]
    )
    kind, stream, duration, name = zip(*ops, strict=True)
    return assemble(
        kind=kind, stream=stream, duration_ns=duration, streams=streams, name=name, names=names, edges=edges,
        step_names=["step"], steps=[Step("step", 0, 1, 8)], step=[NONE, *[0] * 8],
    )[0]  # fmt: skip


def test_causes_of_idle_time_written_by_hand() -> None:
    table = breakdown(sweep(two_ranks())).set_index(["rank", "step"])
    told = {
        key: {name.removesuffix("_ns"): int(value) for name, value in row.items() if name.endswith("_ns") and value}
        for key, row in table.iterrows()
    }
    whole = {
        "window": 108, "compute": 30, "exposed_comm": 30, "think": 10, "launch": 6, "collective_wait": 29,
        "stream_wait": 3, "idle": 48,
    }  # fmt: skip
    assert told[0, WHOLE] == whole
    assert told[0, "step"] == whole
    assert told[1, WHOLE] == {
        "window": 108, "exposed_comm": 30, "python": 50, "collective_wait": 8, "unrecorded": 7, "finished": 13,
        "idle": 78,
    }  # fmt: skip
    assert table["device"].all()


def test_idle_time_names_the_op_to_blame() -> None:
    table = idle_by_op(sweep(two_ranks()))
    assert table[["rank", "cause", "name", "time_ns"]].values.tolist() == [
        [1, "python", "loop", 50],
        [0, "collective_wait", "loop", 21],
        [0, "think", "think time", 10],
        [0, "collective_wait", "all_reduce", 8],
        [1, "collective_wait", "all_reduce", 8],
        [1, "unrecorded", "loop", 7],
        [0, "launch", "gemm", 6],
        [0, "stream_wait", "gemm", 3],
    ]


def test_a_rank_without_device_is_told_by_its_main_thread() -> None:
    streams = [Stream(0, "main", StreamKind.HOST), Stream(0, "gloo", StreamKind.HOST)]
    graph, _ = assemble(
        kind=[OpKind.HOST, OpKind.COLLECTIVE, OpKind.PYTHON, OpKind.THINK, OpKind.HOST, OpKind.WAIT],
        stream=[0, 1, 0, 0, 0, 0],
        duration_ns=[10, 25, 5, 5, 5, 2],
        streams=streams,
        name=0,
        names=["op"],
        edges=Edges.concatenate(
            [Edges.of(0, 1, 2, kind=EdgeKind.LAUNCH), Edges.of(1, 5, 4, kind=EdgeKind.HANDOFF)]
        ),
    )  # fmt: skip
    row = breakdown(sweep(graph)).iloc[0]
    assert not row["device"]
    told = {name: int(row[name]) for name in row.index if name.endswith("_ns") and row[name]}
    # 0-10 op, 10-12 op alone, 12-15 frame and 20-25 op under communication, think time and nothing beside it.
    assert told == {
        "window_ns": 43, "compute_ns": 10, "overlapped_comm_ns": 8, "exposed_comm_ns": 17, "python_ns": 2,
        "sync_wait_ns": 6, "idle_ns": 6,
    }  # fmt: skip
    assert overlap(sweep(graph)).values.tolist() == [[0, 25, 8, 17, 32.0]]


def test_every_idle_activity_is_named_once() -> None:
    assert set(IDLE) | {Activity.COMPUTE, Activity.OVERLAPPED_COMM, Activity.EXPOSED_COMM, Activity.MEMORY} == set(
        Activity
    )


def test_a_schedule_in_which_nothing_takes_time_has_no_rows() -> None:
    graph, _ = assemble(
        kind=[OpKind.ORIGIN], stream=[0], duration_ns=[0], streams=[Stream(0, "main", StreamKind.HOST)], name=[0],
        names=["origin"], edges=Edges.concatenate([]),
    )  # fmt: skip
    schedule = sweep(graph)
    assert breakdown(schedule).empty
    assert idle_by_op(schedule).empty
    assert overlap(schedule).empty
    assert overlap_by_name(schedule).empty


def boundary_sweep(schedule: Schedule, rank: int, begin: int, end: int) -> dict[str, int]:
    """Busy time of a rank in a window by a walk over all boundaries of its intervals, with counters."""
    graph = schedule.graph
    device = {number for number, item in enumerate(graph.streams) if item.kind == StreamKind.DEVICE}
    has_device = any(graph.streams[number].rank == rank for number in device)
    works_on = device if has_device else {main_thread(schedule, rank)}
    boundaries: list[tuple[int, int, str]] = []
    for op in np.flatnonzero((graph.rank == rank) & (schedule.end_ns > schedule.start_ns)).tolist():
        kind = OpKind(graph.kind[op])
        if kind in COMMUNICATION:
            what = "comm"
        elif int(graph.stream[op]) not in works_on or (not has_device and kind in (OpKind.THINK, OpKind.WAIT)):
            continue
        else:
            what = "memory" if kind in (OpKind.MEMCPY, OpKind.MEMSET) else "compute"
            what = "python" if kind == OpKind.PYTHON and not has_device else what
        start, stop = max(int(schedule.start_ns[op]), begin), min(int(schedule.end_ns[op]), end)
        if start < stop:
            boundaries += [(start, 1, what), (stop, -1, what)]
    spent = dict.fromkeys(("compute", "overlapped_comm", "exposed_comm", "memory", "python"), 0)
    running = dict.fromkeys(("compute", "comm", "memory", "python"), 0)
    before = begin
    for at, change, what in sorted(boundaries):
        if running["comm"]:
            doing = "overlapped_comm" if running["compute"] or running["python"] else "exposed_comm"
        else:
            doing = next((name for name in ("compute", "memory", "python") if running[name]), "")
        if doing:
            spent[doing] += at - before
        before = at
        running[what] += change
    return spent


@pytest.mark.parametrize(
    "path",
    ["datasets/traces/ddp_gloo_2ranks_straggler", "real/hta/trace_diff__control__control.json.gz",
     "real/param/et_replay__tests__inputs__dlrm_kineto.tar.gz"],
)  # fmt: skip
def test_real_traces_against_a_walk_over_all_boundaries(path: str, request: pytest.FixtureRequest) -> None:
    root = Path(__file__).resolve().parents[2]
    where = root / path if path.startswith("datasets") else request.getfixturevalue("shared") / "traces" / path
    schedule = replay(build(load(where)))
    for row in breakdown(schedule).to_dict("records"):
        begin, end = 0, schedule.makespan_ns
        if row["step"] != WHOLE:
            step = next(s for s in schedule.graph.steps if (s.name, s.rank) == (row["step"], row["rank"]))
            begin, end = int(schedule.start_ns[step.begin_op]), int(schedule.end_ns[step.end_op])
        expected = boundary_sweep(schedule, row["rank"], begin, end)
        told = {name: row[f"{name}_ns"] for name in expected}
        if row["device"]:
            # On a rank with a device, time in interpreter frames is a cause of idle time, not a busy one.
            told["python"] = 0
        assert told == expected
        assert sum(row[f"{kind.name.lower()}_ns"] for kind in Activity) == end - begin
