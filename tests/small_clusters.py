"""Clusters of a few devices on one kind of link, and graphs in which each rank does nothing but collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from makespan.cluster import Cluster
from makespan.cluster_file import parse_cluster
from makespan.graph import Edges, Graph, OpKind, Stream, StreamKind, assemble

RATE = 1_000_000_000
"""One byte takes a nanosecond."""


def _cluster(text: str) -> Cluster:
    return parse_cluster(f'format = 1\n[device.d]\nkind = "gpu"\nmemory_bandwidth = "4GB/s"\n{text}'.encode(), "c", "c")


def _link(name: str, latency_ns: int, rate: str, duplex: str, sharing: str) -> str:
    return (
        f'[link.{name}]\nbandwidth = "{rate}"\nlatency = "{latency_ns}ns"\nduplex = "{duplex}"\nsharing = "{sharing}"\n'
    )


def star(
    count: int, latency_ns: int = 1000, rate: str = "1GB/s", duplex: str = "full", sharing: str = "exclusive"
) -> Cluster:
    """`count` devices, each on one link to a switch; every route has two links."""
    return _cluster(
        _link("wire", latency_ns, rate, duplex, sharing)
        + f'[host.h]\ndevices = {{ d = {count} }}\nswitches = {{ hub = 1 }}\n'
        'connect = [{ from = "d", to = "hub", link = "wire" }]\n[cluster]\nhosts = { h = 1 }\n'
    )  # fmt: skip


def mesh(
    count: int, latency_ns: int = 1000, rate: str = "1GB/s", duplex: str = "full", sharing: str = "exclusive"
) -> Cluster:
    """`count` devices, each two of them joined directly; holds every ring of them."""
    return _cluster(
        _link("wire", latency_ns, rate, duplex, sharing) + f"[host.h]\ndevices = {{ d = {count} }}\n"
        'connect = [{ from = "d", to = "d", link = "wire" }]\n[cluster]\nhosts = { h = 1 }\n'
    )


def rails(hosts: int, per_host: int, inner_ns: int, outer_ns: int) -> Cluster:
    """Devices on a switch of their host at 2 GB/s, and each place of all hosts on one of their own at 1 GB/s."""
    return _cluster(
        _link("inner", inner_ns, "2GB/s", "full", "exclusive")
        + _link("outer", outer_ns, "1GB/s", "full", "exclusive")
        + f'[host.h]\ndevices = {{ d = {per_host} }}\nswitches = {{ hub = 1 }}\n'
        'connect = [{ from = "d", to = "hub", link = "inner" }]\n'
        f'[cluster]\nhosts = {{ h = {hosts} }}\nswitches = {{ rail = {per_host} }}\n'
        'connect = [{ from = "h.d", to = "rail", link = "outer", pairs = "match" }]\n'
    )  # fmt: skip


def collective_graph(
    ranks: int, size_bytes: int, kind: str = "allreduce", count: int = 1, work_ns: Sequence[int] = ()
) -> Graph:
    """Each rank works for `work_ns` (0), then does `count` collectives, one after another on one stream."""
    work = np.zeros(ranks, np.int64) if not len(work_ns) else np.asarray(work_ns)
    op = np.arange(ranks * (count + 1)).reshape(count + 1, ranks)
    graph, _ = assemble(
        kind=np.repeat([OpKind.COMPUTE, OpKind.COLLECTIVE], [ranks, ranks * count]),
        stream=np.concatenate([np.arange(ranks), np.tile(np.arange(ranks, 2 * ranks), count)]),
        duration_ns=np.concatenate([work, np.full(ranks * count, 5)]),
        streams=[Stream(rank, name, StreamKind.DEVICE) for name in ("compute", "comm") for rank in range(ranks)],
        name=np.repeat([0, 1], [ranks, ranks * count]),
        names=["work", kind],
        edges=Edges.of(op[0], op[1]),
        size_bytes=np.repeat([0, size_bytes], [ranks, ranks * count]),
        group=np.repeat(np.arange(-1, count), ranks),
    )
    return graph
