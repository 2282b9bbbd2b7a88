"""Every analysis of a schedule in which ops slowed each other down."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from schedules import graphs

import makespan as ms
from makespan.api import Replay
from makespan.errors import GraphError, MakespanError
from makespan.graph import COMMUNICATION, Graph, StreamKind
from makespan.simulator.analysis.activity import Activity
from makespan.simulator.chrome.reload import read_schedule


@st.composite
def contended_replays(draw: st.DrawFn) -> Replay:
    """Communication contends with everything else of its rank."""
    graph = draw(graphs())
    role = np.where(np.isin(graph.kind, COMMUNICATION), 2, 1).astype(np.int8)
    amounts = [draw(st.sampled_from([1, 1.25, 3])), draw(st.sampled_from([0.1, 0.5, 1]))]
    stretch, share_left = (np.full(len(graph), amount, np.float32) for amount in amounts)
    try:
        return ms.replay(graph.with_attrs(contention=role, stretch=stretch, share_left=share_left), "contended")
    except GraphError as error:
        assert "wait for one another" in str(error)
        assume(False)
        raise


@given(contended_replays())
def test_parts_add_up(replay: Replay) -> None:
    path = replay.critical_path()
    assert path.length_ns == replay.makespan_ns == path.by_kind()["time_ns"].sum() == path.to_frame()["time_ns"].sum()
    table = replay.breakdown()
    assert table["window_ns"].tolist() == table[[f"{kind.name.lower()}_ns" for kind in Activity]].sum(axis=1).tolist()
    assert len(replay.steps()) == max(len(replay.graph.steps), 1)
    assert (replay.idle()["time_ns"] > 0).all()
    assert (replay.overlap().fillna(0).select_dtypes("number") >= 0).all(axis=None)
    frame = replay.to_frame()
    on_shared = replay.graph.on_streams(StreamKind.SHARED)
    lasted = (frame["end_ns"] - frame["start_ns"])[~on_shared]
    assert (frame["duration_ns"] >= frame.get("uncontended_ns", frame["duration_ns"])).all()
    assert (lasted >= frame["duration_ns"][~on_shared]).all()


@given(contended_replays())
def test_slack_is_told_of_what_they_took(replay: Replay) -> None:
    with pytest.raises(MakespanError, match="replay it with order recorded"):
        replay.slack_ns()
    again = ms.replay(replay.graph, "recorded")
    assert np.all(again.slack_ns() >= 0)
    assert again.critical_path().length_ns == again.makespan_ns


@given(contended_replays())
def test_the_timeline_reads_back(tmp_path_factory: pytest.TempPathFactory, replay: Replay) -> None:
    path = Path(tmp_path_factory.mktemp("timeline")) / "timeline.json"
    replay.to_chrome(path)
    told = read_schedule(path)
    assert told.order == "contended"
    assert np.array_equal(told.start_ns, replay.start_ns) and np.array_equal(told.end_ns, replay.end_ns)


def contending_trace() -> Graph:
    """Two ranks with gloo, whose collectives are made to contend with the threads that compute."""
    graph = ms.build(ms.load(ms.bundled_trace("ddp_gloo_2ranks")))
    communicates = np.isin(graph.kind, COMMUNICATION)
    return graph.with_attrs(
        contention=np.where(communicates, 2, 1).astype(np.int8),
        stretch=np.full(len(graph), 1.5, np.float32),
        share_left=np.full(len(graph), 0.7, np.float32),
    )


def test_what_if_of_a_trace_in_contended_order(tmp_path: Path) -> None:
    graph = contending_trace()
    ready, contended = ms.replay(graph, "ready"), ms.replay(graph, "contended")
    assert contended.makespan_ns > ready.makespan_ns
    assert contended.iteration_time_ms > ready.iteration_time_ms
    free = ms.whatif(graph, remove=["comm"], order="contended")
    assert free.baseline.order == free.changed.order == "contended"
    assert np.array_equal(free.baseline.end_ns, contended.end_ns)
    alone = ms.whatif(graph, remove=["comm"], order="ready")
    assert free.iteration_time_ms < contended.iteration_time_ms
    assert np.array_equal(free.changed.end_ns, alone.changed.end_ns), "nobody takes anything any more"
    path = tmp_path / "graph.npz"
    ms.save_graph(contended.graph, path)
    assert np.array_equal(ms.load_graph(path).attrs["uncontended_ns"], graph.duration_ns)
