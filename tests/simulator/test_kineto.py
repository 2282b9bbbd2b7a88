"""PyTorch profiles: kinds, lanes, identities, attributes and arrows; counts of real files against plain json."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chrome_samples import Event, kernels, profile, source, span, text, two_steps

from makespan.errors import TraceError
from makespan.simulator.importers import kineto
from makespan.simulator.load import load
from makespan.simulator.reading.kineto_kinds import canonical_collective, element_bytes, kind_of_category
from makespan.trace import ATTRS, NONE, Diagnostics, EventKind, EventTable, LaneKind, RankTrace


def read(content: bytes | list[Event] | dict[str, Any], strict: bool = False) -> RankTrace:
    (part,) = kineto.read(source(content), Diagnostics(), strict)
    assert set(part.events.attrs) <= set(ATTRS)
    return part


def attributes(events: EventTable, row: int) -> dict[str, Any]:
    found = {key: column.get(row) for key, column in events.attrs.items()}
    return {key: value for key, value in found.items() if value is not None}


# Recognition


@pytest.mark.parametrize(
    ("head", "claim"),
    [
        (text(profile(two_steps())), 2),
        (b'[{"ph": "X", "cat": "Operator", "name": "aten::mm", "args": {"Trace name": "PyTorch Profiler"}}', 2),
        (b'\xef\xbb\xbf {"schemaVersion": 1, "traceEvents": [', 2),
        (b'[{"ph": "X", "cat": "Op", "name": "MatMul"}]', 0),
        (b'{"name": "SetupExec", "cat": "operator", "ph": "B", "ts": 10}', 0),
        (b'{"schema": "1.0.1", "nodes": [{"name": "[pytorch|profiler|execution_graph|thread]", "rf_id": 0}', 0),
        (b'{"makespan": {"version": 1}, "traceEvents": [{"ph": "X", "cat": "cpu_op"}]}', 0),
        (b"", 0),
        (b"\x00\xff\x1f\x8b", 0),
    ],
)  # fmt: skip
def test_recognition(head: bytes, claim: int):
    assert kineto.recognise(source(head)) == claim


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", EventKind.CPU_OP),
        ("Operator", EventKind.CPU_OP),
        ("Runtime", EventKind.RUNTIME),
        ("hip_runtime", EventKind.RUNTIME),
        ("xpu_driver", EventKind.RUNTIME),
        ("Memcpy", EventKind.MEMCPY),
        ("runtime_like", None),
        ("", None),
    ],
)
def test_categories(category: str, kind: EventKind | None):
    assert kind_of_category(category) == kind


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("allreduce", "allreduce"),
        ("all_reduce_coalesced", "allreduce"),
        ("_reduce_scatter_base", "reducescatter"),
        ("allgather_into_tensor_coalesced", "allgather"),
        ("all_to_allv", "alltoall"),
        ("recvAnySource", "recv"),
        ("something new", "collective"),
    ],
)
def test_collective_names(name: str, canonical: str):
    assert canonical_collective(name) == canonical == canonical_collective(canonical)


def test_element_sizes():
    assert [element_bytes(name) for name in ("Float", "c10::BFloat16", "Float8_e4m3fn", "long int", "what")] == [
        4, 2, 1, 8, 0,
    ]  # fmt: skip


# Kinds and lanes


def test_the_profilers_own_events_are_no_work():
    events = two_steps()
    events += [
        span("Trace", "PyTorch Profiler (0)", 900.0, 1500.0, "Spans", "PyTorch Profiler"),
        span("overhead", "Buffer Flush", 1700.0, 20.0, -1, 0),
        span("gpu_user_annotation", "ProfilerStep#1", 1030.0, 170.0, 0, 7, External_id=1),
        {"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "T", "ts": 900.0},
    ]
    table = read(profile(events)).events
    assert [EventKind(kind) for kind in table.kind[20:]] == [
        EventKind.ANNOTATION,
        EventKind.OVERHEAD,
        EventKind.DEVICE_ANNOTATION,
        EventKind.INSTANT,
    ]
    lanes = [table.lanes[lane] for lane in table.lane[20:]]
    assert [lane.kind for lane in lanes] == [LaneKind.OTHER, LaneKind.HOST, LaneKind.DEVICE, LaneKind.OTHER]
    assert (lanes[2].device, lanes[2].stream) == (0, 7)


def test_lanes_carry_names_devices_and_streams():
    events = two_steps()
    events += [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "thread 1 (python)"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7 "}},
        span("kernel", "other stream, same row", 1700.0, 1.0, 0, 7, stream=9, device=0),
        span("kernel", "nothing told", 1702.0, 1.0, "GPU 3", "stream 11"),
    ]
    table = read(profile(events)).events
    assert [(lane.kind, lane.process, lane.thread, lane.label, lane.device, lane.stream) for lane in table.lanes] == [
        (LaneKind.HOST, "1", "1", "thread 1 (python)", NONE, NONE),
        (LaneKind.DEVICE, "0", "7", "stream 7 ", 0, 7),
        (LaneKind.DEVICE, "0", "7", "stream 7 ", 0, 9),
        (LaneKind.DEVICE, "GPU 3", "stream 11", "", 3, 11),
    ]


def test_steps_are_host_ranges_of_the_profiler_alone():
    events = [
        span("user_annotation", "ProfilerStep#7", 1.0, 9.0),
        span("user_annotation", "ProfilerStepper", 1.0, 9.0),
        span("user_annotation", "Optimizer.step#SGD.step", 2.0, 1.0),
        span("python_function", "ProfilerStep#7", 2.0, 1.0),
    ]
    kinds = [EventKind(kind) for kind in read(profile(events)).events.kind]
    assert kinds == [EventKind.STEP, EventKind.ANNOTATION, EventKind.ANNOTATION, EventKind.PYTHON]


def test_ranges_named_wait_are_waits():
    events = [span("user_annotation", "makespan::wait gradients", 1.0, 9.0), span("cpu_op", "wait", 2.0, 1.0)]
    assert read(profile(events)).events.kind.tolist() == [EventKind.WAIT, EventKind.CPU_OP]


def test_gloo_spans_are_collectives_on_their_threads():
    events = [
        span("cpu_op", "c10d::allreduce_", 1.0, 2.0, Input_Dims=[[[10, 20]]]),
        span("user_annotation", "gloo:all_reduce", 2.0, 9.0, 1, 2, Input_Dims=[[10, 20]], Input_type=["float"]),
        span("user_annotation", "gloo:send", 12.0, 1.0, 1, 2, Input_Dims=[[8], []], Input_type=["long int", ""]),
        span("user_annotation", "nccl:all_reduce", 14.0, 1.0, 1, 2),
    ]
    table = read(profile(events)).events
    assert [EventKind(kind) for kind in table.kind] == [
        EventKind.CPU_OP, EventKind.COLLECTIVE, EventKind.SEND, EventKind.ANNOTATION,
    ]  # fmt: skip
    assert all(lane.kind == LaneKind.HOST for lane in table.lanes)
    assert [table.attrs["collective"].get(row) for row in range(4)] == [None, "allreduce", "send", None]
    assert [table.attrs["bytes"].get(row) for row in range(4)] == [None, 800, 64, None]


def test_point_to_point_kernels_know_their_peer():
    told = {"Collective_name": "send", "In_msg_nelems": 10, "dtype": "Half", "Dst_Rank": 3, "Src_Rank": 1}
    back = {**told, "Collective_name": "recv"}
    events = two_steps()
    events += [
        span("kernel", "ncclDevKernel_SendRecv", 1700.0, 1.0, 0, 8, stream=8, **told),
        span("kernel", "ncclDevKernel_SendRecv", 1702.0, 1.0, 0, 8, stream=8, **back),
    ]
    table = read(profile(events)).events
    assert [EventKind(kind) for kind in table.kind[20:]] == [EventKind.SEND, EventKind.RECV]
    assert [table.attrs["peer"].get(row) for row in (20, 21)] == [3, 1]
    assert [table.attrs["bytes"].get(row) for row in (20, 21)] == [20, 20]


def test_a_collective_takes_what_its_host_op_says():
    told = {"Collective_name": "_allgather_base", "In_msg_nelems": 5, "Out_msg_nelems": 10, "dtype": "Int"}
    events = two_steps()
    events.append(span("cpu_op", "record_param_comms", 1200.0, 5.0, External_id=900, Group_size=2, **told))
    events.append(span("kernel", "ncclKernel_AllGather", 1700.0, 1.0, 0, 8, stream=8, External_id=900))
    events.append(span("kernel", "ncclKernel_AllGather", 1702.0, 1.0, 0, 8, stream=8, External_id=901))
    table = read(profile(events)).events
    assert attributes(table, 21) == {
        "collective": "allgather", "dtype": "Int", "input_elements": 5, "output_elements": 10, "group_size": 2,
        "bytes": 20,
    }  # fmt: skip
    assert attributes(table, 22) == {"collective": "allgather"}
    assert attributes(table, 20)["collective"] == "allgather" and "bytes" not in attributes(table, 20)
    assert table.kind[20] == EventKind.CPU_OP


def test_memory_instants_and_op_attributes():
    memory = {"Device_Id": 0, "Device_Type": 1, "Bytes": -512, "Total_Allocated": 4096}
    events = two_steps()
    instant = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1020.0}
    events.append({**instant, "args": {key.replace("_", " "): value for key, value in memory.items()}})
    told = {"Input_Dims": [[2, 3], []], "Input_type": ["float", ""], "Sequence_number": 5, "Fwd_thread_id": 1}
    events.append(span("cpu_op", "aten::add", 1030.0, 1.0, Record_function_id=77, Module_Hierarchy="A.B", **told))
    events.append(span("cpu_op", "plain", 1032.0, 1.0, Sequence_number=-1, Record_function_id=0, Module_Hierarchy=""))
    events.append(span("gpu_memcpy", "Memcpy HtoD", 1700.0, 1.0, 0, 7, stream=7, device=0, bytes=640, correlation=100))
    table = read(profile(events)).events
    assert attributes(table, 20) == {"bytes": -512, "total_allocated_bytes": 4096, "device": 0}
    assert table.kind[20] == EventKind.INSTANT and table.duration_ns[20] == 0
    assert attributes(table, 21) == {
        "sequence": 5, "forward_thread": 1, "record_id": 77, "shapes": "[[2,3],[]]", "types": '["float", ""]',
        "module": "A.B",
    }  # fmt: skip
    assert attributes(table, 22) == {}
    assert attributes(table, 23) == {"bytes": 640}


def test_synchronisation_records():
    events = two_steps()
    told = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 41, "correlation": 42}
    events.append(span("cuda_sync", "Stream Wait Event", 1700.0, 1.0, 0, 7, stream=7, **told))
    events.append(span("cuda_sync", "Context Sync", 1700.0, 1.0, 0, -1, stream=4294967295, correlation=43))
    table = read(profile(events)).events
    assert attributes(table, 20) == {"sync_stream": 7, "wait_on_stream": 20, "wait_on_correlation": 41}
    assert attributes(table, 21) == {"sync_stream": -1}
    assert table.kind[20] == table.kind[21] == EventKind.SYNC_RECORD and table.correlation[20] == 42


# Arrows


def flow(phase: str, cat: str, number: Any, ts: float, pid: int, tid: int) -> Event:
    end = {"bp": "e"} if phase == "f" else {}
    return {"ph": phase, "cat": cat, "name": cat, "id": number, "ts": ts, "pid": pid, "tid": tid, **end}


def test_launch_arrows_join_calls_and_kernels():
    events = two_steps()
    for call, kernel in zip(events[3::3], kernels(events), strict=True):
        events.append(flow("f", "ac2g", call["args"]["correlation"], kernel["ts"], 0, 7))
        events.append(flow("s", "ac2g", call["args"]["correlation"], call["ts"], 1, 1))
    table = read(profile(events)).events
    assert len(table) == 20 and len(table.flow_source) == 6
    np.testing.assert_array_equal(table.correlation[table.flow_source], table.correlation[table.flow_target])
    assert {table.names[kind] for kind in table.flow_kind} == {"ac2g"}
    assert set(table.kind[table.flow_source]) == {EventKind.RUNTIME}
    assert set(table.kind[table.flow_target]) == {EventKind.KERNEL}


def test_one_launch_arrow_fans_out_and_op_arrows_touch_ops():
    events = [
        span("cpu_op", "forward", 10.0, 5.0),
        span("cuda_runtime", "cudaGraphLaunch", 10.0, 5.0, correlation=3),
        span("cpu_op", "backward", 30.0, 5.0, 1, 2),
        *(span("kernel", f"k{n}", 20.0 + n, 0.5, 0, 7, stream=7, correlation=3) for n in range(3)),
        flow("s", "ac2g", 3, 10.0, 1, 1),
        *(flow("f", "ac2g", 3, 20.0 + n, 0, 7) for n in range(3)),
        flow("s", "fwdbwd", "0x9", 10.0, 1, 1),
        flow("f", "fwdbwd", "0x9", 32.0, 1, 2),
        flow("s", "fwdbwd", 11, 10.0, 1, 1),
    ]
    part = read(profile(events))
    arrows = {
        (part.events.name_of(a), part.events.name_of(b), part.events.names[k])
        for a, b, k in zip(part.events.flow_source, part.events.flow_target, part.events.flow_kind, strict=True)
    }
    assert arrows == {
        ("cudaGraphLaunch", "k0", "ac2g"), ("cudaGraphLaunch", "k1", "ac2g"), ("cudaGraphLaunch", "k2", "ac2g"),
        ("forward", "backward", "fwdbwd"),
    }  # fmt: skip
    assert part.diagnostics.counts == {"arrow of which only one end is recorded": 1}


def test_merged_ranks_keep_their_arrows_apart():
    parts = [two_steps(), two_steps(pid=11, device=1)]
    events = parts[0] + parts[1]
    for pid in (1, 11):
        events += [flow("s", "ac2g", 100, 1015.0, pid, 1), flow("f", "ac2g", 100, 1030.0, pid - 1, 7)]
    table = read(profile(events)).events
    assert len(table.flow_source) == 2
    for source_row, target_row in zip(table.flow_source, table.flow_target, strict=True):
        ends = [int(table.lanes[table.lane[row]].process) for row in (source_row, target_row)]
        assert ends in ([1, 0], [11, 10])


# Clocks


def test_one_table_in_integers_fractions_and_relative_to_a_base():
    begin = 1_711_667_379_483_786
    shifted = [{**event, "ts": event["ts"] - begin} for event in two_steps(begin)]
    whole = text(profile(two_steps(begin)))
    variants = [
        read(whole),
        read(whole.replace(b".0,", b",")),
        read(profile(two_steps(begin), displayTimeUnit="ns")),
        read(text(profile(shifted))[:-1] + b', "baseTimeNanoseconds": %d}' % (begin * 1000)),
        read(profile(shifted, baseTimeNanoseconds=begin * 1000)),
    ]
    first = variants[0]
    assert first.clock == "unix" and first.clock_base_ns == 1_711_667_379_000_000_000
    assert first.events.start_ns[0] == 483_786_000
    for other in variants[1:]:
        assert_same_table(other, first)


def assert_same_table(left: RankTrace, right: RankTrace) -> None:
    assert (left.clock, left.clock_base_ns) == (right.clock, right.clock_base_ns)
    for name in ("start_ns", "duration_ns", "kind", "name", "lane", "correlation", "external_id"):
        np.testing.assert_array_equal(getattr(left.events, name), getattr(right.events, name))
    assert left.events.names == right.events.names and left.events.lanes == right.events.lanes


def test_unknown_clock_is_left_alone():
    part = read(profile(two_steps()))
    assert (part.clock, part.clock_base_ns) == ("unknown", 0) and part.events.start_ns.min() == 1_000_000


def test_base_without_meaning_is_told():
    for base in (-5, 2**80, "x", True, 1.5):
        content = profile(two_steps(), baseTimeNanoseconds=base)
        part = read(content)
        assert part.clock == "unknown"
        assert part.diagnostics.counts == {"baseTimeNanoseconds that can't be one, not used": 1}
        with pytest.raises(TraceError, match="baseTimeNanoseconds that can't be one"):
            read(content, strict=True)
    for base in (None, 0):
        assert read(profile(two_steps(), baseTimeNanoseconds=base), strict=True).clock == "unknown"


@pytest.mark.parametrize("value", [-1, 2**31, 2**40, 10**30, 1.0, 1e30, True, "x", "", "1_0", "٣", "9" * 11, [1], {}])
@pytest.mark.parametrize(("member", "what"), [("rank", "rank"), ("world_size", "world size")])
def test_stated_ranks_that_cannot_be_one_are_told(value: object, member: str, what: str):
    content = profile(two_steps(), rank=None, distributedInfo={"rank": 3, "world_size": 8, member: value})
    part = read(content)
    assert (part.rank, part.world_size) == ((NONE, 8) if member == "rank" else (3, NONE))
    assert part.diagnostics.counts == {f"stated {what} that can't be one, not used": 1}
    with pytest.raises(TraceError, match=f"stated {what} that can't be one"):
        read(content, strict=True)


def test_ranks_that_are_text_or_not_stated():
    spelled = read(profile(two_steps(), rank=None, distributedInfo={"rank": "3", "world_size": " 08 "}), strict=True)
    assert (spelled.rank, spelled.world_size) == (3, 8)
    assert spelled.diagnostics.counts == {"rank written as text": 1, "world size written as text": 1}
    for info in (None, {}, {"rank": None}):
        part = read(profile(two_steps(), rank=None, distributedInfo=info), strict=True)
        assert (part.rank, part.world_size) == (NONE, NONE) and not part.diagnostics
    for info in ([], 5, "3"):
        part = read(profile(two_steps(), rank=None, distributedInfo=info))
        assert part.rank == NONE and part.diagnostics.counts == {"distributedInfo that is no object, not used": 1}


def test_strict_reading_of_damage_inside_the_importer():
    events = two_steps()
    kernels(events)[0].update(ts=0, dur=0)
    with pytest.raises(TraceError, match="device event without a timestamp"):
        kineto.read(source(profile(events)), Diagnostics(), True)


# Real files


def real_profiles(folder: Path) -> list[tuple[str, bytes]]:
    """Every public PyTorch profile of the collection, decompressed."""
    found: list[tuple[str, bytes]] = []
    for name in ("hta", "kineto", "tracelens", "param"):
        for path in sorted((folder / "traces" / "real" / name).iterdir()):
            if path.name.endswith("_et.json.gz"):
                continue
            if path.name.endswith(".tar.gz"):
                with tarfile.open(path) as archive:
                    members = [member for member in archive if member.isreg()]
                    streams = [(member.name, archive.extractfile(member)) for member in members]
                    found += [(member, stream.read()) for member, stream in streams if stream]
            else:
                found.append((path.name, gzip.decompress(path.read_bytes())))
    return found


ROW_PHASES = set("XBbSiIRnPC")


def test_real_files_against_plain_json(shared: Path):
    profiles = real_profiles(shared)
    assert len(profiles) >= 25
    for name, content in profiles:
        if len(content) > 26_000_000:
            continue
        loaded = json.loads(content, strict=False)
        events = [e for e in (loaded if isinstance(loaded, list) else loaded["traceEvents"]) if e["ph"] in ROW_PHASES]
        part = read(content)
        table = part.events
        assert len(table) == len(events), name
        on_device = Counter(kind_of_category(event.get("cat", "")) in DEVICE for event in events)[True]
        is_device = [lane.kind == LaneKind.DEVICE for lane in table.lanes]
        records = np.isin(table.kind, (EventKind.SYNC_RECORD, EventKind.DEVICE_ANNOTATION))
        assert np.count_nonzero(np.array(is_device)[table.lane] & ~records) == on_device, name
        assert [table.name_of(row) for row in range(0, len(table), 997)] == [e["name"] for e in events[::997]], name
        lengths = [round(float(event.get("dur", 0)) * 1000) for event in events]
        assert table.duration_ns.tolist() == lengths, name
        told = [event.get("args", {}).get("correlation", NONE) for event in events]
        assert table.correlation.tolist() == told, name
        base = loaded.get("baseTimeNanoseconds", 0) if isinstance(loaded, dict) else 0
        starts = (table.start_ns + part.clock_base_ns - base) / 1000
        np.testing.assert_allclose(starts, [event["ts"] for event in events], rtol=1e-15, atol=0.0005)


DEVICE = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)


@pytest.mark.slow
def test_large_real_files_against_plain_json(shared: Path):
    for name, content in real_profiles(shared):
        loaded = json.loads(content, strict=False)
        events = loaded if isinstance(loaded, list) else loaded["traceEvents"]
        assert len(read(content).events) == sum(event["ph"] in ROW_PHASES for event in events), name


def test_eight_ranks_in_one_archive(shared: Path):
    trace = load(shared / "traces" / "real" / "param" / "et_replay__tests__inputs__dlrm_kineto.tar.gz")
    assert [part.rank for part in trace] == list(range(8))
    assert {part.world_size for part in trace} == {8} and len({part.clock_base_ns for part in trace}) == 1
    counts = {int(np.count_nonzero(part.events.kind == EventKind.COLLECTIVE)) for part in trace}
    assert len(counts) == 1 and counts.pop() > 0
