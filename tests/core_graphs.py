"""Random graphs that use every column, and what edits of them are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from schedules import sweep

from makespan.graph import (
    NONE,
    EdgeKind,
    Edges,
    Evidence,
    Graph,
    OpKind,
    Relation,
    Step,
    Stream,
    StreamKind,
    assemble,
)

STREAMS = (
    Stream(0, "thread 1", StreamKind.HOST),
    Stream(0, "stream 7", StreamKind.DEVICE, 0),
    Stream(1, "thread 1", StreamKind.HOST),
    Stream(1, "link ü", StreamKind.LINK, 1),
    Stream(1, "switch", StreamKind.SHARED),
)
NAMES = ("add", "mul", "all reduce", "ünicode → name")
ORDER_KINDS = tuple(kind for kind in EdgeKind if kind != EdgeKind.DATA)


@st.composite
def full_graphs(
    draw: st.DrawFn,
    max_ops: int = 12,
    min_ops: int = 0,
    kinds: Sequence[EdgeKind] = tuple(EdgeKind),
    relations: Sequence[Relation] = tuple(Relation),
    streams: Sequence[Stream] = STREAMS,
    steps: bool = True,
) -> Graph:
    """A legal graph; ops are drawn in their order, edges go forward, everything else is free."""
    count = draw(st.integers(min_ops, max_ops))
    number = st.integers(0, max(count - 1, 0))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    pairs = draw(st.lists(st.tuples(number, number), max_size=3 * count)) if count > 1 else []
    edges = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]

    def edge_column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=len(edges), max_size=len(edges)))

    marked: list[Step] = []
    if steps and count:
        begin = draw(number)
        end = draw(st.integers(begin, count - 1))
        marked.append(
            Step("step#0", 0, begin, end, draw(st.sampled_from([NONE, 5])), draw(st.sampled_from([NONE, 90])))
        )
    with_sync = draw(st.booleans())
    graph, final = assemble(
        kind=column(st.sampled_from(OpKind)),
        stream=column(st.integers(0, len(streams) - 1)),
        duration_ns=column(st.integers(0, 9)),
        streams=streams,
        name=column(st.integers(0, len(NAMES) - 1)),
        names=NAMES,
        edges=Edges.of(
            np.array([source for source, _ in edges], np.int32),
            np.array([target for _, target in edges], np.int32),
            np.array(edge_column(st.integers(0, 5)), np.int64),
            np.array(edge_column(st.sampled_from(relations)), np.uint8),
            np.array(edge_column(st.sampled_from(kinds)), np.uint8),
            np.array(edge_column(st.sampled_from(Evidence)), np.uint8),
        ),
        size_bytes=column(st.integers(0, 1000)),
        priority=column(st.integers(-2, 2)),
        step=column(st.integers(NONE, 0)),
        group=column(st.integers(NONE, 2)),
        step_names=("step#0",),
        steps=marked,
        sync=np.array(column(st.integers(0, 5)), np.uint8) if with_sync else None,
        attrs={
            "measured_start_ns": np.array(column(st.integers(-1, 100)), np.int64),
            "flops": np.array(column(st.floats(0, 1e12)), np.float64),
        },
        origin_ns=17,
        notes={"something was assumed": 3},
    )
    assert list(final) == list(range(count)), "forward edges keep the given numbers"
    return graph


def replay_plainly(graph: Graph) -> tuple[list[int], list[int]]:
    """Start and end of every op in recorded order, by the definition."""
    schedule = sweep(graph)
    return schedule.start_ns.tolist(), schedule.end_ns.tolist()


def same_graph(one: Graph, other: Graph) -> bool:
    """True where two graphs agree in every field, dtype and value (NaN equals NaN)."""
    mine, theirs = one.columns(), other.columns()
    plain = ("names", "streams", "step_names", "steps", "origin_ns")
    return (
        list(mine) == list(theirs)
        and all(
            column.dtype == theirs[name].dtype
            and column.shape == theirs[name].shape
            and column.tobytes() == theirs[name].tobytes()
            for name, column in mine.items()
        )
        and all(getattr(one, name) == getattr(other, name) for name in plain)
        and dict(one.notes) == dict(other.notes)
    )
