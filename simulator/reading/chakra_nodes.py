"""Chakra nodes, and their two JSON forms: that of the protobuf messages, and workload graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from makespan.simulator.reading.json_objects import as_integer

NODE_TYPES: Final = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
"""Names of the node types that are known, by their numbers in the schema."""
INVALID, METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(8)


@dataclass(slots=True)
class ChakraNode:
    """A node of the schema; times in whole microseconds, ids as in the file, `attributes` by name."""

    number: int | None = None
    name: str = ""
    type: int = 0
    dependencies: list[int] = field(default_factory=list[int])
    start_us: int = 0
    duration_us: int = 0
    shapes: str = ""
    types: str = ""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


class JsonNode(msgspec.Struct, gc=False):
    """A node of either JSON form: the messages' members (camel or snake case), or those of a workload graph."""

    id: Any = None
    node_id: Any = msgspec.field(default=None, name="Id")
    name: Any = None
    node_name: Any = msgspec.field(default=None, name="Name")
    type: Any = None
    node_type: Any = msgspec.field(default=None, name="NodeType")
    ctrl_deps_camel: Any = msgspec.field(default=None, name="ctrlDeps")
    ctrl_deps: Any = None
    data_deps_camel: Any = msgspec.field(default=None, name="dataDeps")
    data_deps: Any = None
    start_time_camel: Any = msgspec.field(default=None, name="startTimeMicros")
    start_time_micros: Any = None
    duration_camel: Any = msgspec.field(default=None, name="durationMicros")
    duration_micros: Any = None
    runtime: Any = None
    inputs: Any = None
    attr: Any = None
    version: Any = None
    is_cpu_op: Any = None
    tensor_size: Any = None
    comm_type: Any = None
    comm_priority: Any = None
    comm_size: Any = None
    comm_src: Any = None
    comm_dst: Any = None
    comm_tag: Any = None


_PLAIN: Final = (
    "is_cpu_op", "tensor_size", "comm_type", "comm_priority", "comm_size", "comm_src", "comm_dst", "comm_tag",
)  # fmt: skip


def node_of_json(told: JsonNode) -> ChakraNode:
    """A node from either JSON form; `number` is None for what has no id (the metadata before the nodes)."""
    kind = _first(told.type, told.node_type)
    inputs: Mapping[str, Any] = told.inputs if isinstance(told.inputs, dict) else {}
    number = as_integer(_first(told.id, told.node_id))
    named = NODE_TYPES.index(kind) if kind in NODE_TYPES else as_integer(kind)
    if number is None and kind is not None and told.id is None and told.node_id is None:
        number = 0  # the JSON form of a message leaves zeros out
    return ChakraNode(
        number=number,
        name=str(_first(told.name, told.node_name, "")),
        type=0 if named is None else named,
        dependencies=[
            dependency
            for listed in (told.ctrl_deps_camel, told.ctrl_deps, told.data_deps_camel, told.data_deps)
            if isinstance(listed, list)
            for dependency in map(as_integer, listed)
            if dependency is not None
        ],
        start_us=as_integer(_first(told.start_time_camel, told.start_time_micros)) or 0,
        duration_us=as_integer(_first(told.duration_camel, told.duration_micros, told.runtime)) or 0,
        shapes=str(inputs.get("shapes", "")),
        types=str(inputs.get("types", "")),
        attributes={
            **{name: getattr(told, name) for name in _PLAIN if getattr(told, name) is not None},
            **attributes_of_json(told.attr),
        },
    )


def attributes_of_json(listed: Any) -> dict[str, Any]:
    """Attributes by name from their JSON form, in which 64-bit integers are text and lists are objects of values."""
    found: dict[str, Any] = {}
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        told = next((value for key, value in entry.items() if key not in ("name", "docString", "doc_string")), None)
        if isinstance(told, dict):
            told = told.get("values", [])
        found[entry["name"]] = told
    return found


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
