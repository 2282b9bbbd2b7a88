"""PyTorch execution traces: the tree of ops with their tensors; without times, unless a linker added them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from makespan.simulator.chrome.times import nanoseconds
from makespan.simulator.reading.json_objects import ObjectStream, as_integer
from makespan.simulator.reading.kineto_kinds import canonical_collective, communication_kind, device_collective, is_step
from makespan.simulator.reading.sources import Source, report
from makespan.simulator.reading.storage_flow import storage_dependencies
from makespan.simulator.reading.table_builder import TableBuilder
from makespan.trace import COMMUNICATION_KINDS, NONE, Diagnostics, EventKind, LaneKind, RankTrace

TITLE = "PyTorch execution trace"

NO_ID: Final = "object without an id"
REPEATED_ID: Final = "id used twice"
ABSENT_PARENT: Final = "parent that is not in the file"
LATER_PARENT: Final = "parent that begins after its child"
NO_RECORD_ID: Final = "record-function id 0, which links to nothing"
UNTIMED: Final = "event that the linker found no time for"

_NODES: Final = re.compile(rb'"nodes"\s*:\s*\[')
_MARKS: Final = re.compile(rb'"(?:rf_id|ctrl_deps|op_schema|fw_parent|input_shapes)"')
_ROOT: Final = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:thread|process)\]")
_NOTHING: Final = msgspec.Raw(b"")
_USER_SCOPE: Final = 7
_NO_COMMUNICATION: Final = ("", "init", "wait")
"""Names of communication records that stand for no communication."""
_DEVICE_KIND: Final = {"gpu_memcpy": EventKind.MEMCPY, "gpu_memset": EventKind.MEMSET}
_MEMBERS: Final = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")


class _Side(msgspec.Struct, gc=False):
    """The inputs or outputs of an op, since schema 1.0.3."""

    values: Any = None
    shapes: msgspec.Raw = _NOTHING
    types: msgspec.Raw = _NOTHING


class _Attribute(msgspec.Struct, gc=False):
    name: str
    value: Any = None


class _Node(msgspec.Struct, gc=False):
    """An op: with members for everything (schema 1.0.0 to 1.0.2), or with a list of attributes (since 1.0.3).

    The members from `ts` on are those that Chakra's linker adds.
    """

    id: Any = None
    name: Any = ""
    parent: Any = None
    ctrl_deps: Any = None
    inputs: _Side | list[Any] | None = None
    outputs: _Side | list[Any] | None = None
    input_shapes: msgspec.Raw = _NOTHING
    input_types: msgspec.Raw = _NOTHING
    rf_id: Any = None
    fw_parent: Any = None
    seq_id: Any = None
    scope: Any = None
    tid: Any = None
    fw_tid: Any = None
    attrs: list[_Attribute] | None = None
    ts: msgspec.Raw = _NOTHING
    inclusive_dur: msgspec.Raw = _NOTHING
    cat: Any = None
    stream: Any = None


def recognise(source: Source) -> int:
    """2 for a document with an array of nodes that have record-function ids or control dependencies."""
    return 2 * bool(_NODES.search(source.head) and _MARKS.search(source.head))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace with the events in id order; `timed` only where Chakra's linker added times and device events.

    Attributes: parent, record_id, sequence, forward_thread, shapes, types, and on communication the collective's.
    Arrows "fwdbwd" lead from a forward op to its backward ops. Dependencies lead from a parent to its child and
    from the last writer of a tensor's storage to its reader; a timed trace has none, since there the times tell
    more, but launches, which share a correlation with their device events.
    """
    stream = ObjectStream(source, diagnostics, strict, _Node, ["nodes"])
    nodes: dict[int, _Node] = {}
    for chunk in stream:
        for node in chunk:
            number = as_integer(node.id)
            if number is None or number in nodes:
                reason = NO_ID if number is None else REPEATED_ID
                report(diagnostics, strict, reason, f"{source.name}:id {node.id}")
            else:
                nodes[number] = node
    nodes = dict(sorted(nodes.items()))
    parents = _parents(nodes, source, diagnostics, strict)
    timed = any(nanoseconds(bytes(node.inclusive_dur)) for node in nodes.values())
    if timed:
        count = len(nodes)
        nodes, parents = _with_times(nodes, parents)
        diagnostics.add(UNTIMED, source.name, count - len(nodes))
    rows = TableBuilder()
    process = str(stream.metadata.get("pid", ""))
    for node, parent in zip(nodes.values(), parents, strict=True):
        _add(rows, node, parent, process)
    _add_arrows(rows, nodes)
    unlinked = sum(
        _attributes(node).get("rf_id") == 0 and not _ROOT.fullmatch(str(node.name)) for node in nodes.values()
    )
    diagnostics.add(NO_RECORD_ID, source.name, unlinked)
    dependencies = (np.empty(0, np.int32),) * 2 if timed else _dependencies(nodes, parents)
    return [
        RankTrace(
            rank=NONE,
            source=source.name,
            format=TITLE,
            events=rows.table(),
            diagnostics=diagnostics,
            timed=timed,
            dependency_source=dependencies[0],
            dependency_target=dependencies[1],
            metadata=stream.metadata,
        )
    ]


def _parents(nodes: dict[int, _Node], source: Source, diagnostics: Diagnostics, strict: bool) -> list[int]:
    """The row of each node's parent, -1 for the root and where there is none."""
    row_of = {number: row for row, number in enumerate(nodes)}
    parents: list[int] = []
    for number, node in nodes.items():
        parent = as_integer(node.ctrl_deps if node.ctrl_deps is not None else node.parent)
        place = f"{source.name}:id {number}"
        if parent is None or parent == number:
            parents.append(NONE)
        elif parent not in row_of:
            report(diagnostics, strict, ABSENT_PARENT, place)
            parents.append(NONE)
        elif parent > number:
            report(diagnostics, strict, LATER_PARENT, place)
            parents.append(NONE)
        else:
            parents.append(row_of[parent])
    return parents


def _with_times(nodes: dict[int, _Node], parents: list[int]) -> tuple[dict[int, _Node], list[int]]:
    """The nodes that have a time, and the rows of their nearest such ancestors."""
    kept: dict[int, _Node] = {}
    nearest: list[int] = []
    new_parents: list[int] = []
    for (number, node), parent in zip(nodes.items(), parents, strict=True):
        above = nearest[parent] if parent >= 0 else NONE
        there = nanoseconds(bytes(node.ts)) is not None
        nearest.append(len(kept) if there else above)
        if there:
            kept[number] = node
            new_parents.append(above)
    return kept, new_parents


def _attributes(node: _Node) -> dict[str, Any]:
    """An op's attributes, in whichever form the schema has them."""
    if node.attrs is not None:
        return {attribute.name: attribute.value for attribute in node.attrs}
    return {member: getattr(node, member) for member in _MEMBERS}


def _add(rows: TableBuilder, node: _Node, parent: int, process: str) -> None:
    attributes = _attributes(node)
    numbers = {member: as_integer(attributes.get(member)) for member in _MEMBERS}
    name = str(node.name)
    kind = _kind(node, name, attributes)
    on_device = node.cat is not None
    if on_device:
        number = as_integer(node.stream)
        lane = rows.lane(LaneKind.DEVICE, process, str(node.stream), stream=NONE if number is None else number)
    else:
        lane = rows.lane(LaneKind.HOST, process, str(attributes.get("tid", "")))
    inputs = node.inputs
    shapes, types = (
        (inputs.shapes, inputs.types) if isinstance(inputs, _Side) else (node.input_shapes, node.input_types)
    )
    start_ns = nanoseconds(bytes(node.ts)) or 0
    duration_ns = nanoseconds(bytes(node.inclusive_dur)) or 0
    row = rows.add(
        name,
        kind,
        lane,
        start_ns,
        max(0, duration_ns),
        correlation=parent if on_device else len(rows) if start_ns else NONE,
        parent=parent if parent >= 0 else None,
        record_id=numbers["rf_id"] or None,
        sequence=None if numbers["seq_id"] == NONE else numbers["seq_id"],
        forward_thread=numbers["fw_tid"] or None,
        shapes=_text(shapes, "[]"),
        types=_text(types, "[]"),
    )
    if kind in COMMUNICATION_KINDS:
        _add_communication(rows, row, node, attributes)


def _kind(node: _Node, name: str, attributes: dict[str, Any]) -> EventKind:
    told = str(attributes.get("collective_name", ""))
    collective = canonical_collective(told) if told not in _NO_COMMUNICATION else ""
    if node.cat is not None:
        collective = collective or device_collective(name)
        kernel = communication_kind(collective) if collective else EventKind.KERNEL
        return _DEVICE_KIND.get(str(node.cat), kernel)
    if _ROOT.fullmatch(name):
        return EventKind.OTHER
    if collective:
        return communication_kind(collective)
    if attributes.get("scope") == _USER_SCOPE:
        return EventKind.STEP if is_step(name) else EventKind.ANNOTATION
    return EventKind.CPU_OP


def _add_communication(rows: TableBuilder, row: int, node: _Node, attributes: dict[str, Any]) -> None:
    told = str(attributes.get("collective_name", ""))
    rows.set_attr(row, "collective", canonical_collective(told) if told else device_collective(str(node.name)))
    for key, member in (("dtype", "dtype"), ("group_name", "pg_name")):
        if attributes.get(member):
            rows.set_attr(row, key, str(attributes[member]))
    for key, member in (
        ("input_elements", "in_msg_nelems"), ("output_elements", "out_msg_nelems"), ("group_size", "pg_size"),
    ):  # fmt: skip
        value = as_integer(attributes.get(member))
        if value is not None:
            rows.set_attr(row, key, value)
    size_bytes = sum(elements * width for _, elements, width in _tensors(node.inputs))
    if 0 < size_bytes < 1 << 63:
        rows.set_attr(row, "bytes", size_bytes)


def _add_arrows(rows: TableBuilder, nodes: dict[int, _Node]) -> None:
    row_of = {number: row for row, number in enumerate(nodes)}
    for row, node in enumerate(nodes.values()):
        forward = as_integer(_attributes(node).get("fw_parent"))
        if forward and forward in row_of:
            rows.flow(row_of[forward], row, "fwdbwd")


def _dependencies(nodes: dict[int, _Node], parents: list[int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    writers, readers = storage_dependencies(
        list(nodes),
        parents,
        [[storage for storage, _, _ in _tensors(node.inputs)] for node in nodes.values()],
        [[storage for storage, _, _ in _tensors(node.outputs)] for node in nodes.values()],
    )
    parent = np.array(parents, np.int32)
    children = np.flatnonzero(parent >= 0).astype(np.int32)
    return np.concatenate([parent[children], writers]), np.concatenate([children, readers])


def _tensors(side: _Side | list[Any] | None) -> Iterator[tuple[int, int, int]]:
    """Storage id, elements and bytes of an element of each tensor among the values, however deep in lists.

    A tensor is written as its id, storage id, offset, elements, bytes of an element, and device.
    """
    pending = [side.values if isinstance(side, _Side) else side]
    while pending:
        value = pending.pop()
        if not isinstance(value, list):
            continue
        if len(value) >= 6 and isinstance(value[5], str) and all(type(part) is int for part in value[:5]):
            if value[1] > 0:
                yield value[1], max(0, value[3]), max(0, value[4])
        else:
            pending.extend(reversed(value))


def _text(raw: msgspec.Raw, empty: str) -> str | None:
    """JSON text without white space outside names, None where there is nothing in it."""
    text = "".join(bytes(raw).decode("utf-8", "replace").split())
    return None if text in ("", empty, "null") else text
