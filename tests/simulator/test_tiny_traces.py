"""One publicly reported defect each: the right table, or one clear sentence, never a traceback."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chrome_samples import Event, kernels, profile, span, text, two_steps, write

from makespan.errors import TraceError
from makespan.simulator.load import load
from makespan.trace import NONE, EventKind, EventTable, LaneKind, RankTrace

GOOD = {EventKind.STEP: 2, EventKind.CPU_OP: 6, EventKind.RUNTIME: 6, EventKind.KERNEL: 6}


def read(tmp_path: Path, content: bytes | list[Event] | dict[str, Any], name: str = "rank0.json") -> RankTrace:
    (part,) = load(write(tmp_path, content, name)).ranks
    return part


def damage(part: RankTrace) -> dict[str, int]:
    """What was counted, besides how the rank was found."""
    return {reason: count for reason, count in part.diagnostics.counts.items() if not reason.startswith("rank ")}


def kinds(part: RankTrace) -> Counter[EventKind]:
    return Counter(EventKind(kind) for kind in part.events.kind.tolist())


def rows(events: EventTable, kind: EventKind) -> list[int]:
    return [row for row in range(len(events)) if events.kind[row] == kind]


def launches(events: EventTable) -> list[tuple[int, int]]:
    """(call, kernel) rows that share a correlation."""
    return [
        (call, work)
        for work in rows(events, EventKind.KERNEL)
        for call in rows(events, EventKind.RUNTIME)
        if events.correlation[work] == events.correlation[call] != NONE
    ]


def idle_us(events: EventTable) -> list[float]:
    """Gaps between kernels within the first step."""
    spans = sorted((int(events.start_ns[row]), int(events.end_ns[row])) for row in rows(events, EventKind.KERNEL))
    return [(b[0] - a[1]) / 1000 for a, b in pairwise(spans) if b[0] - a[1] < 100_000]


def test_00_good(tmp_path: Path):
    part = read(tmp_path, profile(two_steps()))
    events = part.events
    assert kinds(part) == GOOD and damage(part) == {}
    assert (part.rank, part.world_size, part.format) == (0, 2, "PyTorch Kineto")
    assert events.start_ns[:3].tolist() == [1_000_000, 1_400_000, 1_010_000]
    assert len(launches(events)) == 6 and idle_us(events) == [10.0] * 4
    assert [(lane.kind, lane.device, lane.stream) for lane in events.lanes] == [
        (LaneKind.HOST, NONE, NONE),
        (LaneKind.DEVICE, 0, 7),
    ]


@pytest.mark.parametrize(
    ("raw", "name", "reasons"),
    [
        (rb"torch\cuda\_init.py(219): x", r"torch\cuda\_init.py(219): x", {"invalid escape in a string": 1}),
        (b"a\x01b\nc", "a\x01b\nc", {"control byte in a string": 1}),
        (b'a = Library("x", "IMPL") (1)', 'a = Library("x", "IMPL") (1)', {"unescaped quote in a string": 1}),
        (b'a\\"b', 'a"b', {}),
        (b"a\xffb", "a\ufffdb", {"invalid UTF-8 in a string": 1}),
    ],
)
def test_01_and_02_damaged_strings(tmp_path: Path, raw: bytes, name: str, reasons: dict[str, int]):
    frame = (
        b', {"ph": "X", "cat": "python_function", "name": "'
        + raw
        + b'", "pid": 1, "tid": 1, "ts": 1000.0, "dur": 5.0}]}'
    )
    part = read(tmp_path, text(profile(two_steps()))[:-2] + frame)
    assert kinds(part) == {**GOOD, EventKind.PYTHON: 1} and damage(part) == reasons
    assert part.events.name_of(20) == name and part.events.duration_ns[20] == 5000


def test_03_truncated_in_the_middle_of_an_event(tmp_path: Path):
    part = read(tmp_path, text(profile(two_steps()))[:-40])
    assert len(part.events) == 19 and damage(part) == {"file ends inside an event": 1}


def test_03b_no_closing_bracket(tmp_path: Path):
    lines = b"[\n" + b",\n".join(map(text, two_steps())) + b",\n"
    part = read(tmp_path, lines)
    assert kinds(part) == GOOD and damage(part) == {"no closing bracket": 1}


def test_04_only_an_opening_bracket_is_an_empty_trace_with_a_reason(tmp_path: Path):
    part = read(tmp_path, b"[")
    assert len(part.events) == 0 and damage(part) == {"no closing bracket": 1}


def test_05_dump_without_header_and_footer(tmp_path: Path):
    lines = (
        b'{"name": "SetupExec", "cat": "operator", "ph": "B", "ts": 10, "pid": 0, "tid": 1},\n'
        b'{"name": "SetupExec", "cat": "operator", "ph": "E", "ts": 20, "pid": 0, "tid": 1}\n'
    )
    part = read(tmp_path, lines)
    assert len(part.events) == 1 and part.events.name_of(0) == "SetupExec"
    assert part.events.start_ns.tolist() == [10_000] and part.events.duration_ns.tolist() == [10_000]
    assert "no opening bracket" in damage(part)


def test_06_kernels_at_time_zero_are_set_aside(tmp_path: Path):
    events = two_steps()
    for kernel in kernels(events)[1:3]:
        kernel.update(ts=0, dur=0)
    part = read(tmp_path, profile(events))
    assert damage(part) == {"device event without a timestamp": 2}
    assert part.events.start_ns.min() == 1_000_000 and len(rows(part.events, EventKind.KERNEL)) == 4
    assert max(idle_us(part.events)) == 10.0


def test_07_far_future_stamps_are_set_aside(tmp_path: Path):
    events = two_steps()
    kernels(events)[5]["ts"] = 19978045970716470
    part = read(tmp_path, profile(events))
    assert len(part.events) == 19 and damage(part) == {"timestamp far in the future": 1}
    assert part.events.end_ns.max() == 1_800_000


def test_08_unfinished_op_stays_with_no_length(tmp_path: Path):
    events = two_steps()
    events[2]["dur"] = -1
    part = read(tmp_path, profile(events))
    assert kinds(part) == GOOD and damage(part) == {"negative duration, taken as zero": 1}
    assert part.events.duration_ns[2] == 0


def test_09_launch_without_its_kernel(tmp_path: Path):
    events = two_steps()
    lost = kernels(events)[:2]
    part = read(tmp_path, profile([event for event in events if event not in lost]))
    assert kinds(part) == {**GOOD, EventKind.KERNEL: 4} and len(launches(part.events)) == 4


def test_10_kernel_without_its_launch_stays_and_is_noted(tmp_path: Path):
    events = two_steps()
    del events[3]
    part = read(tmp_path, profile(events))
    assert kinds(part) == {**GOOD, EventKind.RUNTIME: 5}
    assert damage(part) == {"device event without its launch": 1}
    assert part.diagnostics.places["device event without its launch"] == [f"{tmp_path / 'rank0.json'}:event 3"]


def test_11_correlation_minus_one_links_nothing(tmp_path: Path):
    events = two_steps()
    for kernel in kernels(events)[:3]:
        kernel["args"]["correlation"] = -1
    part = read(tmp_path, profile(events))
    works = rows(part.events, EventKind.KERNEL)
    assert part.events.correlation[works].tolist() == [NONE, NONE, NONE, 110, 111, 112]
    assert len(launches(part.events)) == 3 and damage(part) == {"device event without its launch": 3}


def test_12_and_13_external_ids_and_correlations_are_two_number_spaces(tmp_path: Path):
    events = two_steps()
    for event in events[2:]:
        event["args"]["External id"] += 1
    events[3]["args"]["External id"] = 0
    part = read(tmp_path, profile(events))
    table = part.events
    assert len(launches(table)) == 6 and damage(part) == {}
    assert table.external_id[2:6].tolist() == [101, NONE, 101, 102]
    assert table.correlation[2:6].tolist() == [NONE, 100, 100, NONE]


def test_14_overlapping_kernels_of_one_stream_all_stay(tmp_path: Path):
    events = two_steps()
    kernels(events)[1]["ts"] = 1050.0
    part = read(tmp_path, profile(events))
    works = rows(part.events, EventKind.KERNEL)
    assert kinds(part) == GOOD and damage(part) == {} and len(set(part.events.lane[works].tolist())) == 1
    assert part.events.start_ns[works[1]] < part.events.end_ns[works[0]]


def test_15_a_frame_across_a_step_changes_neither(tmp_path: Path):
    events = [*two_steps(), span("python_function", "profiler.py(842): step", 1380.0, 25.0)]
    part = read(tmp_path, profile(events))
    assert kinds(part) == {**GOOD, EventKind.PYTHON: 1} and damage(part) == {}
    assert part.events.duration_ns[rows(part.events, EventKind.STEP)].tolist() == [400_000, 400_000]


def test_16_one_graph_launch_and_its_many_kernels(tmp_path: Path):
    events = two_steps()[:2]
    events.append(span("cuda_runtime", "cudaGraphLaunch", 1010.0, 10.0, correlation=900))
    events += [
        span("kernel", f"node {n}", 1030.0 + n, 1.0, 0, 7, correlation=900, stream=7, device=0) for n in range(50)
    ]
    part = read(tmp_path, profile(events))
    assert damage(part) == {} and len(launches(part.events)) == 50


def test_17_rank_from_the_file_name(tmp_path: Path):
    for name, rank in (("trace_rank-34.json", 34), ("worker3.pt.trace.json", 3), ("run_12.json", 0)):
        part = read(tmp_path, profile(two_steps(), rank=None), name)
        assert part.rank == rank
        assert any(reason.startswith("rank taken from the file's") for reason in part.diagnostics.counts)


def test_18_duplicate_rank_is_refused_by_name(tmp_path: Path):
    for name in ("a.json", "b.json"):
        write(tmp_path, profile(two_steps()), name)
    with pytest.raises(TraceError, match=r"rank 0 is claimed by two files, .*a\.json and .*b\.json"):
        load(tmp_path)


def test_19_integers_beyond_64_bits(tmp_path: Path):
    events = two_steps()
    events[-1]["args"].update({"correlation": 2**64 - 1, "Comms Id": 9223372036854788153})
    part = read(tmp_path, profile(events))
    assert len(part.events) == 20 and part.events.correlation[19] == NONE
    assert damage(part) == {"integer beyond 64 bits": 1, "device event without its launch": 1}


def test_20_stream_zero_is_a_stream(tmp_path: Path):
    events = two_steps()
    for event in kernels(events):
        event["tid"] = event["args"]["stream"] = 0
    part = read(tmp_path, profile(events))
    assert kinds(part) == GOOD and damage(part) == {}
    assert [lane.stream for lane in part.events.lanes if lane.kind == LaneKind.DEVICE] == [0]


@pytest.mark.parametrize("name", ["cuLaunchKernelEx", "hipExtModuleLaunchKernel", "aNameNobodyKnows"])
@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "zzz_runtime"])
def test_21_a_launch_is_what_shares_a_correlation(tmp_path: Path, name: str, category: str):
    events = two_steps()
    for event in events:
        if event["cat"] == "cuda_runtime":
            event.update(name=name, cat=category)
    part = read(tmp_path, profile(events))
    assert kinds(part) == GOOD and len(launches(part.events)) == 6


def test_22_collective_without_metadata_is_known_by_its_name(tmp_path: Path):
    names = {
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "allreduce",
        "ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)": "reducescatter",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "sendrecv",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": "collective",
        "ncclAllGatherRingLLKernel_sum_i8(ncclColl)": "allgather",
    }
    events = two_steps()
    events += [span("kernel", name, 1200.0 + n, 1.0, 0, 20, stream=20, device=0) for n, name in enumerate(names)]
    part = read(tmp_path, profile(events))
    found = rows(part.events, EventKind.COLLECTIVE)
    assert [part.events.attrs["collective"].get(row) for row in found] == list(names.values())
    assert "group_name" not in part.events.attrs and len(rows(part.events, EventKind.KERNEL)) == 6


def test_23_arrival_skew_and_collective_metadata(tmp_path: Path):
    for rank, begin in ((0, 1000.0), (1, 1150.0)):
        told = {
            "Collective_name": "allreduce", "In_msg_nelems": 1000, "dtype": "Float", "Group_size": 2,
            "Process_Group_Name": "0", "Process_Group_Ranks": "[0, 1]", "Seq": 1,
        }  # fmt: skip
        events = two_steps(begin)
        events.append(span("cuda_runtime", "cudaLaunchKernel", begin + 200, 10.0, External_id=70, correlation=300))
        name, ts = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin + 220
        events.append(span("kernel", name, ts, 1500 - ts, 0, 20, correlation=300, stream=20, device=0, **told))
        write(tmp_path, profile(events, rank), f"rank{rank}.json")
    trace = load(tmp_path)
    assert [part.rank for part in trace] == [0, 1] and not trace.diagnostics
    for part, length in zip(trace, (280_000, 130_000), strict=True):
        (row,) = rows(part.events, EventKind.COLLECTIVE)
        assert part.events.duration_ns[row] == length and part.events.end_ns[row] == 1_500_000
        attrs = {key: column.get(row) for key, column in part.events.attrs.items()}
        assert attrs == {
            "bytes": 4000, "collective": "allreduce", "dtype": "Float", "group_name": "0", "group_ranks": "[0, 1]",
            "group_size": 2, "group_sequence": 1, "input_elements": 1000,
        }  # fmt: skip


def test_24_clock_offset_is_kept_for_alignment_and_bases_are_made_equal(tmp_path: Path):
    begin = 1_711_667_379_000_000.0
    write(tmp_path, profile(two_steps(begin + 500), rank=0), "rank0.json")
    write(tmp_path, profile(two_steps(900.0), rank=1, baseTimeNanoseconds=int(begin) * 1000), "rank1.json")
    first, second = load(tmp_path)
    assert first.clock == second.clock == "unix" and first.clock_base_ns == second.clock_base_ns
    assert (second.events.start_ns - first.events.start_ns).tolist() == [400_000] * 20


def test_25_nanoseconds_in_absolute_microseconds(tmp_path: Path):
    content = text(profile(two_steps(1_711_667_379_483_786))).replace(b"1711667379483816,", b"1711667379483816.123,")
    content = content.replace(b'"dur": 50.0', b'"dur": 0.437')
    part = read(tmp_path, content)
    works = rows(part.events, EventKind.KERNEL)
    assert part.events.start_ns[works[0]] + part.clock_base_ns == 1_711_667_379_483_816_123
    assert set(part.events.duration_ns[works].tolist()) == {437} and damage(part) == {}


def test_28_equal_intervals_stay_in_file_order(tmp_path: Path):
    events = two_steps()
    twins = [span("cpu_op", f"twin {n}", 1210.0, 20.0) for n in range(3)]
    part = read(tmp_path, profile(events[:11] + twins + events[11:]))
    assert [part.events.name_of(row) for row in (11, 12, 13)] == ["twin 0", "twin 1", "twin 2"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_29_merged_ranks_are_never_joined(tmp_path: Path, interleaved: bool):
    parts = [two_steps(), two_steps(1003.0 if interleaved else 1000.0, pid=11, device=1)]
    merged = [event for pair in zip(*parts, strict=True) for event in pair] if interleaved else parts[0] + parts[1]
    part = read(tmp_path, profile(merged))
    table = part.events
    pairs = launches(table)
    assert len(pairs) == 12
    for call, work in pairs:
        assert int(table.lanes[table.lane[call]].process) == int(table.lanes[table.lane[work]].process) + 1
    of_second = [row for row in range(40) if table.lanes[table.lane[row]].process in ("10", "11")]
    of_first = sorted(set(range(40)) - set(of_second))
    for ids in (table.correlation, table.external_id):
        assert not (set(ids[of_first].tolist()) & set(ids[of_second].tolist())) - {NONE}
    assert damage(part) == {"processes of a merged file whose correlation ids were kept apart": 2}


def test_32_overlapping_steps_stay_as_recorded(tmp_path: Path):
    events = two_steps()
    events[0]["dur"] = 500.0
    part = read(tmp_path, profile(events))
    steps = rows(part.events, EventKind.STEP)
    assert part.events.duration_ns[steps].tolist() == [500_000, 400_000]


def test_33_sync_records_are_no_work(tmp_path: Path):
    events = two_steps()
    events.append(span("cuda_sync", "Stream Synchronize", 1190.0, 200.0, 0, 7, stream=7, correlation=500))
    events.append(span("cuda_runtime", "cudaStreamSynchronize", 1190.0, 200.0, correlation=500, External_id=40))
    part = read(tmp_path, profile(events))
    assert kinds(part) == {**GOOD, EventKind.SYNC_RECORD: 1, EventKind.RUNTIME: 7} and damage(part) == {}
    assert part.events.attrs["sync_stream"].get(20) == 7 and part.events.correlation[20] == 500


@pytest.mark.parametrize(
    ("call", "work", "streams"),
    [
        ("mtia_runtime", "mtia_ccp_events", True),
        ("privateuse1_runtime", "privateuse1_op", True),
        ("xpu_runtime", "kernel", True),
        ("zzz_call", "zzz_engine", True),
        ("zzz_call", "zzz_engine", False),
    ],
)
def test_35_unknown_accelerators(tmp_path: Path, call: str, work: str, streams: bool):
    events = two_steps()
    for event in events:
        event["cat"] = {"cuda_runtime": call, "kernel": work}.get(event["cat"], event["cat"])
        if not streams:
            event["args"].pop("stream", None)
    part = read(tmp_path, profile(events))
    assert kinds(part) == GOOD and len(launches(part.events)) == 6
    assert [lane.stream for lane in part.events.lanes if lane.kind == LaneKind.DEVICE] == [7]
    unknown = {reason for reason in damage(part) if reason.startswith("unknown category")}
    assert len(unknown) == {"zzz_call": 2, "privateuse1_runtime": 1}.get(call, 0)


def test_37_an_outlier_is_kept_as_recorded(tmp_path: Path):
    events = two_steps()
    events[3]["dur"] = 3500.0
    part = read(tmp_path, profile(events))
    assert part.events.duration_ns[3] == 3_500_000 and damage(part) == {}


def test_38_event_wait_without_a_record(tmp_path: Path):
    events = [*two_steps(), span("cuda_runtime", "cudaStreamWaitEvent", 1200.0, 3.0, correlation=77)]
    part = read(tmp_path, profile(events))
    assert kinds(part) == {**GOOD, EventKind.RUNTIME: 7} and damage(part) == {}


def test_39_host_only(tmp_path: Path):
    part = read(tmp_path, profile([event for event in two_steps() if event["cat"] in ("cpu_op", "user_annotation")]))
    assert kinds(part) == {EventKind.STEP: 2, EventKind.CPU_OP: 6} and damage(part) == {}
    assert all(lane.kind == LaneKind.HOST for lane in part.events.lanes)


def test_41_nan_stamps_are_set_aside(tmp_path: Path):
    events = two_steps()
    kernels(events)[2]["ts"] = float("nan")
    part = read(tmp_path, profile(events))
    assert kinds(part) == {**GOOD, EventKind.KERNEL: 5}
    assert damage(part) == {"NaN or infinite number": 1, "event without a time": 1}


def test_42_numbers_as_strings(tmp_path: Path):
    events = two_steps()
    for event in events:
        event.update(ts=str(event["ts"]), dur=str(event["dur"]))
    for event in kernels(events):
        event["tid"] = "stream 7"
    part = read(tmp_path, profile(events))
    good = read(tmp_path, profile(two_steps()))
    assert part.events.start_ns.tolist() == good.events.start_ns.tolist()
    assert part.events.duration_ns.tolist() == good.events.duration_ns.tolist()
    assert kinds(part) == GOOD and damage(part) == {"number written as text": 20}
    assert [lane.stream for lane in part.events.lanes] == [NONE, 7]


def test_43_unmatched_begin_and_end(tmp_path: Path):
    events = two_steps()
    events.append({"ph": "B", "cat": "cpu_op", "name": "never ends", "ts": 1700.0, "pid": 1, "tid": 1})
    events.append({"ph": "E", "cat": "cpu_op", "name": "never begins", "ts": 1710.0, "pid": 1, "tid": 1})
    part = read(tmp_path, profile(events))
    assert kinds(part) == {**GOOD, EventKind.CPU_OP: 7}
    assert part.events.duration_ns[20] == 0 and part.events.start_ns[20] == 1_700_000
    assert damage(part) == {"begin without an end": 1, "end without a begin": 1}


def test_44_categories_of_2021(tmp_path: Path):
    events = two_steps()
    for event in events:
        new = {"cuda_runtime": "Runtime", "kernel": "Kernel"}.get(event["cat"], "Operator")
        event.update(cat=new, tid=str(event["tid"]) if new != "Kernel" else f"stream {event['tid']}")
        if new != "Operator":
            event["args"]["external id"] = event["args"].pop("External id")
    part = read(tmp_path, profile(events))
    good = read(tmp_path, profile(two_steps()))
    assert kinds(part) == GOOD and damage(part) == {}
    assert part.events.external_id.tolist() == good.events.external_id.tolist()
    assert [(lane.device, lane.stream) for lane in part.events.lanes] == [(NONE, NONE), (0, 7)]


def test_45_broken_compression(tmp_path: Path):
    events = [event for step in range(100) for event in two_steps(1000.0 + 900 * step)]
    packed = gzip.compress(text(profile(events)))
    part = read(tmp_path, packed[: len(packed) // 2], "rank0.json.gz")
    assert 500 < len(part.events) < 2000
    assert {"compressed data broken off", "file ends inside an event"} <= set(damage(part))


def test_strict_raises_where_tolerant_counts(tmp_path: Path):
    path = write(tmp_path, text(profile(two_steps()))[:-40])
    with pytest.raises(TraceError, match=r"rank0\.json:event 19: file ends inside an event"):
        load(path, strict=True)
    assert len(load(write(tmp_path, profile(two_steps()), "good.json"), strict=True)) == 20


TINY = {
    "T00_good": (20, {}),
    "T01_bad_escape": (21, {"invalid escape in a string": 1}),
    "T02b_unescaped_quotes": (21, {"unescaped quote in a string": 1}),
    "T03b_no_closing_bracket": (20, {"no closing bracket": 1}),
    "T07_far_future_ts": (19, {"timestamp far in the future": 1}),
    "T09_kernel_lost_launch_kept": (18, {}),
    "T11_correlation_minus1": (20, {"device event without its launch": 3}),
    "T13_extid_collides_with_corr": (20, {}),
    "T15_step_crosses_python_frame": (21, {}),
    "T17_no_distributed_info": (20, {}),
    "T19_uint64_and_bigger": (20, {"integer beyond 64 bits": 1, "device event without its launch": 1}),
    "T21_launch_cuLaunchKernelEx": (20, {}),
    "T21_launch_hipExtModuleLaunchKernel": (20, {}),
    "T25_ns_in_absolute_us": (20, {}),
    "T29_merged_duplicate_correlation": (
        40,
        {"processes of a merged file whose correlation ids were kept apart": 2},
    ),
    "T33_cuda_sync_on_stream": (22, {}),
    "T37_profiler_buffer_outlier": (20, {}),
    "T39_cpu_only": (8, {}),
    "T42_string_numbers": (20, {"number written as text": 20}),
    "T44_upper_case_categories": (20, {}),
}


@pytest.mark.parametrize("name", TINY)
def test_collected_inputs(shared: Path, name: str):
    count, reasons = TINY[name]
    (part,) = load(shared / "traces" / "tiny" / name).ranks
    assert part.rank == 0 and len(part.events) == count and damage(part) == reasons


def test_collected_pair_of_ranks(shared: Path):
    trace = load(shared / "traces" / "tiny" / "T23_arrival_skew")
    assert [(part.rank, len(part.events)) for part in trace] == [(0, 22), (1, 22)] and not trace.diagnostics
