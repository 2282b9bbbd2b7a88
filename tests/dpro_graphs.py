"""Small graphs on which dPRO's rule shows what it does: compute ops with classes, and tensors over a fusion buffer."""

from __future__ import annotations

import numpy as np
from strategies import assemble_plain

from makespan.graph import Edges, Graph, StreamKind

DEVICE = StreamKind.DEVICE
FORWARD, BACKWARD, UPDATE, OTHER = 0, 2, 3, 100


def compute(stream: list[int], duration_ns: list[int], edges: list[tuple[int, int]], priority: list[int]) -> Graph:
    source, target = np.array(edges, np.int64).reshape(-1, 2).T
    kinds = [DEVICE] * (max(stream) + 1)
    return assemble_plain(np.array(stream), kinds, np.array(duration_ns), Edges.of(source, target), np.array(priority))


def two_tensors(order_of_ranks: tuple[tuple[int, int], tuple[int, int]]) -> Graph:
    """Two ranks reduce tensors 0 and 1 over a fusion buffer each; queue, exchange, copy out.

    A rank queues its tensors in the order given. Streams: buffer and link of each rank.
    """
    stream, group, hold, edges = [], [], [], []
    op = {}
    for rank, tensors in enumerate(order_of_ranks):
        for tensor in tensors:
            for part, (line, holds) in {"queue": (0, 1), "send": (1, 0), "out": (0, 2)}.items():
                op[rank, tensor, part] = len(stream)
                stream.append(2 * rank + line)
                group.append(tensor)
                hold.append(holds)
    for rank in (0, 1):
        for tensor in (0, 1):
            edges.append((op[rank, tensor, "queue"], op[rank, tensor, "send"]))
            edges += [(op[other, tensor, "send"], op[rank, tensor, "out"]) for other in (0, 1)]
    source, target = np.array(edges).T
    given = np.array([stream, group, hold])
    kinds = [DEVICE, StreamKind.LINK] * 2
    graph = assemble_plain(given[0], kinds, np.full(len(stream), 10), Edges.of(source, target))
    new = np.array([int(graph.name_of(number).split()[1]) for number in range(len(graph))])
    return graph.replace(group=given[1][new].astype(np.int32)).with_attrs(fusion_buffer=given[2][new].astype(np.uint8))
