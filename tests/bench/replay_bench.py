"""Replay speed: ops per CPU second of every order, beside pure Python and networkx on a cut of the same graph.

    python tests/bench/replay_bench.py [--ops 20_000_000] [--repeats 5]

Times are CPU time of this process (other load on the machine still slows caches and memory); of several repeats the
fastest and, in brackets, the median are printed. Memory is touched once beforehand, since the first touch of a page
can cost a virtual machine more than all the rest.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numba import njit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from neutral_graphs import read_neutral_graph

from makespan.graph import COMMUNICATION, Graph, OpKind, Stream, StreamKind
from makespan.schedule import Schedule
from makespan.simulator.orders.fanout import FanOut
from makespan.simulator.orders.incremental import rereplay
from makespan.simulator.orders.recorded import recorded_makespan
from makespan.simulator.orders.scenarios import replay_scenarios
from makespan.simulator.replay import replay

STREAMS = 4096
STREAMS_PER_RANK = 4
GRAPHS = Path(__file__).resolve().parents[3] / "shared" / "data" / "graphs"


@njit(cache=True)
def _irregular_edges(ops: Any, seed: Any) -> Any:
    """0 to 4 predecessors for each op, two on average, at log-uniform distance: most are near, some far."""
    np.random.seed(seed)
    pointer, pred = np.zeros(ops + 1, np.int64), np.empty(4 * ops, np.int32)
    edges = 0
    for op in range(ops):
        for _ in range(np.random.randint(0, 5) if op else 0):
            distance = min(op, int(np.exp(np.random.random() * np.log(op + 1.0))))
            pred[edges] = op - max(1, distance)
            edges += 1
        pointer[op + 1] = edges
    return pointer, pred[:edges].copy()


def irregular_graph(ops: int, seed: int = 1) -> Graph:
    """A random graph of `ops` ops on 4,096 streams, durations up to 100 µs, one edge in ten with a lag."""
    random = np.random.default_rng(seed)
    pointer, pred = _irregular_edges(ops, seed)
    nothing, edge_nothing = np.zeros(ops, np.int32), np.zeros(len(pred), np.uint8)
    lag_ns = random.integers(0, 1000, len(pred))
    lag_ns[random.random(len(pred)) > 0.1] = 0
    return Graph(
        kind=np.full(ops, OpKind.COMPUTE, np.uint8),
        rank=nothing,
        stream=random.integers(0, STREAMS, ops, np.int32),
        duration_ns=random.integers(0, 100_000, ops),
        size_bytes=np.zeros(ops, np.int64),
        name=nothing,
        priority=nothing,
        step=nothing - 1,
        group=nothing - 1,
        pred_ptr=pointer,
        pred=pred,
        lag_ns=lag_ns,
        relation=edge_nothing,
        edge_kind=edge_nothing,
        evidence=edge_nothing,
        names=("op",),
        streams=tuple(Stream(0, f"stream {number}", StreamKind.DEVICE) for number in range(STREAMS)),
    )


def first_ops(graph: Graph, ops: int) -> Graph:
    """The graph of the first `ops` ops, which is closed since edges go forward."""
    edges = int(graph.pred_ptr[ops])
    per_op = ("kind", "rank", "stream", "duration_ns", "size_bytes", "name", "priority", "step", "group")
    per_edge = ("pred", "lag_ns", "relation", "edge_kind", "evidence")
    cut: dict[str, Any] = {name: getattr(graph, name)[:ops] for name in per_op}
    cut |= {name: getattr(graph, name)[:edges] for name in per_edge}
    return graph.replace(pred_ptr=graph.pred_ptr[: ops + 1], steps=(), attrs={}, **cut)


def contending(graph: Graph) -> Graph:
    """`graph` with communication and computation that slow each other down.

    Where a graph names no communication, its streams are dealt out to ranks of four, the last of which is a shared
    link that all ops on it cross.
    """
    communicates = np.isin(graph.kind, COMMUNICATION)
    if not np.any(communicates):
        of_rank = np.arange(len(graph.streams)) % STREAMS_PER_RANK
        kinds = np.where(of_rank == STREAMS_PER_RANK - 1, StreamKind.SHARED, StreamKind.DEVICE)
        streams = tuple(
            Stream(number // STREAMS_PER_RANK, stream.name, StreamKind(kind))
            for number, (stream, kind) in enumerate(zip(graph.streams, kinds.tolist(), strict=True))
        )
        communicates = kinds[graph.stream] == StreamKind.SHARED
        graph = graph.replace(streams=streams, rank=graph.stream // np.int32(STREAMS_PER_RANK))
    return graph.with_attrs(
        contention=np.where(communicates, 2, 1).astype(np.int8),
        stretch=np.full(len(graph), 1.5, np.float32),
        share_left=np.full(len(graph), 0.7, np.float32),
    )


def plain_python_sweep(graph: Graph) -> Callable[[], int]:
    """The recorded sweep over lists."""
    pointer, pred, lag, relation = (
        column.tolist() for column in (graph.pred_ptr, graph.pred, graph.lag_ns, graph.relation)
    )
    stream, duration = graph.stream.tolist(), graph.duration_ns.tolist()

    def run() -> int:
        start, end, free = [0] * len(duration), [0] * len(duration), [0] * len(graph.streams)
        for op, line in enumerate(stream):
            begin = free[line]
            for place in range(pointer[op], pointer[op + 1]):
                moment = (start if relation[place] else end)[pred[place]] + lag[place]
                if moment > begin:
                    begin = moment
            start[op] = begin
            end[op] = free[line] = begin + duration[op]
        return max(end)

    return run


def plain_python_events(graph: Graph) -> Callable[[], int]:
    """Ready order with heapq: one heap of events, one heap of eligible ops for each stream."""
    stream, duration, priority = graph.stream.tolist(), graph.duration_ns.tolist(), graph.priority.tolist()
    follow: list[list[tuple[int, int, int]]] = [[] for _ in duration]
    columns = (graph.pred, graph.edge_targets(), graph.lag_ns, graph.relation)
    for before, after, lag, relation in zip(*(column.tolist() for column in columns), strict=True):
        follow[before].append((after, lag, relation))
    waits_of = np.diff(graph.pred_ptr).tolist()

    def run() -> int:
        waits, eligible = list(waits_of), [0] * len(duration)
        queues: list[list[tuple[int, int, int]]] = [[] for _ in graph.streams]
        running = [False] * len(graph.streams)
        events = [(0, ~op) for op, count in enumerate(waits) if count == 0]
        heapq.heapify(events)
        now = 0

        def tell(op: int, of_start: int) -> None:
            for after, lag, relation in follow[op]:
                if relation == of_start:
                    eligible[after] = max(eligible[after], now + lag)
                    waits[after] -= 1
                    if waits[after] == 0:
                        heapq.heappush(events, (eligible[after], ~after))

        while events:
            now = events[0][0]
            touched = set()
            while events and events[0][0] == now:
                op = heapq.heappop(events)[1]
                if op < 0:
                    heapq.heappush(queues[stream[~op]], (now, priority[~op], ~op))
                    touched.add(stream[~op])
                else:
                    running[stream[op]] = False
                    touched.add(stream[op])
                    tell(op, 0)
            for line in touched:
                if queues[line] and not running[line]:
                    op = heapq.heappop(queues[line])[2]
                    running[line] = True
                    heapq.heappush(events, (now + duration[op], op))
                    tell(op, 1)
        return now

    return run


def networkx_longest_path(graph: Graph) -> Callable[[], int]:
    """networkx.dag_longest_path_length of edges and stream order, each edge as long as its source and its lag."""
    net = nx.DiGraph()
    target, latest = graph.edge_targets(), {}
    duration = graph.duration_ns.tolist()
    for op, line in enumerate(graph.stream.tolist()):
        net.add_edge(latest.get(line, "zero"), op, weight=duration[latest[line]] if line in latest else 0)
        net.add_edge(op, "end", weight=duration[op])
        latest[line] = op
    for before, after, lag in zip(graph.pred.tolist(), target.tolist(), graph.lag_ns.tolist(), strict=True):
        weight = max(duration[before] + lag, net.get_edge_data(before, after, {"weight": 0})["weight"])
        net.add_edge(before, after, weight=weight)
    return lambda: nx.dag_longest_path_length(net)


def cpu_seconds(work: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Fastest and median CPU time of `work`."""
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken), statistics.median(taken)


def report(label: str, ops: int, seconds: tuple[float, float], peers: dict[str, float]) -> None:
    """One line: ops per second, and how many times as fast per op as each peer (ops/s)."""
    best, median = (ops / each for each in seconds)
    ratios = ", ".join(f"{best / rate:,.0f} × {name}" for name, rate in peers.items())
    print(f"  {label:<44} {best / 1e6:8.1f} M/s ({median / 1e6:.1f})   {ratios}", flush=True)


def bytes_per_op(graph: Graph, schedule: Schedule) -> float:
    """Bytes held by the columns of graph and schedule, for each op."""
    columns = (schedule.start_ns, schedule.end_ns, schedule.bound_by, schedule.bound_edge, schedule.end_bound_edge)
    return (graph.nbytes + sum(column.nbytes for column in columns if column is not None)) / len(graph)


def peers_of(graph: Graph, cut: int = 100_000, network_cut: int = 20_000) -> tuple[dict[str, float], dict[str, float]]:
    """Ops per second of the peers on the first ops of `graph`: for recorded and for ready order."""
    cut, network_cut = min(cut, len(graph)), min(network_cut, len(graph))
    small, smaller = first_ops(graph, cut), first_ops(graph, network_cut)
    sweep, events = plain_python_sweep(small), plain_python_events(small)
    if sweep() != replay(small).makespan_ns or events() != replay(small, "ready").makespan_ns:
        raise AssertionError("a peer disagrees about the makespan")
    network = network_cut / cpu_seconds(networkx_longest_path(smaller), 3)[0]
    return (
        {"Python": cut / cpu_seconds(sweep, 3)[0], "networkx": network},
        {"Python": cut / cpu_seconds(events, 3)[0], "networkx": network},
    )


def bench_graph(name: str, graph: Graph, repeats: int, ready_ops: int) -> None:
    """Recorded and ready order on one graph."""
    print(f"{name}: {graph!r}")
    by_sweep, by_events = peers_of(graph)
    replay(graph)
    report("recorded", len(graph), cpu_seconds(lambda: replay(graph), repeats), by_sweep)
    report("recorded, makespan only", len(graph), cpu_seconds(lambda: recorded_makespan(graph), repeats), by_sweep)
    part = first_ops(graph, min(ready_ops, len(graph)))
    label = "ready" if len(part) == len(graph) else f"ready, first {len(part):,} ops"
    replay(part, "ready")
    report(label, len(part), cpu_seconds(lambda: replay(part, "ready"), repeats), by_events)
    rivals = contending(part)
    slowed = np.mean(replay(rivals, "contended").graph.duration_ns != rivals.duration_ns)
    label = label.replace("ready", f"contended ({100 * slowed:.0f} % slowed)")
    report(label, len(rivals), cpu_seconds(lambda: replay(rivals, "contended"), repeats), {})
    print(f"  {'graph and schedule':<44} {bytes_per_op(graph, replay(graph)):8.0f} bytes an op (limit 200)")


def bench_what_ifs(graph: Graph, repeats: int) -> None:
    """A thousand scenarios, and re-replay after single changes."""
    by_sweep, _ = peers_of(graph)
    classes = np.unique(graph.kind, return_inverse=True)[1].astype(np.int32)
    factors = np.random.default_rng(0).uniform(0.5, 2, (1000, int(classes.max()) + 1))
    replay_scenarios(graph, classes, factors[:2])
    seconds = cpu_seconds(lambda: replay_scenarios(graph, classes, factors), repeats)
    report(f"1,000 scenarios in {seconds[0]:.2f} s: op × scenario", 1000 * len(graph), seconds, by_sweep)
    random = np.random.default_rng(1)
    for order in ("recorded", "ready"):
        schedule, fan_out = replay(graph, order), FanOut.of(graph)
        counts, again, whole = [], [], []
        for op in random.integers(0, len(graph), 30):
            duration_ns = graph.duration_ns.copy()
            duration_ns[op] = duration_ns[op] * 9 // 10
            changed = graph.replace(duration_ns=duration_ns)
            go_on = partial(rereplay, schedule, changed, [op], fan_out)
            counts.append(go_on()[1])
            again.append(cpu_seconds(go_on, 1)[0])
            whole.append(cpu_seconds(partial(replay, changed, order), 1)[0])
        print(
            f"  re-replay of one changed op, {order:<15} {statistics.median(again) * 1e3:8.2f} ms, in full "
            f"{statistics.median(whole) * 1e3:.2f} ms; {statistics.median(counts):,.0f} ops evaluated (median)"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=20_000_000, help="size of the irregular graph")
    parser.add_argument("--ready-ops", type=int, default=1_000_000, help="part of it that is replayed in ready order")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    print("ops per CPU second, fastest (median); times as fast, per op, as peers on a cut of the same graph")
    paths = sorted(GRAPHS.glob("*.npz"))
    if not paths:
        print(f"no neutral graphs in {GRAPHS}: only the generated graph is measured")
    for path in paths:
        bench_graph(path.stem, read_neutral_graph(path), 5 * chosen.repeats, chosen.ready_ops)
    hundred_thousand = read_neutral_graph(GRAPHS / "g_101k.npz") if paths else irregular_graph(100_000)
    print(f"what-ifs: {hundred_thousand!r}")
    bench_what_ifs(hundred_thousand, chosen.repeats)
    bench_graph("irregular", irregular_graph(chosen.ops), chosen.repeats, chosen.ready_ops)


if __name__ == "__main__":
    main()
