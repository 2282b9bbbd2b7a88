import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, source_at, source_of
from nsight_exports import NEW, OLD, global_tid, strings, write_export

from makespan.errors import TraceError
from makespan.simulator.importers import nsight
from makespan.simulator.reading.nsight_events import is_step
from makespan.trace import Diagnostics, LaneKind

MAIN, OTHER = global_tid(100, 101), global_tid(100, 102)
PROCESS = global_tid(100)
EPOCH_NS = 1_700_000_000_123_456_789


def one_step() -> dict[str, list[dict[str, object]]]:
    """A step of one process: a kernel, a copy, a collective; an event recorded on one stream and awaited on another."""
    device = {"deviceId": 0, "contextId": 1, "globalPid": PROCESS}
    call = {"globalTid": MAIN}
    return {
        "StringIds": strings(
            "cudaLaunchKernel_v7000", "void gemm<float>(float*)", "gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
            "cudaMemcpyAsync_v3020", "cudaStreamWaitEvent_v3020", "cudaEventRecord", "pthread_mutex_lock", "main",
            "iteration 3", "cudaStreamSynchronize",
        ),
        "ThreadNames": [{"nameId": 9, "globalTid": MAIN}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "A100"}],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {**call, "start": 1000, "end": 2000, "correlationId": 1, "nameId": 1},
            {**call, "start": 2500, "end": 2600, "correlationId": 2, "nameId": 7},
            {**call, "start": 2600, "end": 2700, "correlationId": 3, "nameId": 6},
            {**call, "start": 2700, "end": 3000, "correlationId": 4, "nameId": 1},
            {"globalTid": OTHER, "start": 3000, "end": 3500, "correlationId": 5, "nameId": 5},
            {**call, "start": 3500, "end": 9000, "correlationId": 6, "nameId": 11},
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            {**device, "start": 2100, "end": 5100, "streamId": 7, "correlationId": 1, "demangledName": 2},
            {**device, "start": 5200, "end": 8200, "streamId": 13, "correlationId": 4, "demangledName": 4},
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {**device, "start": 5300, "end": 5400, "streamId": 7, "correlationId": 5, "bytes": 4096, "copyKind": 1},
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
            {**device, "start": 2600, "end": 2700, "streamId": 13, "correlationId": 3, "syncType": 2, "eventId": 40},
            {**device, "start": 3500, "end": 9000, "streamId": 13, "correlationId": 6, "syncType": 3, "eventId": 0},
        ],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [
            {**device, "streamId": 7, "correlationId": 2, "eventId": 40},
            {**device, "streamId": 9, "correlationId": 7, "eventId": 40},
        ],
        "NVTX_EVENTS": [
            {"start": 900, "end": 9100, "eventType": 59, "textId": 10, "globalTid": MAIN},
            {"start": 950, "end": 2000, "eventType": 60, "text": "forward", "globalTid": MAIN},
            {"start": 2000, "eventType": 34, "text": "mark", "globalTid": MAIN},
            {"start": 0, "eventType": 75, "text": "domain", "globalTid": MAIN},
        ],
        "OSRT_API": [{"start": 1, "end": 2, "globalTid": MAIN, "nameId": 8}] * 3,
    }  # fmt: skip


def test_export_becomes_the_exact_table(tmp_path: Path) -> None:
    source = source_at(write_export(tmp_path / "trace.sqlite", one_step()))
    assert nsight.recognise(source) == 2
    part = read_one(nsight, source, strict=True)
    assert rows_of(part.events) == [
        ("STEP", "iteration 3", "101", 0.9, 8.2),
        ("ANNOTATION", "forward", "101", 0.95, 1.05),
        ("RUNTIME", "cudaLaunchKernel", "101", 1.0, 1.0),
        ("INSTANT", "mark", "101", 2.0, 0.0),
        ("KERNEL", "void gemm<float>(float*)", "context 1 stream 7", 2.1, 3.0),
        ("RUNTIME", "cudaEventRecord", "101", 2.5, 0.1),
        ("RUNTIME", "cudaStreamWaitEvent", "101", 2.6, 0.1),
        ("SYNC_RECORD", "Stream Wait Event", "synchronisation", 2.6, 0.1),
        ("RUNTIME", "cudaLaunchKernel", "101", 2.7, 0.3),
        ("RUNTIME", "cudaMemcpyAsync", "102", 3.0, 0.5),
        ("RUNTIME", "cudaStreamSynchronize", "101", 3.5, 5.5),
        ("SYNC_RECORD", "Stream Sync", "synchronisation", 3.5, 5.5),
        ("COLLECTIVE", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "context 1 stream 13", 5.2, 3.0),
        ("MEMCPY", "Memcpy HtoD", "context 1 stream 7", 5.3, 0.1),
    ]
    events = part.events
    assert events.correlation.tolist() == [-1, -1, 1, -1, 1, 2, 3, 3, 4, 5, 6, 6, 4, 5]
    assert attrs_of(events, 7) == {"sync_stream": 13, "wait_on_stream": 7, "wait_on_correlation": 2}
    assert attrs_of(events, 11) == {"sync_stream": 13}
    assert attrs_of(events, 12) == {"collective": "allreduce"}
    assert attrs_of(events, 13) == {"bytes": 4096}
    lanes = {lane.thread: lane for lane in events.lanes}
    assert (lanes["101"].kind, lanes["101"].process, lanes["101"].label) == (LaneKind.HOST, "100", "main")
    kernels = lanes["context 1 stream 7"]
    assert (kernels.kind, kernels.device, kernels.stream, kernels.label) == (LaneKind.DEVICE, 0, 7, "stream 7")
    assert (part.clock, part.clock_base_ns, part.rank) == ("unix", EPOCH_NS, -1)
    assert part.metadata == {"process": 100, "devices": {0: "A100"}}
    assert part.diagnostics.counts == {
        "NVTX record that is no range or mark": 1,
        "row of table OSRT_API that is not used": 3,
    }


def test_compressed_export_is_read_from_a_copy(tmp_path: Path) -> None:
    content = write_export(tmp_path / "trace.sqlite", one_step()).read_bytes()
    source = source_of(content)
    assert source.path is None and nsight.recognise(source) == 2
    assert len(read_one(nsight, source).events) == 14


def test_early_version_without_processes_and_start_time(tmp_path: Path) -> None:
    rows = {
        "StringIds": strings("cudaLaunchKernel", "gemm"),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [{"start": 10, "end": 20, "globalTid": MAIN, "correlationId": 1, "nameId": 1}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [{"start": 30, "end": 70, "streamId": 7, "correlationId": 1, "shortName": 2}],
        "NVTX_EVENTS": [
            {"start": 5, "end": 80, "text": "step 1", "globalTid": MAIN},
            {"start": 6, "text": "mark", "globalTid": MAIN},
        ],
    }
    part = read_one(nsight, source_at(write_export(tmp_path / "trace.sqlite", rows, OLD)), strict=True)
    assert [row[:2] for row in rows_of(part.events)] == [
        ("STEP", "step 1"), ("INSTANT", "mark"), ("RUNTIME", "cudaLaunchKernel"), ("KERNEL", "gemm"),
    ]  # fmt: skip
    assert (part.clock, part.clock_base_ns) == ("unknown", 0)
    assert not part.diagnostics


def two_processes(schema: str) -> dict[str, list[dict[str, object]]]:
    """Two processes that use the same correlation ids on different devices, and a third that only calls."""
    rows: dict[str, list[dict[str, object]]] = {
        "StringIds": strings("cudaLaunchKernel", "a", "b"),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [],
        "CUPTI_ACTIVITY_KIND_KERNEL": [],
    }
    for process, device, name in ((300, 0, 2), (200, 1, 3), (400, None, 0)):
        thread = global_tid(process, process + 1)
        call = {"start": process, "end": process + 5, "globalTid": thread, "correlationId": 9, "nameId": 1}
        rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(call)
        if device is not None:
            kernel = {"start": process + 10, "end": process + 20, "deviceId": device, "correlationId": 9}
            named = (
                {"globalPid": global_tid(process), "demangledName": name} if schema == "new" else {"shortName": name}
            )
            rows["CUPTI_ACTIVITY_KIND_KERNEL"].append({**kernel, **named})
    return rows


def test_each_process_with_device_work_is_a_rank(tmp_path: Path) -> None:
    rows = two_processes("new")
    path = write_export(tmp_path / "trace.sqlite", rows)
    parts = nsight.read(source_at(path), Diagnostics(), False)
    assert [part.source.rpartition(":")[2] for part in parts] == ["process 300", "process 200"]
    assert [part.rank for part in parts] == [-1, -1]
    assert [[row[1] for row in rows_of(part.events)] for part in parts] == [
        ["cudaLaunchKernel", "a"], ["cudaLaunchKernel", "b"],
    ]  # fmt: skip
    assert parts[0].diagnostics.counts == {nsight.NO_DEVICE_WORK: 1}
    assert parts[1].diagnostics.counts == {}


def test_mpi_tells_the_ranks_of_processes(tmp_path: Path) -> None:
    rows = two_processes("new")
    rows["MPI_RANKS"] = [
        {"globalTid": global_tid(process, process), "rank": rank} for process, rank in ((200, 0), (300, 1))
    ]
    rows["StringIds"] = strings("cudaLaunchKernel", "a", "b", "MPI_Allreduce", "MPI_Iallreduce")
    rows["MPI_COLLECTIVES_EVENTS"] = [
        {"start": 240, "end": 260, "globalTid": global_tid(200, 201), "textId": 4, "size": 64},
        {"start": 270, "end": 271, "globalTid": global_tid(200, 201), "textId": 5, "size": 64},
    ]
    parts = nsight.read(source_at(write_export(tmp_path / "trace.sqlite", rows)), Diagnostics(), False)
    assert {part.metadata["process"]: part.rank for part in parts} == {300: 1, 200: 0}
    assert parts[0].world_size == 2
    events = parts[1].events
    assert [row[:2] for row in rows_of(events)][2:] == [("COLLECTIVE", "MPI_Allreduce"), ("CPU_OP", "MPI_Iallreduce")]
    assert attrs_of(events, 2) == {"bytes": 64, "collective": "allreduce"}


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ((0, -1), "MPI rank that can't be one, none is used"),
        ((0, 1 << 40), "MPI rank that can't be one, none is used"),
        ((0, "first"), "MPI rank that can't be one, none is used"),
        ((1, 1), "MPI rank that another process has as well, none is used"),
    ],
)
def test_mpi_ranks_that_cannot_be_true_are_told(tmp_path: Path, ranks: tuple[object, object], reason: str) -> None:
    rows = two_processes("new")
    rows["MPI_RANKS"] = [
        {"globalTid": global_tid(process, process), "rank": rank}
        for process, rank in zip((200, 300), ranks, strict=True)
    ]
    path = write_export(tmp_path / "trace.sqlite", rows)
    diagnostics = Diagnostics()
    assert [part.rank for part in nsight.read(source_at(path), diagnostics, False)] == [-1, -1]
    assert diagnostics.counts[reason] == 1
    with pytest.raises(TraceError, match=reason):
        nsight.read(source_at(path), Diagnostics(), True)


def test_ambiguous_processes_of_an_early_version_are_counted(tmp_path: Path) -> None:
    path = write_export(tmp_path / "trace.sqlite", two_processes("old"), OLD)
    diagnostics = Diagnostics()
    parts = nsight.read(source_at(path), diagnostics, False)
    assert diagnostics.counts[nsight.UNKNOWN_PROCESS] == 2
    assert len(parts) == 1


def test_impossible_times_are_set_aside(tmp_path: Path) -> None:
    rows = one_step()
    kernels = rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    kernels.append({**kernels[0], "start": 0, "end": 0})
    kernels.append({**kernels[0], "start": 6000, "end": 5000})
    kernels.append({**kernels[0], "start": 2**61, "end": 2**61 + 5})
    rows["NVTX_EVENTS"].append({"start": 8000, "eventType": 59, "text": "open", "globalTid": MAIN})
    path = write_export(tmp_path / "trace.sqlite", rows)
    part = read_one(nsight, source_at(path))
    assert len(part.events) == 16
    assert ("KERNEL", "void gemm<float>(float*)", "context 1 stream 7", 6.0, 0.0) in rows_of(part.events)
    for reason in (
        "device event without a timestamp", "negative duration, taken as zero", "timestamp far in the future",
        "begin without an end",
    ):  # fmt: skip
        assert part.diagnostics.counts[reason] == 1
    with pytest.raises(TraceError, match=r"device event without a timestamp"):
        read_one(nsight, source_at(path), strict=True)


def test_views_under_the_names_of_tables_are_not_run(tmp_path: Path) -> None:
    rows = one_step()
    del rows["CUPTI_ACTIVITY_KIND_MEMCPY"]
    path = write_export(tmp_path / "trace.sqlite", rows)
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS WITH RECURSIVE endless(start) AS"
        " (SELECT 1 UNION ALL SELECT start + 1 FROM endless) SELECT start FROM endless"
    )
    connection.commit()
    connection.close()
    assert len(read_one(nsight, source_at(path)).events) == 13


def test_other_databases_are_not_claimed(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.sqlite")
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.commit()
    connection.close()
    assert nsight.recognise(source_at(tmp_path / "other.sqlite")) == 0
    assert nsight.recognise(source_of(b"SQLite format 4")) == 0


def test_a_file_that_is_no_database_is_one_clear_sentence() -> None:
    with pytest.raises(TraceError, match=r"^trace: not a readable SQLite database"):
        read_one(nsight, source_of(b"no database at all" * 100))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step 1", True), ("Step#12", True), ("iter_3", True), ("train step 7", True), ("iteration=5", True),
        ("ProfilerStep#2", True), ("step", False), ("step 3 forward", False), ("layer 3", False), ("batch 4", False),
    ],
)  # fmt: skip
def test_ranges_that_look_like_steps(name: str, expected: bool) -> None:
    assert is_step(name) is expected


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_export(tmp_path_factory.mktemp("nsight") / "trace.sqlite", one_step(), NEW).read_bytes()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_gives_a_table_or_a_trace_error(export: bytes, data: st.DataObject) -> None:
    content = bytearray(export[: data.draw(st.integers(0, len(export)))])
    if content:
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=20)):
            content[place] = data.draw(st.integers(0, 255))
    assert_survives(nsight, bytes(content), data.draw(st.booleans()))
