from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from event_tables import Row, event_table
from importing import attrs_of, read_one, shared_trace, source_at

from makespan.errors import TraceError
from makespan.simulator.build import build
from makespan.simulator.importers import kineto, pytorch_et
from makespan.simulator.load import load
from makespan.simulator.reading import link_et
from makespan.simulator.reading.link_et import link
from makespan.simulator.replay import replay
from makespan.trace import Diagnostics, EventKind, RankTrace, Trace

OP = EventKind.CPU_OP


def part_of(name: str, rows: Sequence[Row], dependencies: Sequence[tuple[int, int]] = ()) -> RankTrace:
    pairs = np.array(dependencies, np.int32).reshape(-1, 2)
    return RankTrace(
        0, name, "by hand", event_table(rows), Diagnostics(), timed=name == "timed",
        dependency_source=pairs[:, 0].copy(), dependency_target=pairs[:, 1].copy(),
    )  # fmt: skip


def op(name: str, record_id: int | None, start: float = 0, length: float = 0, **attrs: int | str) -> Row:
    return Row(
        OP, name, "main", start, length, attrs={**({} if record_id is None else {"record_id": record_id}), **attrs}
    )


EXECUTION = part_of(
    "execution",
    [
        op("root", None),
        op("linear", 1, parent=0, shapes="[[2,3]]", sequence=4),
        op("hidden", 2, parent=1),
        op("mm", 3, parent=2, shapes="[[2,3]]", types='["float"]'),
        op("relu", 5, parent=0, shapes="[[6]]"),
        op("other name", 6, parent=0),
        op("twice", 7, parent=0),
        op("twice", 7, parent=0),
    ],
    [(0, 1), (1, 2), (2, 3), (3, 4), (3, 5)],
)
TIMED = part_of(
    "timed",
    [
        op("relu", 5, 30, 5),
        op("linear", 1, 10, 15, shapes="[[9]]"),
        op("mm", 3, 12, 5),
        op("this name", 6, 40, 1),
        op("only here", 8, 50, 1),
        op("twice", 7, 60, 1),
    ],
)


def test_parents_attributes_and_data_dependencies_are_taken_over() -> None:
    linked = link(EXECUTION, TIMED)
    assert [attrs_of(linked.events, row) for row in range(3)] == [
        {"record_id": 5, "shapes": "[[6]]"},
        {"record_id": 1, "shapes": "[[9]]", "sequence": 4},
        {"record_id": 3, "shapes": "[[2,3]]", "types": '["float"]', "parent": 1},
    ]
    arrows = zip(linked.events.flow_source.tolist(), linked.events.flow_target.tolist(), strict=True)
    assert list(arrows) == [(2, 0)]
    assert linked.events.names[linked.events.flow_kind[0]] == link_et.DATA
    assert (linked.events.start_ns == TIMED.events.start_ns).all() and linked.timed
    assert linked.diagnostics.counts == {
        link_et.REPEATED: 1, link_et.ONLY_EXECUTION: 1, link_et.OTHER_NAME: 1, link_et.ONLY_TIMED: 2,
    }  # fmt: skip
    assert not TIMED.diagnostics and not EXECUTION.diagnostics


def test_what_cannot_be_linked_is_refused() -> None:
    nameless = part_of("timed", [Row(OP, "linear", "main", 0, 1)])
    with pytest.raises(TraceError, match=r"^timed: no event has a record-function id"):
        link(EXECUTION, nameless)
    with pytest.raises(TraceError, match=r"^execution: no event has a record-function id"):
        link(replace(nameless, source="execution"), TIMED)
    with pytest.raises(TraceError, match="none of its ops is in timed"):
        link(EXECUTION, part_of("timed", [op("linear", 100, 0, 1)]))


def test_traces_without_common_ids_are_not_matched_by_name() -> None:
    execution = read_one(pytorch_et, source_at(shared_trace("real/param/et_replay__tests__inputs__linear_et.json.gz")))
    timed = read_one(kineto, source_at(shared_trace("real/param/et_replay__tests__inputs__linear_kineto.json.gz")))
    with pytest.raises(TraceError, match="record-function id"):
        link(execution, timed)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two training steps, recorded by torch's execution trace observer and its profiler at once."""
    import torch
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    folder = tmp_path_factory.mktemp("captured")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    observer = ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
    profiler.export_chrome_trace(str(folder / "kineto.json"))
    return folder / "et.json", folder / "kineto.json"


def test_a_real_capture_links_op_by_op(captured: tuple[Path, Path]) -> None:
    execution = read_one(pytorch_et, source_at(captured[0]), strict=True)
    timed = read_one(kineto, source_at(captured[1]), strict=True)
    linked = link(execution, timed)
    events, ops = linked.events, np.flatnonzero(timed.events.kind == OP)
    assert not linked.diagnostics
    parent = events.attrs["parent"]
    assert len(parent.rows) > len(ops) // 2
    # The parent by the execution trace's word encloses its child by the timed trace's clock.
    assert (events.start_ns[parent.values] <= events.start_ns[parent.rows]).all()
    assert (events.end_ns[parent.values] >= events.end_ns[parent.rows]).all()
    assert "shapes" not in timed.events.attrs and len(events.attrs["shapes"].rows) > len(ops) // 2
    data = [number for number, kind in enumerate(events.flow_kind) if events.names[kind] == link_et.DATA]
    assert len(data) > len(ops) // 4
    writer, reader = events.flow_source[data], events.flow_target[data]
    assert (events.end_ns[writer] <= events.start_ns[reader]).all()
    # What the link adds does not change how long the run takes.
    before, after = (replay(build(Trace((replace(part, rank=0),)))) for part in (timed, linked))
    assert before.makespan_ns == after.makespan_ns


def test_loading_both_files_of_a_rank_links_them(captured: tuple[Path, Path]) -> None:
    trace = load(list(captured))
    assert trace.diagnostics.counts["execution trace linked with the timed trace of its rank"] == 1
    assert len(trace.ranks) == 1
    assert "parent" in trace.ranks[0].events.attrs
