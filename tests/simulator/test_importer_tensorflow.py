import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, shared_trace, source_at, source_of

from makespan.errors import TraceError
from makespan.simulator.build import build
from makespan.simulator.importers import byteps, chrome, horovod, kineto, mxnet, tensorflow
from makespan.simulator.replay import replay
from makespan.trace import LaneKind, Trace

EPOCH_US = 1_490_279_990_000_000
CPU, GPU = "/job:localhost/replica:0/task:0/cpu:0", "/job:localhost/replica:0/task:0/gpu:0"


def rows_named(*names: str) -> list[dict[str, Any]]:
    return [{"ph": "M", "args": {"name": name}, "name": "process_name", "pid": pid} for pid, name in enumerate(names)]


def op(pid: int, lane: int, kind: str, node: str, start: int, length: int, *inputs: str) -> dict[str, Any]:
    args = {"name": node, "op": kind, **{f"input{number}": name for number, name in enumerate(inputs)}}
    times = {"ts": EPOCH_US + start, "dur": length}
    return {"ph": "X", "cat": "Op", "name": kind, "pid": pid, "tid": lane, "args": args, **times}


def arrow(phase: str, number: int, pid: int, lane: int, at: int) -> dict[str, Any]:
    where = {"pid": pid, "tid": lane, "ts": EPOCH_US + at}
    return {"ph": phase, "cat": "DataFlow", "name": "x", "id": number, **where}


def content_of(*events: dict[str, Any]) -> bytes:
    return json.dumps({"traceEvents": list(events)}, indent=4).encode()


ON_CPU = [
    *rows_named("Allocators", f"{CPU} Compute", f"{CPU} Tensors"),
    op(1, 0, "Const", "a", 10, 5),
    op(1, 1, "Const", "b", 11, 20),
    op(1, 0, "Mul", "a/mul", 20, 10, "a", "^ctrl"),
    op(1, 0, "MatMul", "c", 35, 30, "a/mul:0", "b:1"),
    arrow("s", 0, 1, 1, 31),
    arrow("t", 0, 1, 0, 35),
    {"ph": "C", "name": "cpu", "pid": 0, "ts": EPOCH_US + 12, "args": {"cpu": 64}},
    {"ph": "N", "cat": "Tensor", "name": "c", "id": 3, "pid": 2, "tid": 0, "ts": EPOCH_US + 13},
]
DURATIONS_NS = {"a": 5000, "b": 20000, "a/mul": 10000, "c": 30000}


def test_compute_rows_alone_are_a_graph_of_inputs_not_of_threads() -> None:
    source = source_of(content_of(*ON_CPU))
    assert tensorflow.recognise(source) == 2
    assert [other.recognise(source) for other in (byteps, horovod, kineto, mxnet, chrome)] == [0, 0, 0, 0, 1]
    part = read_one(tensorflow, source, strict=True)
    assert rows_of(part.events) == [
        ("CPU_OP", "Const", "0", 10, 5),
        ("CPU_OP", "Const", "1", 11, 20),
        ("CPU_OP", "Mul", "0", 20, 10),
        ("CPU_OP", "MatMul", "0", 35, 30),
        ("COUNTER", "cpu", "cpu", 12, 0),
    ]
    assert {lane.kind for lane in part.events.lanes} == {LaneKind.OTHER}
    assert [attrs_of(part.events, row) for row in (2, 4)] == [{"module": "a/mul"}, {"value": 64.0}]
    assert list(zip(part.dependency_source.tolist(), part.dependency_target.tolist(), strict=True)) == [
        (0, 2), (1, 3), (2, 3),
    ]  # fmt: skip
    assert (part.events.flow_source.tolist(), part.events.flow_target.tolist()) == ([1], [3])
    assert (part.clock, part.clock_base_ns, part.rank) == ("unix", EPOCH_US * 1000, -1)
    assert part.diagnostics.counts == {tensorflow.ABSENT_INPUT: 1, tensorflow.OTHER_PHASE: 1}
    # The chain b, c is the longer one; what nobody waits for runs beside it.
    assert replay(build(Trace((part,)))).makespan_ns == DURATIONS_NS["b"] + DURATIONS_NS["c"]


ON_GPU = [
    *rows_named(
        f"{GPU} Compute", "/gpu:0/stream:all Compute", "/gpu:0/stream:12 Compute", "/gpu:0/memcpy Compute",
        "/gpu:0/stream:7 Compute",
    ),
    op(0, 0, "Const", "a", 10, 5),
    op(0, 0, "MatMul", "c", 20, 10, "a"),
    op(1, 0, "MatMul", "c", 25, 40),
    op(2, 0, "MatMul", "c", 25, 40),
    op(3, 0, "MEMCPYDtoH", "edge_3_c", 70, 8),
    op(4, 0, "MEMCPYDtoH", "edge_3_c", 70, 8),
    op(2, 0, "NcclAllReduce", "c:NcclAllReduce", 80, 9),
]  # fmt: skip


def test_stream_rows_are_launched_by_the_executors_ops() -> None:
    part = read_one(tensorflow, source_of(content_of(*ON_GPU)), strict=True)
    assert rows_of(part.events) == [
        ("CPU_OP", "Const", "0", 10, 5),
        ("CPU_OP", "MatMul", "0", 20, 10),
        ("DEVICE_ANNOTATION", "MatMul", "/gpu:0/stream:all Compute", 25, 40),
        ("KERNEL", "MatMul", "/gpu:0/stream:12", 25, 40),
        ("DEVICE_ANNOTATION", "MEMCPYDtoH", "/gpu:0/memcpy Compute", 70, 8),
        ("MEMCPY", "MEMCPYDtoH", "/gpu:0/stream:7", 70, 8),
        ("COLLECTIVE", "NcclAllReduce", "/gpu:0/stream:12", 80, 9),
    ]
    assert part.events.correlation.tolist() == [-1, 2, -1, 2, -1, -1, 2]
    assert len(part.dependency_source) == 0
    streams = {lane.thread: (lane.kind, lane.device, lane.stream) for lane in part.events.lanes}
    assert streams["/gpu:0/stream:12"] == (LaneKind.DEVICE, 0, 12)
    assert streams["0"] == (LaneKind.HOST, -1, -1)
    assert part.diagnostics.counts == {tensorflow.NO_LAUNCH: 1, tensorflow.DRAWN_TWICE: 2}


def test_streams_that_are_only_drawn_together_are_device_work() -> None:
    events = [event for event in ON_GPU if event["pid"] in (0, 1)]
    part = read_one(tensorflow, source_of(content_of(*events)))
    assert rows_of(part.events)[-1] == ("KERNEL", "MatMul", "/gpu:0/stream:all", 25, 40)
    assert tensorflow.DRAWN_TWICE not in part.diagnostics.counts


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ts": 9 * 10**15}, "timestamp far in the future"),
        ({"ts": 0}, "timestamp far in the past"),
        ({"dur": -1}, "negative duration, taken as zero"),
        ({"dur": None}, tensorflow.NO_DURATION),
        ({"ts": None}, tensorflow.NO_TIME),
    ],
)
def test_damage_is_counted(change: dict[str, Any], reason: str) -> None:
    # Old TensorFlow wrote copies that lie centuries ahead.
    copy = op(4, 0, "MEMCPYHtoD", "edge_9_c", 75, 3) | change
    part = read_one(tensorflow, source_of(content_of(*ON_GPU, copy)))
    assert part.diagnostics.counts[reason] == 1
    assert rows_of(part.events)[:7] == rows_of(read_one(tensorflow, source_of(content_of(*ON_GPU))).events)
    with pytest.raises(TraceError, match=reason):
        read_one(tensorflow, source_of(content_of(*ON_GPU, copy)), strict=True)


@pytest.mark.parametrize("name", ["profiles__CPU__timeline_01", "profiles__GPU__timeline_01"])
def test_real_timelines_against_a_plain_parse(name: str) -> None:
    path = shared_trace(f"real/tf_ikhlestov/{name}.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    part = read_one(tensorflow, source_at(path), strict=True)
    told = [(row[1], round(row[3] * 1000) + part.clock_base_ns, row[4]) for row in rows_of(part.events)]
    assert told == [(event["name"], event["ts"] * 1000, event["dur"]) for event in spans]
    modules = [attrs_of(part.events, row)["module"] for row in range(len(spans))]
    assert modules == [event["args"]["name"] for event in spans]
    assert len(part.events.flow_source) == sum(event["ph"] == "s" for event in events)


def test_real_compute_rows_replay_to_their_measured_length() -> None:
    part = read_one(tensorflow, source_at(shared_trace("real/tf_ikhlestov/profiles__CPU__timeline_01.json.gz")))
    measured_ns = int(part.events.end_ns.max() - part.events.start_ns.min())
    assert replay(build(Trace((part,)))).makespan_ns == pytest.approx(measured_ns, rel=0.001)


CONTENTS = [content_of(*ON_CPU), content_of(*ON_GPU)]


@settings(max_examples=150)
@given(st.sampled_from(CONTENTS), st.data())
def test_whatever_the_bytes_are(content: bytes, data: st.DataObject) -> None:
    content = content[: data.draw(st.integers(0, len(content)))]
    for place, new in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4)):
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + 1 :]
    assert_survives(tensorflow, content, data.draw(st.booleans()))
