"""Neutral graphs: ring all-reduce training graphs measured by others, read into a Graph.

A file holds n ops and m edges as npz arrays: `device` (n,) into the lines of `devices`, `dev_kind` (devices,) 1 for a
fusion buffer, `dur_us`, `gap_dev_us` (the device idles after the op), `gap_comm_us` (communication waits after the op),
`prio` dPRO's class, `is_comm`, `is_send`, `is_recv`, `tensor`, `hold` (1 takes the fusion buffer, 2 releases it),
`rank`, and `src`, `dst` (m,).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from makespan.graph import Edges, Graph, OpKind, Relation, Stream, StreamKind, assemble
from makespan.topology import topological_order


def read_neutral_graph(path: Path, receive_with_send: bool = False) -> Graph:
    """The graph in `path`; `receive_with_send` lets a receive start with its send (dPRO's default backend).

    A device's idle gap is part of the op's duration; its successors wait for start + duration without the gap
    by a start→start edge, which is the same since ops are never interrupted. dPRO breaks ties by the order in
    which devices and the successors of an op are given, so both keep it in the graph's numbering.
    """
    with np.load(path, allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    duration_ns = np.rint(data["dur_us"] * 1000).astype(np.int64)
    gap_ns = np.rint(data["gap_dev_us"] * 1000).astype(np.int64)
    source, target = data["src"], data["dst"]
    is_comm = data["is_comm"].astype(bool)
    lag_ns = np.where(is_comm[target], np.rint(data["gap_comm_us"] * 1000).astype(np.int64)[source], 0)
    has_gap = gap_ns[source] > 0
    lag_ns += np.where(has_gap, duration_ns[source], 0)
    relation = np.where(has_gap, Relation.START_START, Relation.FINISH_START)
    if receive_with_send:
        pair = data["is_send"].astype(bool)[source] & data["is_recv"].astype(bool)[target]
        relation[pair] = Relation.START_START
    devices = bytes(data["devices"]).decode().split("\n")
    ranks = np.zeros(len(devices), np.int64)
    ranks[data["device"]] = data["rank"]
    by_source = np.lexsort((target, source))
    siblings = source[by_source][1:] == source[by_source][:-1]
    order = topological_order(
        len(duration_ns),
        np.concatenate([source, target[by_source][:-1][siblings]]),
        np.concatenate([target, target[by_source][1:][siblings]]),
        np.arange(len(duration_ns)),
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    buffer = data["dev_kind"].astype(bool)[data["device"]]
    names = bytes(data["names"]).decode().split("\n")
    graph, _ = assemble(
        kind=np.select(
            [data["is_send"] == 1, data["is_recv"] == 1, is_comm],
            [OpKind.SEND, OpKind.RECV, OpKind.OTHER],
            OpKind.COMPUTE,
        ),
        stream=data["device"],
        duration_ns=duration_ns + gap_ns,
        streams=[
            Stream(int(rank), name, StreamKind.LINK if name.endswith("Comm") else StreamKind.DEVICE)
            for rank, name in zip(ranks, devices, strict=True)
        ],
        name=np.arange(len(names)),
        names=names,
        edges=Edges.of(source, target, lag_ns, relation),
        order_ns=place,
        priority=data["prio"],
        group=data["tensor"],
        attrs={"fusion_buffer": np.where(buffer, np.maximum(data["hold"], 1), 0).astype(np.uint8)},
    )
    return graph
