import json
import tarfile
from typing import Any

import pytest
from chakra_files import (
    attribute,
    bytes_field,
    json_node,
    metadata_message,
    node_message,
    number_field,
    prefixed,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, shared_trace, source_at, source_of

from makespan.errors import TraceError
from makespan.simulator.build import build
from makespan.simulator.importers import chakra, chrome, kineto, pytorch_et
from makespan.simulator.replay import replay
from makespan.trace import LaneKind, RankTrace, Trace

NODES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((0, "start", 1), {}),
    ((1, "aten::mm", 4, [], [0]), {"duration": 5, "is_cpu_op": True, "rf_id": 9, "seq_id": -1}),
    ((2, "gemm", 4, [1]), {"duration": 20, "is_cpu_op": False, "stream": 7, "num_ops": 64}),
    ((3, "Memcpy DtoD", 4, [2]), {"duration": 2, "is_cpu_op": False, "stream": 7, "tensor_size": 512}),
    (
        (4, "reduce", 7, [2]),
        {"duration": 30, "comm_type": 0, "comm_size": 4096, "pg_name": "dp", "involved_dim": [True, False]},
    ),
    ((5, "to", 5, [2]), {"duration": 3, "comm_size": 8, "comm_dst": 1, "comm_tag": 4}),
    ((6, "from", 6, [5]), {"duration": 4, "comm_size": 8, "comm_src": 3, "comm_tag": 4}),
    ((7, "load", 2, [6]), {"duration": 1, "tensor_size": 16}),
]  # fmt: skip
TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE")  # fmt: skip


def protobuf_file() -> bytes:
    return prefixed(metadata_message(schema="1.0"), *(node_message(*told, **more) for told, more in NODES))


def json_file() -> bytes:
    """As Chakra's own converter writes it: one object after the other."""
    nodes = [json_node(told[0], told[1], TYPES[told[2]], *told[3:], **more) for told, more in NODES]
    header = json.dumps({"version": "0.0.4", "attr": [{"name": "schema", "stringVal": "1.0"}]})
    return "".join([header, *nodes]).encode()


def check(part: RankTrace) -> None:
    assert rows_of(part.events) == [
        ("OTHER", "start", "host", 0, 0),
        ("CPU_OP", "aten::mm", "host", 0, 5),
        ("KERNEL", "gemm", "7", 0, 20),
        ("MEMCPY", "Memcpy DtoD", "7", 0, 2),
        ("COLLECTIVE", "reduce", "collectives of dp", 0, 30),
        ("SEND", "to", "send", 0, 3),
        ("RECV", "from", "receive", 0, 4),
        ("MEMCPY", "load", "memory", 0, 1),
    ]
    assert [attrs_of(part.events, row) for row in range(1, 8)] == [
        {"record_id": 9},
        {"flops": 64},
        {"bytes": 512},
        {"bytes": 4096, "collective": "allreduce", "group_name": "dp", "dimensions": "[true,false]"},
        {"bytes": 8, "peer": 1, "tag": 4},
        {"bytes": 8, "peer": 3, "tag": 4},
        {"bytes": 16},
    ]
    kinds = {lane.thread: lane.kind for lane in part.events.lanes}
    assert kinds["host"] == LaneKind.HOST and kinds["7"] == LaneKind.DEVICE and kinds["send"] == LaneKind.OTHER
    assert next(lane for lane in part.events.lanes if lane.thread == "7").stream == 7
    assert list(zip(part.dependency_source.tolist(), part.dependency_target.tolist(), strict=True)) == [
        (0, 1), (1, 2), (2, 3), (2, 4), (2, 5), (5, 6), (6, 7),
    ]  # fmt: skip
    assert part.timed and part.rank == -1
    assert part.metadata["schema"] == "1.0" and part.metadata["version"] == "0.0.4"
    assert not part.diagnostics


@pytest.mark.parametrize("content", [protobuf_file(), json_file()], ids=["protobuf", "json"])
def test_both_forms_give_the_exact_table(content: bytes) -> None:
    source = source_of(content)
    assert chakra.recognise(source) == 2
    assert [other.recognise(source) for other in (chrome, kineto, pytorch_et)] == [0, 0, 0]
    check(read_one(chakra, source, strict=True))


def test_replay_waits_for_what_the_file_states() -> None:
    part = read_one(chakra, source_of(protobuf_file()))
    graph = build(Trace((part,)))
    assert replay(graph).makespan_ns == (5 + 20 + 30) * 1000
    assert graph.steps[0].measured_ns == 0  # durations without starts tell no length


def workload(nodes: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"workload_graph": nodes, **more}).encode()


def test_workload_graph() -> None:
    nodes = [
        {"Id": 10, "Name": "c10d::allreduce_", "NodeType": 7, "data_deps": [], "runtime": 3, "is_cpu_op": True},
        {"Id": 12, "Name": "ncclDevKernel_AllReduce", "NodeType": 7, "ctrlDeps": [10], "data_deps": [], "runtime": 8,
         "is_cpu_op": False, "comm_size": 64},
        {"Id": 13, "Name": "void gemm(float)", "NodeType": 4, "data_deps": [12, 99], "is_cpu_op": False},
    ]  # fmt: skip
    source = source_of(workload(nodes, ngpus=8))
    assert chakra.recognise(source) == 2
    part = read_one(chakra, source)
    assert rows_of(part.events) == [
        ("CPU_OP", "c10d::allreduce_", "host", 0, 3),
        ("COLLECTIVE", "ncclDevKernel_AllReduce", "collectives", 0, 8),
        ("KERNEL", "void gemm(float)", "compute", 0, 0),
    ]
    assert attrs_of(part.events, 1) == {"collective": "allreduce", "bytes": 64}
    assert part.dependency_source.tolist() == [0, 1]
    assert part.world_size == 8
    assert part.diagnostics.counts == {chakra.ABSENT_DEPENDENCY: 1}
    with pytest.raises(TraceError, match="not in the file"):
        read_one(chakra, source, strict=True)


@pytest.mark.parametrize("kind", [-5, 0, 8, "NO_SUCH_NODE", None, 2**70])
def test_unknown_types_are_counted(kind: Any) -> None:
    part = read_one(chakra, source_of(workload([{"Id": 1, "Name": "x", "NodeType": kind, "data_deps": []}])))
    assert rows_of(part.events) == [("OTHER", "x", "host", 0, 0)]
    assert part.diagnostics.counts == {chakra.UNKNOWN_TYPE: 1}


def test_without_any_duration_there_are_no_times() -> None:
    part = read_one(chakra, source_of(workload([{"Id": 1, "Name": "x", "NodeType": 4, "data_deps": []}])))
    assert not part.timed


@pytest.mark.parametrize(
    ("messages", "reason", "count"),
    [
        ([node_message(1, "a", 4), node_message(1, "b", 4)], chakra.REPEATED_ID, 1),
        ([node_message(1, "a", 4, [1])], chakra.OWN_DEPENDENCY, 1),
        ([node_message(1, "a", 99)], chakra.UNKNOWN_TYPE, 1),
        ([node_message(1, "a", 4) + number_field(7, 2**63)], chakra.BAD_TIME, 1),
        ([b"\x0b\x0b", node_message(2, "a", 4)], "event that can't be read", 1),
        ([node_message(1, "a", 4) + b"\x3a\x01x"], "event that can't be read", 0),
    ],
)
def test_damaged_nodes_are_counted(messages: list[bytes], reason: str, count: int) -> None:
    source = source_of(prefixed(metadata_message(a=1), *messages))
    part = read_one(chakra, source)
    assert part.diagnostics.counts == {reason: 1}
    assert len(part.events) == count
    with pytest.raises(TraceError):
        read_one(chakra, source, strict=True)


def test_a_file_that_breaks_off_keeps_its_whole_nodes() -> None:
    content = protobuf_file()
    part = read_one(chakra, source_of(content[:-5]))
    assert len(part.events) == 7
    assert part.diagnostics.counts == {"file ends inside an event": 1}


def test_old_metadata_has_attributes_in_the_first_field() -> None:
    old = bytes_field(1, attribute("schema", "0.9"))
    part = read_one(chakra, source_of(prefixed(old, node_message(1, "a", 4, duration=2))), strict=True)
    assert part.metadata == {"schema": "0.9"}


@pytest.mark.parametrize(
    "content",
    [b"", b"hello world", b"\x00", b"\x00\x00", b"\x7fELF" + bytes(100), b"PAR1" + bytes(50), b"[1, 2]", b"{}"],
)
def test_other_content_is_not_claimed(content: bytes) -> None:
    assert chakra.recognise(source_of(content)) == 0


@pytest.mark.parametrize("rank", [0, 3])
def test_real_ring_of_sends_and_receives(rank: int) -> None:
    part = read_one(chakra, source_at(shared_trace(f"real/astrasim_et/allreduce_ring_8ranks.{rank}.et")), strict=True)
    kinds = [row[0] for row in rows_of(part.events)]
    # A ring of n ranks sends 2 (n - 1) chunks, and reduces in the first n - 1 steps.
    assert (kinds.count("SEND"), kinds.count("RECV"), kinds.count("KERNEL")) == (14, 14, 7)
    peers = {(row[0], attrs_of(part.events, number).get("peer")) for number, row in enumerate(rows_of(part.events))}
    assert peers == {("SEND", (rank + 1) % 8), ("RECV", (rank + 7) % 8), ("KERNEL", None)}
    assert len(part.dependency_source) == 34 and part.timed
    assert part.rank == rank


@pytest.mark.parametrize(
    ("name", "attrs", "expected"),
    [
        ("run.7.et", {}, 7), ("a/run.12.et.gz", {}, 12), ("run.7.et", {"rank": 2}, 2), ("run.json", {}, -1),
        ("run.et", {"rank": 5}, 5), ("run.et", {"ngpus": 0}, -1),
    ],
)  # fmt: skip
def test_rank_from_metadata_or_name(name: str, attrs: dict[str, int], expected: int) -> None:
    content = prefixed(metadata_message(a=1, **attrs), node_message(1, "a", 4))
    part = read_one(chakra, source_of(content, name), strict=True)
    assert part.rank == expected and not part.diagnostics


@pytest.mark.parametrize(("member", "what"), [("rank", "rank"), ("ngpus", "world size")])
@pytest.mark.parametrize("value", [-3, 1 << 40])
def test_ranks_that_cannot_be_one_are_told(member: str, what: str, value: int) -> None:
    content = prefixed(metadata_message(a=1, **{member: value}), node_message(1, "a", 4))
    part = read_one(chakra, source_of(content, "trace.7.et"))
    assert (part.rank, part.world_size) == (7, -1)
    assert part.diagnostics.counts == {f"stated {what} that can't be one, not used": 1}
    with pytest.raises(TraceError, match=f"stated {what} that can't be one"):
        read_one(chakra, source_of(content, "trace.7.et"), strict=True)


def test_real_workload_graph_against_a_plain_parse() -> None:
    with tarfile.open(shared_trace("real/chakra/json_trace.tar.gz")) as archive:
        member = archive.extractfile("jsonData/chakra.0.json")
        assert member is not None
        content = member.read()
    nodes = json.loads(content)["workload_graph"]
    part = read_one(chakra, source_of(content), strict=True)
    assert [part.events.names[code] for code in part.events.name] == [node["Name"] for node in nodes]
    assert part.events.duration_ns.tolist() == [node.get("runtime", 0) * 1000 for node in nodes]
    row_of = {node["Id"]: row for row, node in enumerate(nodes)}
    stated = {(row_of[dependency], row) for row, node in enumerate(nodes) for dependency in node["data_deps"]}
    assert set(zip(part.dependency_source.tolist(), part.dependency_target.tolist(), strict=True)) == stated
    load_ns = [int(part.events.duration_ns[part.events.lane == lane].sum()) for lane in range(3)]
    assert max(load_ns) <= replay(build(Trace((part,)))).makespan_ns <= sum(load_ns)


CONTENTS = [protobuf_file(), json_file(), workload([{"Id": 1, "NodeType": 4, "data_deps": [2], "runtime": 3}] * 2)]


@settings(max_examples=300)
@given(st.sampled_from(CONTENTS), st.data())
def test_damage_gives_a_table_or_a_trace_error(content: bytes, data: st.DataObject) -> None:
    content = content[: data.draw(st.integers(0, len(content)))]
    for place, new in data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4)):
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + 1 :]
    assert_survives(chakra, content, data.draw(st.booleans()))
