"""Random graphs for property tests: from a hypothesis strategy, which shrinks, or from a numpy seed, which is fast."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from makespan.graph import Edges, Graph, OpKind, Relation, Stream, StreamKind, assemble

ALL_RELATIONS = tuple(Relation)
START_RELATIONS = (Relation.FINISH_START, Relation.START_START)
STREAM_KINDS = (StreamKind.HOST, StreamKind.DEVICE, StreamKind.LINK)


@st.composite
def graphs(
    draw: st.DrawFn,
    max_ops: int = 12,
    relations: tuple[Relation, ...] = ALL_RELATIONS,
    shared: bool = True,
) -> Graph:
    """A graph of up to `max_ops` ops on up to four streams of two ranks.

    Durations and lags are small, so that equal times, zero durations and ties are common.
    """
    streams = draw(st.lists(st.sampled_from([*STREAM_KINDS, *[StreamKind.SHARED] * shared]), min_size=1, max_size=4))
    count = draw(st.integers(1, max_ops))
    small = st.lists(st.integers(0, 6), min_size=count, max_size=count)
    edges: list[tuple[int, int, int, int]] = []
    if count > 1:
        pair = st.tuples(st.integers(0, count - 2), st.integers(1, count - 1)).filter(lambda edge: edge[0] < edge[1])
        edge = st.tuples(pair, st.integers(0, 3), st.sampled_from(relations))
        edges = [(*pair, lag, relation) for pair, lag, relation in draw(st.lists(edge, max_size=2 * count))]
    source, target, lag, relation = np.array(edges, np.int64).reshape(-1, 4).T
    return assemble_plain(
        stream=np.array(draw(st.lists(st.integers(0, len(streams) - 1), min_size=count, max_size=count))),
        stream_kinds=streams,
        duration_ns=np.array(draw(small)),
        priority=np.array(draw(st.lists(st.integers(-1, 1), min_size=count, max_size=count))),
        edges=Edges.of(source, target, lag, relation),
    )


def random_graph(
    seed: int | np.random.Generator,
    ops: int = 40,
    edges_per_op: float = 2.0,
    streams: int = 4,
    shared_streams: int = 0,
    relations: tuple[Relation, ...] = ALL_RELATIONS,
    longest_ns: int = 8,
    window: int = 20,
    priorities: int = 3,
) -> Graph:
    """A graph of `ops` ops on `streams` streams, of which the last `shared_streams` share their rate.

    Edges come from one of the `window` ops before; an edge that is no finish→start is as likely as one that
    is. Durations and lags are 0 to `longest_ns`, a quarter of them 0; priorities are 0 to `priorities` - 1.
    """
    random = np.random.default_rng(seed)
    kinds = [STREAM_KINDS[number % len(STREAM_KINDS)] for number in range(streams - shared_streams)]
    kinds += [StreamKind.SHARED] * shared_streams
    count = int(ops * edges_per_op) if ops > 1 else 0
    target = random.integers(1, ops, count) if count else np.empty(0, np.int64)
    source = np.maximum(0, target - random.integers(1, window + 1, count))
    relation = np.where(random.random(count) < 0.5, Relation.FINISH_START, random.choice(relations, count))
    return assemble_plain(
        stream=random.integers(0, streams, ops),
        stream_kinds=kinds,
        duration_ns=_some_zero(random, longest_ns, ops),
        priority=random.integers(0, priorities, ops),
        edges=Edges.of(source, target, _some_zero(random, longest_ns, count), relation),
    )


def assemble_plain(
    stream: np.ndarray,
    stream_kinds: list[StreamKind],
    duration_ns: np.ndarray,
    edges: Edges,
    priority: np.ndarray | int = 0,
) -> Graph:
    """A graph of compute ops named by their number, in the given order; every other stream is of rank 1."""
    count = len(stream)
    graph, _ = assemble(
        kind=np.full(count, OpKind.COMPUTE),
        stream=stream,
        duration_ns=duration_ns,
        streams=[Stream(number % 2, f"stream {number}", kind) for number, kind in enumerate(stream_kinds)],
        name=np.arange(count),
        names=[f"op {number}" for number in range(count)],
        edges=edges,
        priority=priority,
    )
    return graph


def _some_zero(random: np.random.Generator, longest: int, count: int) -> np.ndarray:
    return random.integers(0, longest + 1, count) * (random.random(count) < 0.75)
