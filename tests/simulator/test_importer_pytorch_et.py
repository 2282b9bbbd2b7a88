import gzip
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, attrs_of, read_one, rows_of, shared_trace, source_at, source_of

from makespan.errors import TraceError
from makespan.simulator.importers import chakra, chrome, kineto, pytorch_et
from makespan.trace import LaneKind

A, B, C = [7, 1, 0, 6, 4, "cuda:0"], [8, 2, 0, 12, 4, "cuda:0"], [9, 3, 0, 8, 4, "cuda:0"]
"""Tensors: id, storage, offset, elements, bytes of an element, device."""


def with_members(
    number: int, name: str, parent: int, inputs: Any = (), outputs: Any = (), **more: Any
) -> dict[str, Any]:
    """An op in the schema of 1.0.1."""
    told = {"rf_id": number - 1, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, **more}
    shapes = {"input_shapes": [[2, 3]] * len(inputs), "input_types": ["Tensor(float)"] * len(inputs)}
    return {
        "name": name, "id": number, "parent": parent, **told, "op_schema": "", "inputs": list(inputs), **shapes,
        "outputs": list(outputs), "output_shapes": [], "output_types": [],
    }  # fmt: skip


def with_attributes(
    number: int, name: str, parent: int, inputs: Any = (), outputs: Any = (), **more: Any
) -> dict[str, Any]:
    """The same op in the schema of 1.1.0-chakra."""
    told = {"rf_id": number - 1, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, **more}
    return {
        "id": number, "name": name, "ctrl_deps": parent,
        "inputs": {
            "values": list(inputs), "shapes": [[2, 3]] * len(inputs), "types": ["Tensor(float)"] * len(inputs),
        },
        "outputs": {"values": list(outputs), "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "any", "value": value} for key, value in told.items()],
    }  # fmt: skip


def five_ops(op: Any) -> list[dict[str, Any]]:
    """linear (with mm inside) makes B of A; relu's backward on another thread reads B. In the order of their ends."""
    return [
        op(4, "aten::mm", 3, [A], [B]),
        op(3, "aten::linear", 2, [A], [B], seq_id=5),
        op(2, "[pytorch|profiler|execution_graph|thread]", 1, scope=7, rf_id=0),
        op(6, "ReluBackward0", 1, [[B]], [C], tid=2, fw_tid=1, fw_parent=3, seq_id=5, scope=1),
        op(7, "ProfilerStep#3", 1, scope=7),
        op(1, "[pytorch|profiler|execution_trace|process]", 1, scope=7, tid=0, rf_id=0),
    ]


def document(nodes: list[dict[str, Any]], schema: str = "1.0.1") -> bytes:
    return json.dumps({"schema": schema, "pid": 42, "start_ts": 1, "nodes": nodes, "finish_ts": 9}).encode()


@pytest.mark.parametrize(("op", "schema"), [(with_members, "1.0.1"), (with_attributes, "1.1.0-chakra.0.0.4")])
def test_both_schemas_give_the_exact_table(op: Any, schema: str) -> None:
    source = source_of(document(five_ops(op), schema))
    assert pytorch_et.recognise(source) == 2
    assert [other.recognise(source) for other in (chakra, chrome, kineto)] == [0, 0, 0]
    part = read_one(pytorch_et, source, strict=True)
    assert rows_of(part.events) == [
        ("OTHER", "[pytorch|profiler|execution_trace|process]", "0", 0, 0),
        ("OTHER", "[pytorch|profiler|execution_graph|thread]", "1", 0, 0),
        ("CPU_OP", "aten::linear", "1", 0, 0),
        ("CPU_OP", "aten::mm", "1", 0, 0),
        ("CPU_OP", "ReluBackward0", "2", 0, 0),
        ("STEP", "ProfilerStep#3", "1", 0, 0),
    ]
    shapes = {"shapes": "[[2,3]]", "types": '["Tensor(float)"]'}
    assert [attrs_of(part.events, row) for row in range(6)] == [
        {},
        {"parent": 0},
        {"parent": 1, "record_id": 2, "sequence": 5, **shapes},
        {"parent": 2, "record_id": 3, **shapes},
        {"parent": 0, "record_id": 5, "sequence": 5, "forward_thread": 1, **shapes},
        {"parent": 0, "record_id": 6},
    ]
    assert all(lane.kind == LaneKind.HOST and lane.process == "42" for lane in part.events.lanes)
    dependencies = set(zip(part.dependency_source.tolist(), part.dependency_target.tolist(), strict=True))
    assert dependencies == {(0, 1), (1, 2), (2, 3), (0, 4), (0, 5), (3, 4)}
    assert (part.events.flow_source.tolist(), part.events.flow_target.tolist()) == ([2], [4])
    assert part.events.names[part.events.flow_kind[0]] == "fwdbwd"
    assert not part.timed
    assert part.metadata["schema"] == schema and part.metadata["finish_ts"] == 9
    assert not part.diagnostics


def test_communication_carries_the_collective() -> None:
    told = {
        "collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 6, "out_msg_nelems": 6, "pg_name": "0",
        "pg_size": 2,
    }  # fmt: skip
    nodes = [
        with_attributes(1, "record_param_comms", 1, [[A, B], 5, ["0", "default"]], [], **told),
        with_attributes(2, "record_param_comms", 1, [], [], collective_name="init"),
        with_attributes(3, "record_param_comms", 1, [[A]], [], collective_name="send"),
    ]
    part = read_one(pytorch_et, source_of(document(nodes)), strict=True)
    assert [row[0] for row in rows_of(part.events)] == ["COLLECTIVE", "CPU_OP", "SEND"]
    found = attrs_of(part.events, 0)
    assert {key: found[key] for key in found if key not in ("shapes", "types", "parent")} == {
        "collective": "allreduce", "dtype": "Float", "group_name": "0", "group_size": 2, "input_elements": 6,
        "output_elements": 6, "bytes": 6 * 4 + 12 * 4,
    }  # fmt: skip


def test_times_that_chakras_linker_added() -> None:
    nodes = five_ops(with_attributes)
    for node, (start, length) in zip(nodes, ((11.5, 2), (11, 4), (9, 30), (20.25, 3), (9, 40)), strict=False):
        node |= {"ts": start, "inclusive_dur": length, "exclusive_dur": 1}
    kernel = with_attributes(9, "gemm", 4) | {"cat": "kernel", "ts": 13, "inclusive_dur": 5, "stream": 7}
    part = read_one(pytorch_et, source_of(document([*nodes, kernel])), strict=True)
    assert part.timed and len(part.dependency_source) == 0
    assert rows_of(part.events)[1:3] == [
        ("CPU_OP", "aten::linear", "1", 11, 4), ("CPU_OP", "aten::mm", "1", 11.5, 2),
    ]  # fmt: skip
    assert rows_of(part.events)[-1] == ("KERNEL", "gemm", "7", 13, 5)
    assert part.events.correlation[-1] == part.events.correlation[2]
    assert part.events.attrs["parent"].dense(6).tolist() == [-1, 0, 1, -1, -1, 2]
    assert part.diagnostics.counts == {pytorch_et.UNTIMED: 1}


@pytest.mark.parametrize(
    ("change", "reason", "count"),
    [
        (lambda nodes: nodes[0].update(parent=77), pytorch_et.ABSENT_PARENT, 6),
        (lambda nodes: nodes[1].update(parent=6), pytorch_et.LATER_PARENT, 6),
        (lambda nodes: nodes[0].update(id=3), pytorch_et.REPEATED_ID, 5),
        (lambda nodes: nodes[0].pop("id"), pytorch_et.NO_ID, 5),
    ],
)
def test_broken_references_are_counted(change: Any, reason: str, count: int) -> None:
    nodes = five_ops(with_members)
    change(nodes)
    part = read_one(pytorch_et, source_of(document(nodes)))
    assert part.diagnostics.counts == {reason: 1}
    assert len(part.events) == count
    with pytest.raises(TraceError, match=reason):
        read_one(pytorch_et, source_of(document(nodes)), strict=True)


def test_public_defects_of_the_observer() -> None:
    source = source_at(shared_trace("tiny/T26b_et_missing_comma/et.json"))
    part = read_one(pytorch_et, source)
    assert rows_of(part.events) == [
        ("OTHER", "[pytorch|profiler|execution_trace|process]", "", 0, 0), ("CPU_OP", "aten::mm", "", 0, 0),
    ]  # fmt: skip
    assert part.diagnostics.counts == {
        "missing comma": 1, pytorch_et.ABSENT_PARENT: 1, pytorch_et.NO_RECORD_ID: 1,
    }  # fmt: skip
    with pytest.raises(TraceError, match="missing comma"):
        read_one(pytorch_et, source, strict=True)


@pytest.mark.parametrize(
    "name",
    ["linear_et.json.gz", "resnet_et.json.gz", "1.1.0-chakra.0.0.4__resnet_2gpu_et.json.gz"],
)
def test_real_traces_against_a_plain_parse(name: str) -> None:
    path = shared_trace(f"real/param/et_replay__tests__inputs__{name}")
    part = read_one(pytorch_et, source_at(path), strict=True)
    nodes = sorted(json.loads(gzip.decompress(path.read_bytes()))["nodes"], key=lambda node: node["id"])
    row_of = {node["id"]: row for row, node in enumerate(nodes)}
    events = part.events
    assert [events.names[code] for code in events.name] == [node["name"] for node in nodes]
    parents = [row_of[node.get("ctrl_deps", node.get("parent"))] for node in nodes]
    told = events.attrs["parent"].dense(len(nodes))
    assert all(told[row] == (parent if parent != row else -1) for row, parent in enumerate(parents))
    ids = [
        node.get("rf_id", next((a["value"] for a in node.get("attrs", []) if a["name"] == "rf_id"), 0))
        for node in nodes
    ]
    assert [max(0, value) for value in events.attrs["record_id"].dense(len(nodes))] == ids
    # Every dependency leads forward, and every stated parent is among them.
    assert (part.dependency_source < part.dependency_target).all()
    stated = np.count_nonzero(told[part.dependency_target] == part.dependency_source)
    assert stated == len(nodes) - 1


CONTENT = document(five_ops(with_members)[:3] + five_ops(with_attributes)[3:])


@settings(max_examples=200)
@given(st.integers(0, len(CONTENT)), st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=3)), max_size=4))
def test_damage_gives_a_table_or_a_trace_error(cut: int, changes: list[tuple[int, bytes]]) -> None:
    content = CONTENT[:cut]
    for place, new in changes:
        place %= len(content) + 1
        content = content[:place] + new + content[place + 1 :]
    assert_survives(pytorch_et, content, strict=False)
    assert_survives(pytorch_et, content, strict=True)
