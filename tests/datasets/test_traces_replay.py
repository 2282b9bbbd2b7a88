"""The bundled traces through the public verbs: everything recorded arrives, replays exactly and can be asked about."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import makespan as ms
from makespan.graph import EdgeKind, Evidence, OpKind
from makespan.trace import EventKind, Trace

NAMES = ("cnn_step", "transformer_step", "ddp_gloo_2ranks", "ddp_gloo_2ranks_straggler")
DDP = NAMES[2:]


@cache
def loaded(name: str) -> Trace:
    return ms.load(ms.bundled_trace(name))


@cache
def replayed(name: str) -> ms.Replay:
    return ms.replay(ms.build(loaded(name)))


def plain(path: Path) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def count(events: list[dict[str, Any]], **wanted: str) -> int:
    return sum(all(event.get(key) == value for key, value in wanted.items()) for event in events)


@pytest.mark.parametrize("name", NAMES)
def test_every_event_arrives_as_what_it_is(name: str) -> None:
    for part, path in zip(loaded(name), sorted(ms.bundled_trace(name).glob("*.json.gz")), strict=True):
        events = plain(path)
        kinds = np.bincount(part.events.kind, minlength=len(EventKind))
        assert kinds[EventKind.CPU_OP] == count(events, cat="cpu_op")
        assert kinds[EventKind.STEP] == 6
        assert kinds[EventKind.COLLECTIVE] == count(events, name="gloo:all_reduce")
        assert kinds[EventKind.WAIT] == count(events, name="makespan::wait ddp gradients")
        ranges = count(events, cat="user_annotation") - kinds[EventKind.COLLECTIVE] - kinds[EventKind.WAIT] - 6
        assert kinds[EventKind.ANNOTATION] == ranges + count(events, cat="Trace")
        assert len(part.events.flow_source) == count(events, ph="s")


@pytest.mark.parametrize("name", NAMES)
def test_replay_reproduces_every_step(name: str) -> None:
    steps = replayed(name).steps()
    measured = json.loads((ms.bundled_trace(name) / "measured.json").read_text())
    told = [length / 1e6 for rank in measured["ranks"] for length in rank["recorded_step_ns"]]
    assert steps["measured_ms"].tolist() == pytest.approx(told, abs=1e-6)
    assert steps["error_pct"].abs().max() < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_extent_of_the_recording_is_no_work(name: str) -> None:
    """A span over everything would be the critical path all by itself."""
    path, graph = replayed(name).critical_path(), replayed(name).graph
    assert path.length_ns == replayed(name).makespan_ns
    assert not any(graph.names[code].startswith("PyTorch Profiler") for code in np.unique(graph.name))
    assert path.by_name()["share_pct"].max() < 70


@pytest.mark.parametrize("name", DDP)
def test_waits_for_gradients_are_no_compute(name: str) -> None:
    """What the training thread did not do inside the wait ranges is wait, or idle until an all-reduce ended."""
    graph = replayed(name).graph
    waits = graph.kind == OpKind.WAIT
    assert {graph.name_of(op) for op in np.flatnonzero(waits)} == {"makespan::wait ddp gradients"}
    for part in loaded(name):
        events = part.events
        ranges = np.flatnonzero(events.kind == EventKind.WAIT)
        inside = [events.duration_ns[row] - _outermost_ops_ns(part.events, int(row)) for row in ranges.astype(int)]
        assert 0 < graph.duration_ns[waits & (graph.rank == part.rank)].sum() <= sum(inside)


def _outermost_ops_ns(events: Any, row: int) -> int:
    """Time that ops of the same thread take inside event `row`."""
    begin, end = events.start_ns[row], events.end_ns[row]
    mine = (events.lane == events.lane[row]) & (events.kind == EventKind.CPU_OP)
    mine &= (events.start_ns >= begin) & (events.end_ns <= end)
    total, reach = 0, begin
    for op in np.flatnonzero(mine)[np.argsort(events.start_ns[mine], kind="stable")]:
        if events.start_ns[op] >= reach:
            total += int(events.duration_ns[op])
            reach = events.end_ns[op]
    return total


def test_straggler_shows_in_the_other_ranks_communication() -> None:
    clean, slowed = (replayed(name).overlap().set_index("rank") for name in DDP)
    assert slowed["exposed_ns"][0] > 2 * clean["exposed_ns"][0]
    assert slowed["exposed_ns"][0] > 2 * slowed["exposed_ns"][1]


def test_removing_the_extra_work_frees_rank_1_by_about_its_time() -> None:
    graph = ms.build(ms.load(ms.bundled_trace(DDP[1]) / "rank1.json.gz"))
    extra = np.array([name == "aten::bmm" for name in graph.names])[graph.name]
    steps = ms.whatif(graph, remove=["name:^aten::bmm$"]).steps()
    saved_ms = (steps["baseline_ms"] - steps["changed_ms"]).sum()
    assert saved_ms == pytest.approx(graph.duration_ns[extra].sum() / 1e6, rel=0.15)
    assert saved_ms > 6 * 10


def test_only_the_straggler_does_the_extra_work() -> None:
    for name, ranks in ((DDP[0], set[int]()), (DDP[1], {1})):
        graph = replayed(name).graph
        extra = np.array([told == "aten::bmm" for told in graph.names])[graph.name]
        assert set(graph.rank[extra].tolist()) == ranks


@pytest.mark.parametrize("name", DDP)
def test_all_reduces_behind_a_busy_worker_are_not_late_by_themselves(name: str) -> None:
    """Two workers of gloo's serve five all-reduces: the later ones queue, which is no lag of their calls."""
    graph = replayed(name).graph
    launches = (graph.edge_kind == EdgeKind.LAUNCH) & (graph.evidence == Evidence.INFERRED)
    assert np.count_nonzero(launches) == 60
    assert graph.lag_ns[launches].max() < 1_000_000


def test_without_the_straggler_both_ranks_are_faster() -> None:
    """The clean capture is what really happens; nothing of it is in the prediction. The rest is contention."""
    cured = ms.whatif(replayed(DDP[1]).graph, remove=["name:^aten::bmm$"])
    predicted = cured.steps().groupby("rank")["changed_ms"].median()
    slow = replayed(DDP[1]).steps().groupby("rank")["measured_ms"].median()
    clean = replayed(DDP[0]).steps().groupby("rank")["measured_ms"].median()
    for rank in (0, 1):
        assert predicted[rank] < 0.85 * slow[rank]
        assert predicted[rank] == pytest.approx(clean[rank], rel=0.2)
