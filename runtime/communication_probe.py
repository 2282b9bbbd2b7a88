"""Communication probe: what collectives cost on this job's own network, alone and beside computing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from makespan.communication_table import CommunicationTable, Measured, save_table
from makespan.errors import PredictionError
from makespan.protocols import Progress, no_progress
from makespan.runtime.job_facts import machine_facts

SIZES: Final = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
REPEATS: Final = 5
BUSY_NS: Final = 12_000_000
"""Computing before a contended measurement, as in a backward pass."""
COLD_BYTES: Final = 64 << 20
"""Copies are timed over buffers of this size together, so that none is found in a cache."""
_WORK_SIDE: Final = 1024
_WORK_ROWS: Final = 64


def probe_communication(
    path: str | Path | None = None,
    *,
    network: str,
    sizes: Sequence[int] = SIZES,
    dtypes: Sequence[str] = ("float32",),
    repeats: int = REPEATS,
    progress: Progress = no_progress,
) -> CommunicationTable:
    """Measure the default process group; all ranks must call it, and rank 0 writes the table to `path`.

    All-reduces of each of `sizes` bytes and `dtypes`, `repeats` times: alone after a barrier, and while the calling
    threads multiply matrices, which also tells how much of their speed is left. Broadcasts up to 1 MiB. What the
    calling thread does itself: the call ("launch"), copies ("copy") and conversions ("cast"). Every rank returns
    the same table. Raises PredictionError outside of a process group.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        raise PredictionError("probe_communication: no process group of at least 2 ranks; start the job with torchrun")
    computing = _Computing()
    measured: list[Measured] = []
    whole = len(dtypes) * len(sizes) + 1
    for number, (dtype, size) in enumerate((dtype, size) for dtype in dtypes for size in sizes):
        progress(number, whole, f"all-reduce of {size:,} bytes")
        measured.append(_all_reduce(size, dtype, repeats, computing))
    progress(whole - 1, whole, "broadcasts and copies")
    measured += [_broadcast(size, repeats) for size in sizes if size <= 1 << 20]
    measured += [_host_work("copy", dtype, size, repeats) for dtype in dtypes for size in sizes]
    measured += [_host_work("cast", "float16", size, repeats) for size in sizes if "float16" in dtypes]
    measured += [_launch(repeats)]
    facts = {**machine_facts(), "world_size": dist.get_world_size()}
    table = CommunicationTable(network=network, measured=measured, facts=facts)
    if path is not None and dist.get_rank() == 0:
        save_table(table, path)
    return table


class _Computing:
    """Matrix products to be hindered: how long one takes undisturbed, and the next one."""

    def __init__(self) -> None:
        self._inputs = [torch.randn(_WORK_ROWS, _WORK_SIDE) for _ in range(16)]
        self._weights = [torch.randn(_WORK_SIDE, _WORK_SIDE) for _ in range(12)]
        self._next = 0
        dist.barrier()
        for _ in range(20):
            self.multiply()
        # Undisturbed means the best of some: whatever disturbs only slows down.
        self.undisturbed_ns = min(self._average_of(20) for _ in range(5))

    def multiply(self) -> None:
        """One product."""
        self._next += 1
        torch.mm(self._inputs[self._next % 16], self._weights[self._next % 12])

    def multiply_for(self, length_ns: int) -> None:
        """Products for about that long."""
        until = time.perf_counter_ns() + length_ns
        while time.perf_counter_ns() < until:
            self.multiply()

    def _average_of(self, count: int) -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            self.multiply()
        return (time.perf_counter_ns() - began) / count


def _all_reduce(size: int, dtype: str, repeats: int, computing: _Computing) -> Measured:
    buffer = torch.ones(max(size // getattr(torch, dtype).itemsize, 1), dtype=getattr(torch, dtype))
    alone: list[int] = []
    contended: list[int] = []
    share: list[float] = []
    dist.all_reduce(buffer)
    for _ in range(repeats):
        buffer.fill_(1)
        dist.barrier()
        began = time.perf_counter_ns()
        dist.all_reduce(buffer)
        alone.append(time.perf_counter_ns() - began)
    for _ in range(repeats):
        buffer.fill_(1)
        dist.barrier()
        computing.multiply_for(BUSY_NS)
        products = 0
        began = time.perf_counter_ns()
        work = dist.all_reduce(buffer, async_op=True)
        assert work is not None
        while not work.is_completed():
            computing.multiply()
            products += 1
        took = time.perf_counter_ns() - began
        work.wait()
        contended.append(took)
        share.append(min(1.0, products * computing.undisturbed_ns / max(took, 1)))
    return Measured(
        "allreduce", dist.get_world_size(), dtype, buffer.numel() * buffer.element_size(),
        _over_ranks(alone, dist.ReduceOp.MIN), _over_ranks(contended, dist.ReduceOp.MIN), _mean_over_ranks(share),
    )  # fmt: skip


def _broadcast(size: int, repeats: int) -> Measured:
    buffer = torch.ones(size // 4)
    took: list[int] = []
    for _ in range(repeats + 1):
        dist.barrier()
        began = time.perf_counter_ns()
        dist.broadcast(buffer, 0)
        took.append(time.perf_counter_ns() - began)
    # The root may leave at once; a broadcast is over when the last rank has it.
    return Measured("broadcast", dist.get_world_size(), "float32", size, _over_ranks(took[1:], dist.ReduceOp.MAX))


def _host_work(work: str, dtype: str, size: int, repeats: int) -> Measured:
    """Cold copies: each of many buffers once, several rounds; "cast" converts float32 of that size to float16."""
    source_type = torch.float32 if work == "cast" else getattr(torch, dtype)
    elements = max(size // source_type.itemsize, 1)
    count = max(4, COLD_BYTES // size)
    sources = [torch.ones(elements, dtype=source_type) for _ in range(min(count, 512))]
    targets = [torch.empty(elements, dtype=getattr(torch, dtype)) for _ in sources]
    took: list[int] = []
    for _ in range(repeats):
        dist.barrier()
        began = time.perf_counter_ns()
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
        took.append((time.perf_counter_ns() - began) // len(sources))
    return Measured(work, 1, dtype, elements * source_type.itemsize, _over_ranks(took, dist.ReduceOp.MAX))


def _launch(repeats: int) -> Measured:
    """What the call alone takes that enqueues an all-reduce."""
    buffer = torch.ones(16)
    took: list[int] = []
    for _ in range(repeats * 4):
        dist.barrier()
        began = time.perf_counter_ns()
        work = dist.all_reduce(buffer, async_op=True)
        took.append(time.perf_counter_ns() - began)
        assert work is not None
        work.wait()
    return Measured("launch", 1, "float32", 0, _over_ranks(took, dist.ReduceOp.MIN))


def _over_ranks(times_ns: list[int], operation: dist.ReduceOp.RedOpType) -> list[int]:
    """Each repeat's smallest or largest time over the ranks. The last to arrive at a collective measures least:
    its time holds no waiting for others.
    """
    told = torch.tensor(times_ns, dtype=torch.int64)
    dist.all_reduce(told, op=operation)
    return [int(value) for value in told.tolist()]


def _mean_over_ranks(values: list[float]) -> list[float]:
    told = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(told)
    return [float(value) for value in (told / dist.get_world_size()).tolist()]
