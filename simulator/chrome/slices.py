"""Chrome slices: ops, host events, steps, arrows and the critical path of a schedule as lines of Chrome JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.graph import COMMUNICATION, NONE, EdgeKind, Evidence, Graph, OpKind, Relation, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.analysis.chain import PiecePart
from makespan.simulator.analysis.critical_path import critical_path
from makespan.simulator.chrome.tracks import HostSpans, Tracks, lay_out, rebuild_host_events
from makespan.text import encode_json
from makespan.trace import EventKind, Trace

_CHUNK: Final = 20_000
_CRITICAL_PROCESS: Final = 1_000_000
_ANNOTATION: Final = "user_annotation"
_LAUNCHES: Final = (EdgeKind.LAUNCH, EdgeKind.GRAPH)
# Categories of PyTorch profiles, so that what reads those knows host calls, kernels and copies apart.
_HOST_CATEGORY: Final = {
    OpKind.HOST: "cpu_op", OpKind.COMPUTE: "cpu_op", OpKind.MEMCPY: "cpu_op", OpKind.MEMSET: "cpu_op",
    OpKind.PYTHON: "python_function", OpKind.RUNTIME: "cuda_runtime", OpKind.WAIT: "cuda_runtime",
}  # fmt: skip
_DEVICE_CATEGORY: Final = {OpKind.MEMCPY: "gpu_memcpy", OpKind.MEMSET: "gpu_memset"} | dict.fromkeys(
    COMMUNICATION, "collective_comm"
)
_EVENT_CATEGORY: Final = {
    EventKind.RUNTIME: "cuda_runtime", EventKind.PYTHON: "python_function",
    EventKind.COLLECTIVE: _ANNOTATION, EventKind.SEND: _ANNOTATION, EventKind.RECV: _ANNOTATION,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Ops (n,) of `graph` at their times on their tracks; `spans` are host events drawn instead of their segments."""

    graph: Graph
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    tracks: Tracks
    spans: HostSpans
    trace: Trace

    @staticmethod
    def of(graph: Graph, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], trace: Trace | None) -> Drawing:
        """A drawing of the ops from `start_ns` to `end_ns`, its host events whole where `trace` is given."""
        given = trace if trace is not None else Trace(())
        tracks = lay_out(graph.stream, start_ns, end_ns)
        return Drawing(graph, start_ns, end_ns, tracks, rebuild_host_events(graph, given), given)

    def names(self) -> Iterator[str]:
        """Names and order of processes and threads: host threads above device streams above links."""
        for rank in sorted({stream.rank for stream in self.graph.streams}):
            yield _metadata("process_name", _process(rank), 0, name=f"rank {rank}")
            yield _metadata("process_sort_index", _process(rank), 0, sort_index=rank)
        for track, (number, lane) in enumerate(
            zip(self.tracks.stream.tolist(), self.tracks.lane.tolist(), strict=True)
        ):
            stream = self.graph.streams[number]
            name = f"{stream.name} ({lane + 1})" if lane else stream.name
            yield _metadata("thread_name", _process(stream.rank), 1 + track, name=name)
            yield _metadata(
                "thread_sort_index", _process(stream.rank), 1 + track, sort_index=track + (stream.kind << 20)
            )

    def steps(self) -> Iterator[str]:
        """One range for each step; steps that overlap take further threads."""
        steps = self.graph.steps
        begin = np.array([self.start_ns[step.begin_op] for step in steps], np.int64)
        end = np.maximum(np.array([self.end_ns[step.end_op] for step in steps], np.int64), begin)
        tracks = lay_out(np.array([step.rank for step in steps], np.int32), begin, end)
        first = 1 + len(self.tracks.stream)
        for track, rank in enumerate(tracks.stream.tolist()):
            yield _metadata("thread_name", _process(rank), first + track, name="steps")
            yield _metadata("thread_sort_index", _process(rank), first + track, sort_index=-1)
        for number, step in enumerate(steps):
            args = {"step": step.name} | ({"measured_ns": step.measured_ns} if step.measured_ns >= 0 else {})
            place = f'"pid":{_process(step.rank)},"tid":{first + int(tracks.of_op[number])}'
            yield _slice(_ANNOTATION, step.name, place, int(begin[number]), int(end[number]), args)

    def slices(self) -> Iterator[str]:
        """Every op once: in the slice of the host event that it is a segment of, else by itself."""
        alone = np.ones(len(self.graph), np.bool_)
        alone[self.spans.own] = False
        launch = self._correlations()
        yield from self._host_events(launch)
        yield from self._ops(np.flatnonzero(alone), launch)

    def arrow_edges(self, binding: NDArray[np.bool_], limit: int) -> tuple[NDArray[np.int64], int]:
        """At most `limit` of the edges between streams, in their order, and how many there are beyond that.

        Those that are `binding` (m,) come first, then those to the earliest ops.
        """
        graph = self.graph
        target = graph.edge_targets()
        across = (graph.stream[graph.pred] != graph.stream[target]) & (graph.edge_kind != EdgeKind.ORIGIN)
        edges = np.flatnonzero(across)
        if len(edges) > limit:
            order = np.lexsort((self.start_ns[target[edges]], ~binding[edges]))
            edges = np.sort(edges[order[:limit]])
        return edges, int(np.count_nonzero(across)) - len(edges)

    def arrows(self, edges: NDArray[np.int64]) -> Iterator[str]:
        """The two ends of each arrow, inside the slices that it joins."""
        graph = self.graph
        target = graph.edge_targets()[edges]
        source, relation = graph.pred[edges], graph.relation[edges]
        from_start, to_end = (relation & Relation.START_START) > 0, (relation & Relation.FINISH_FINISH) > 0
        for part in _chunks(np.arange(len(edges))):
            at, to = source[part], target[part]
            leaves = np.where(from_start[part], self.start_ns[at], np.maximum(self.start_ns[at], self.end_ns[at] - 1))
            arrives = np.where(to_end[part], np.maximum(self.start_ns[to], self.end_ns[to] - 1), self.start_ns[to])
            columns = (
                part + 1, graph.edge_kind[edges[part]], graph.rank[at], self.tracks.of_op[at] + 1, leaves,
                graph.rank[to], self.tracks.of_op[to] + 1, arrives,
            )  # fmt: skip
            yield ",\n".join(
                f'{{"ph":"s","cat":"{_ARROW[kind]}","name":"{_ARROW[kind]}","id":{number},'
                f'"pid":{_process(rank)},"tid":{thread},"ts":{_us(left)}}},\n'
                f'{{"ph":"f","bp":"e","cat":"{_ARROW[kind]}","name":"{_ARROW[kind]}","id":{number},'
                f'"pid":{_process(to_rank)},"tid":{to_thread},"ts":{_us(arrived)}}}'
                for number, kind, rank, thread, left, to_rank, to_thread, arrived in zip(
                    *(column.tolist() for column in columns), strict=True
                )
            )

    def _correlations(self) -> NDArray[np.int64]:
        """(n,) the number that a launching host op shares with its device work, 0 for none."""
        graph = self.graph
        launches = np.isin(graph.edge_kind, _LAUNCHES)
        target = graph.edge_targets()
        on_device = graph.on_streams(StreamKind.DEVICE)
        launches &= on_device[target] & ~on_device[graph.pred]
        correlation = np.zeros(len(graph), np.int64)
        correlation[graph.pred[launches]] = graph.pred[launches] + 1
        correlation[target[launches]] = graph.pred[launches] + 1
        return correlation

    def _ops(self, chosen: NDArray[np.int64], correlation: NDArray[np.int64]) -> Iterator[str]:
        graph = self.graph
        names = [_json(name) for name in graph.names]
        kinds = [f'"kind":"{kind.name.lower()}"' for kind in OpKind]
        steps = [*(f',"step":{_json(name)}' for name in graph.step_names), ""]
        places, categories, streams = self._stream_texts()
        for part in _chunks(chosen):
            columns = (
                part, graph.name[part], graph.kind[part], graph.step[part], graph.stream[part],
                self.tracks.of_op[part] + 1, self.start_ns[part], self.end_ns[part] - self.start_ns[part],
                graph.size_bytes[part], correlation[part],
            )  # fmt: skip
            yield ",\n".join(
                [
                    f'{{"ph":"X","cat":"{categories[stream][kind]}","name":{names[name]},{places[stream]}{thread},'
                    f'"ts":{start // 1000}.{start % 1000:03d},"dur":{length // 1000}.{length % 1000:03d},'
                    f'"args":{{"op":{op},{kinds[kind]}{steps[step]}{streams[stream]}'
                    f"{_member('size_bytes', size)}{_member('correlation', call)}}}}}"
                    for op, name, kind, step, stream, thread, start, length, size, call in zip(
                        *(column.tolist() for column in columns), strict=True
                    )
                ]
            )

    def _stream_texts(self) -> tuple[list[str], list[list[str]], list[str]]:
        """For each stream: its process, the category of each op kind on it, and its device and stream numbers."""
        streams = self.graph.streams
        places = [f'"pid":{_process(stream.rank)},"tid":' for stream in streams]
        categories = [
            _categories(_DEVICE_CATEGORY, "kernel") if s.kind == StreamKind.DEVICE else _HOST for s in streams
        ]
        numbers = [
            f',"device":{max(stream.device, 0)},"stream":{_stream_number(stream.name, place)}'
            if stream.kind == StreamKind.DEVICE
            else ""
            for place, stream in enumerate(streams)
        ]
        return places, categories, numbers

    def _host_events(self, correlation: NDArray[np.int64]) -> Iterator[str]:
        """Host events in order of time, those around others before them, as viewers expect of equal starts."""
        graph, spans = self.graph, self.spans
        names: list[str] = []
        name, kind = np.zeros((2, len(spans)), np.int64)
        for part in self.trace:
            mine = spans.rank == part.rank
            name[mine] = part.events.name[spans.row[mine]] + len(names)
            kind[mine] = part.events.kind[spans.row[mine]]
            names += map(_json, part.events.names)
        kinds = [f'"kind":"{kind.name.lower()}"' for kind in EventKind]
        categories = [_EVENT_CATEGORY.get(kind, "cpu_op") for kind in EventKind]
        steps = [*(f',"step":{_json(step)}' for step in graph.step_names), ""]
        owner = np.repeat(np.arange(len(spans)), np.diff(spans.pointer))
        size, call = np.zeros((2, len(spans)), np.int64)
        np.add.at(size, owner, graph.size_bytes[spans.own])
        np.maximum.at(call, owner, correlation[spans.own])
        times = np.stack([spans.own, self.start_ns[spans.own], self.end_ns[spans.own]], axis=1)
        start, end = self.start_ns[spans.first_op], self.end_ns[spans.last_op]
        track = self.tracks.of_op[spans.first_op]
        for part in _chunks(np.lexsort((-end, start, track))):
            columns = (
                name[part], kind[part], graph.step[spans.first_op[part]], spans.rank[part] + 1, track[part] + 1,
                start[part], end[part] - start[part], size[part], call[part],
                spans.pointer[part], spans.pointer[part + 1],
            )  # fmt: skip
            yield ",\n".join(
                [
                    f'{{"ph":"X","cat":"{categories[what]}","name":{names[code]},"pid":{process},"tid":{thread},'
                    f'"ts":{begin // 1000}.{begin % 1000:03d},"dur":{length // 1000}.{length % 1000:03d},'
                    f'"args":{{"ops":{times[first:last].ravel().tolist()},{kinds[what]}{steps[step]}'
                    f"{_member('size_bytes', size_bytes)}{_member('correlation', number)}}}}}"
                    for code, what, step, process, thread, begin, length, size_bytes, number, first, last in zip(
                        *(column.tolist() for column in columns), strict=True
                    )
                ]
            )


def critical_path_slices(schedule: Schedule) -> Iterator[str]:
    """The critical path as a process of its own, above all others: one slice for each piece that takes time."""
    yield _metadata("process_name", _CRITICAL_PROCESS, 0, name="critical path")
    yield _metadata("process_sort_index", _CRITICAL_PROCESS, 0, sort_index=-1)
    yield _metadata("thread_name", _CRITICAL_PROCESS, 1, name="critical path")
    graph, pieces = schedule.graph, critical_path(schedule).pieces
    edge_kinds, evidence = [kind.name.lower() for kind in EdgeKind], [item.name.lower() for item in Evidence]
    for place in np.flatnonzero(pieces.length_ns > 0).tolist():
        op, edge = int(pieces.op[place]), int(pieces.edge[place])
        stream = graph.streams[graph.stream[op]]
        args: dict[str, Any] = {"critical_op": op, "rank": stream.rank, "stream": stream.name}
        name = graph.name_of(op)
        if edge != NONE:
            args["edge"], args["evidence"] = edge_kinds[graph.edge_kind[edge]], evidence[graph.evidence[edge]]
            name = f"{args['edge']} lag before {name}"
        elif pieces.part[place] == PiecePart.STREAM:
            name = f"stream gap before {name}"
        begin, end = int(pieces.from_ns[place]), int(pieces.to_ns[place])
        yield _slice(_ANNOTATION, name, f'"pid":{_CRITICAL_PROCESS},"tid":1', begin, end, args)


def _categories(table: dict[OpKind, str], other: str) -> list[str]:
    """The category of each op kind."""
    return [table.get(kind, other) for kind in OpKind]


_HOST: Final = _categories(_HOST_CATEGORY, _ANNOTATION)
_ARROW: Final = ["ac2g" if kind in _LAUNCHES else kind.name.lower() for kind in EdgeKind]
"""What an arrow is called, by edge kind: launches as PyTorch profiles call them."""


def _slice(category: str, name: str, place: str, begin_ns: int, end_ns: int, args: dict[str, Any]) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":{_json(name)},{place},"ts":{_us(begin_ns)},'
        f'"dur":{_us(end_ns - begin_ns)},"args":{_json(args)}}}'
    )


def _metadata(what: str, process: int, thread: int, **args: Any) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{_json(args)}}}'


def _process(rank: int) -> int:
    """Process number of a rank: viewers give process 0 a meaning of its own."""
    return rank + 1


def _stream_number(name: str, place: int) -> int:
    """The number that a device stream's name tells, else its place among all streams."""
    found = re.search(r"\d+", name)
    return int(found[0]) if found and len(found[0]) < 10 else place


def _member(name: str, value: int) -> str:
    """One more member of an object, nothing for zero."""
    return f',"{name}":{value}' if value else ""


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _json(value: Any) -> str:
    return encode_json(value).decode()


def _chunks(numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for place in range(0, len(numbers), _CHUNK):
        yield numbers[place : place + _CHUNK]
