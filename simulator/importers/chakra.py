"""Chakra execution traces: stated dependencies, and durations where a converter had them; JSON or protobuf."""

from __future__ import annotations

import lzma
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.rescue import TRUNCATED, UNREADABLE
from makespan.simulator.reading.chakra_messages import is_metadata, is_node, metadata_of_message, node_of_message
from makespan.simulator.reading.chakra_nodes import (
    COLLECTIVE,
    COMPUTE,
    INVALID,
    LOAD,
    METADATA,
    NODE_TYPES,
    RECEIVE,
    SEND,
    STORE,
    ChakraNode,
    JsonNode,
    attributes_of_json,
    node_of_json,
)
from makespan.simulator.reading.json_objects import ObjectStream, as_integer
from makespan.simulator.reading.kineto_kinds import device_collective
from makespan.simulator.reading.protobuf_wire import WireError, messages
from makespan.simulator.reading.ranks import stated_rank
from makespan.simulator.reading.sources import Source, read_pieces, report
from makespan.simulator.reading.table_builder import TableBuilder
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace
from makespan.units import NS_PER_US

TITLE = "Chakra execution trace"

NO_ID: Final = "object without an id"
REPEATED_ID: Final = "id used twice"
ABSENT_DEPENDENCY: Final = "dependency on a node that is not in the file"
OWN_DEPENDENCY: Final = "dependency of a node on itself"
UNKNOWN_TYPE: Final = "node of an unknown type"
BAD_TIME: Final = "time beyond 64 bits, taken as zero"

_GRAPH: Final = re.compile(rb'"workload_graph"\s*:\s*\[')
_JSON_NODE: Final = re.compile(rb'"(?:durationMicros|duration_micros|dataDeps|data_deps|ctrlDeps)"\s*:|"COMP_NODE"')
_TRACE_EVENTS: Final = re.compile(rb'"(?:traceEvents|ph|nodes)"\s*:')
_RANK_IN_NAME: Final = re.compile(r"\.(\d{1,6})\.et(?:\.\w+)?$")
"""A run's files are called NAME.RANK.et: the simulators that read them know a rank's file by that alone."""
_PIECES_LOOKED_AT: Final = 256
_LARGEST_US: Final = (1 << 62) // NS_PER_US
_COLLECTIVES: Final[Mapping[int | None, str]] = dict(
    enumerate(
        [
            "allreduce",
            "reduce",
            "allgather",
            "gather",
            "scatter",
            "broadcast",
            "alltoall",
            "reducescatter",
            "reducescatter",
            "barrier",
        ]
    )
)
"""By the numbers of the schema's CollectiveCommType."""
_KIND: Final = {
    LOAD: EventKind.MEMCPY, STORE: EventKind.MEMCPY, SEND: EventKind.SEND, RECEIVE: EventKind.RECV,
    COLLECTIVE: EventKind.COLLECTIVE,
}  # fmt: skip
_LANE: Final = {LOAD: "memory", STORE: "memory", SEND: "send", RECEIVE: "receive", COLLECTIVE: "collectives"}


def recognise(source: Source) -> int:
    """2 for a workload graph, for the JSON form of nodes, and for length-prefixed messages of metadata and nodes."""
    start = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        if _GRAPH.search(source.head):
            return 2
        return 2 * bool(_JSON_NODE.search(source.head) and not _TRACE_EVENTS.search(source.head))
    return 2 * _is_protobuf(source)


def _is_protobuf(source: Source) -> bool:
    """Whether the first message is metadata and the next one, if any, a node. Metadata can be longer than the head."""
    if not source.head:
        return False
    try:
        with source.open() as stream:
            pieces = islice(iter(lambda: stream.read(1 << 16), b""), _PIECES_LOOKED_AT)
            first = list(islice(messages(pieces), 2))
        if len(first) == 1:
            return is_metadata(first[0]) and bool(metadata_of_message(first[0]))
        return len(first) == 2 and is_metadata(first[0]) and is_node(first[1])
    except (WireError, OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace, events in file order, `timed` where any node has a duration.

    Lanes: host threads, device streams where the file names them, else one for compute, and one each for memory,
    sends, receives and the collectives of a group; a node is at the host where it says so (is_cpu_op). Dependencies
    are the stated ones, control and data alike. Attributes: bytes, collective, peer, tag, dimensions, flops,
    group_name, record_id, sequence, shapes, types.
    """
    graph = _Graph(source, diagnostics, strict)
    metadata = (
        graph.add_json() if source.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else graph.add_messages()
    )
    dependency_source, dependency_target = graph.dependencies()
    rank, world_size = (
        stated_rank(_plain(metadata.get(key)), what, source.name, diagnostics, strict)
        for key, what in (("rank", "rank"), ("ngpus", "world size"))
    )
    named = _RANK_IN_NAME.search(source.name)
    if rank == NONE and named is not None:
        rank = int(named[1])
    return [
        RankTrace(
            rank=rank,
            source=source.name,
            format=TITLE,
            events=graph.rows.table(),
            diagnostics=diagnostics,
            timed=graph.timed,
            world_size=world_size or NONE,
            dependency_source=dependency_source,
            dependency_target=dependency_target,
            metadata=metadata,
        )
    ]


def _plain(value: Any) -> Any:
    """Protobuf's JSON writes 64-bit integers as text."""
    number = as_integer(value) if isinstance(value, str) else None
    return value if number is None else number


class _Graph:
    """Nodes in, rows and dependencies out."""

    def __init__(self, source: Source, diagnostics: Diagnostics, strict: bool) -> None:
        self.rows = TableBuilder()
        self.timed = False
        self._source, self._diagnostics, self._strict = source, diagnostics, strict
        self._row_of: dict[int, int] = {}
        self._waiting = array("q")
        self._awaited: list[int] = []

    def add_json(self) -> dict[str, Any]:
        """All nodes of a JSON file; returns its metadata."""
        stream = ObjectStream(self._source, self._diagnostics, self._strict, JsonNode, ["workload_graph"])
        header: dict[str, Any] = {}
        for chunk in stream:
            for told in chunk:
                node = node_of_json(told)
                if node.number is None and not self._row_of and not header:
                    header = {"version": told.version, **attributes_of_json(told.attr)}
                else:
                    self.add(node)
        return {**header, **stream.metadata}

    def add_messages(self) -> dict[str, Any]:
        """All nodes of a protobuf file; returns its metadata."""
        metadata: dict[str, Any] = {}
        for number, message in enumerate(self._messages()):
            try:
                if number == 0:
                    metadata = metadata_of_message(message)
                else:
                    self.add(node_of_message(message))
            except WireError:
                self._tell(UNREADABLE, f"message {number}")
        return metadata

    def _messages(self) -> Iterator[bytes]:
        try:
            yield from messages(read_pieces(self._source, self._diagnostics, self._strict))
        except WireError:
            self._tell(TRUNCATED, f"message {len(self.rows) + 1}")

    def add(self, node: ChakraNode) -> None:
        """Append one node."""
        if node.number is None or node.number in self._row_of:
            self._tell(NO_ID if node.number is None else REPEATED_ID, f"node {node.number}")
            return
        start_ns, duration_ns = self._time(node.start_us, node), self._time(node.duration_us, node)
        self.timed |= duration_ns > 0
        at_host = _flag(node.attributes.get("is_cpu_op"))
        kind = self._kind(node, at_host)
        row = self.rows.add(
            node.name,
            kind,
            self._lane(node, at_host or kind == EventKind.OTHER),
            start_ns,
            duration_ns,
        )
        self._row_of[node.number] = row
        for key, value in _attributes(node).items():
            if value is not None:
                self.rows.set_attr(row, key, value)
        for dependency in node.dependencies:
            self._waiting.append(row)
            self._awaited.append(dependency)

    def _time(self, time_us: int, node: ChakraNode) -> int:
        if 0 <= time_us <= _LARGEST_US:
            return time_us * NS_PER_US
        self._tell(BAD_TIME, f"node {node.number}")
        return 0

    def _kind(self, node: ChakraNode, at_host: bool) -> EventKind:
        if not INVALID < node.type < len(NODE_TYPES):
            self._tell(UNKNOWN_TYPE, f"node {node.number}")
            return EventKind.OTHER
        if node.type == METADATA:
            return EventKind.OTHER
        if at_host:
            return EventKind.CPU_OP
        if node.type == COMPUTE:
            copies = {"memcpy": EventKind.MEMCPY, "memset": EventKind.MEMSET}
            return copies.get(node.name[:6].lower(), EventKind.KERNEL)
        return _KIND[node.type]

    def _lane(self, node: ChakraNode, at_host: bool) -> int:
        thread, stream = as_integer(node.attributes.get("tid")), as_integer(node.attributes.get("stream"))
        if at_host:
            return self.rows.lane(LaneKind.HOST, "", "host" if thread is None else str(thread))
        if stream is not None:
            return self.rows.lane(LaneKind.DEVICE, "", str(stream), f"stream {stream}", stream=stream)
        if node.type not in _LANE:
            return self.rows.lane(LaneKind.DEVICE, "", "compute")
        group = node.attributes.get("pg_name") if node.type == COLLECTIVE else None
        return self.rows.lane(LaneKind.OTHER, "", f"{_LANE[node.type]} of {group}" if group else _LANE[node.type])

    def dependencies(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Awaited and waiting rows, (d,) each."""
        target = np.array(self._waiting, np.int32)
        source = np.array([self._row_of.get(awaited, NONE) for awaited in self._awaited], np.int32)
        absent, own = source < 0, source == target
        for reason, where in ((ABSENT_DEPENDENCY, absent), (OWN_DEPENDENCY, own)):
            if where.any():
                self._tell(reason, f"row {target[np.argmax(where)]}", int(where.sum()))
        return source[~absent & ~own], target[~absent & ~own]

    def _tell(self, reason: str, where: str, count: int = 1) -> None:
        report(self._diagnostics, self._strict, reason, f"{self._source.name}:{where}", count)


def _flag(value: Any) -> bool:
    return value in (True, 1, "true", "True", "1")


def _attributes(node: ChakraNode) -> dict[str, int | str | None]:
    told = node.attributes
    numbers = {key: as_integer(told.get(key)) for key in (
        "comm_size", "tensor_size", "comm_type", "comm_src", "comm_dst", "comm_tag", "num_ops", "rf_id", "seq_id",
    )}  # fmt: skip
    size_bytes = numbers["comm_size"] if numbers["comm_size"] is not None else numbers["tensor_size"]
    collective = None
    if node.type == COLLECTIVE:
        collective = _COLLECTIVES.get(numbers["comm_type"]) or device_collective(node.name) or None
    peer = {SEND: numbers["comm_dst"], RECEIVE: numbers["comm_src"]}.get(node.type)
    group, dimensions = told.get("pg_name"), told.get("involved_dim")
    return {
        "bytes": size_bytes if size_bytes is not None and size_bytes > 0 else None,
        "collective": collective,
        "peer": peer,
        "tag": numbers["comm_tag"],
        "dimensions": msgspec.json.encode(dimensions).decode() if isinstance(dimensions, list) else None,
        "flops": numbers["num_ops"] or None,
        "group_name": str(group) if group not in (None, "") else None,
        "record_id": numbers["rf_id"] or None,
        "sequence": None if numbers["seq_id"] == NONE else numbers["seq_id"],
        "shapes": node.shapes if node.shapes not in ("", "[]") else None,
        "types": node.types if node.types not in ("", "[]") else None,
    }
