"""Communication probe: what collectives cost on this job's own network, alone and beside computing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist

from makespan.communication_table import CommunicationTable, Measured, save_table
from makespan.errors import PredictionError
from makespan.protocols import Progress, no_progress
from makespan.runtime.job_facts import machine_facts

SIZES: Final = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
REPEATS: Final = 5
MOST_IN_A_ROW: Final = 512
"""All-reduces that are enqueued at once; two gloo threads work on them, so that small ones overlap."""
COLD_BYTES: Final = 64 << 20
"""Copies are timed over buffers of this size together, so that none is found in a cache."""
Hook = Callable[[Any, Any], torch.futures.Future[Any]]
"""A communication hook of DistributedDataParallel: (state, bucket) to the future of its reduced buffer."""
_WORK_SIDE: Final = 512
_WORK_ROWS: Final = 64
_PRODUCTS: Final = 40
_WARM_UNITS: Final = 3
_RECENT: Final = 9
_UNITS_BESIDE: Final = 3


def probe_communication(
    path: str | Path | None = None,
    *,
    network: str,
    sizes: Sequence[int] = SIZES,
    dtypes: Sequence[str] = ("float32",),
    repeats: int = REPEATS,
    beside: Callable[[], object] | None = None,
    hook: Hook | None = None,
    progress: Progress = no_progress,
) -> CommunicationTable:
    """Measure the default process group; all ranks must call it, and rank 0 writes the table to `path`.

    All-reduces of each of `sizes` bytes and `dtypes`, `repeats` times: alone after a barrier, and several in a row
    while the calling threads compute, which also tells how much of their speed is left. What they compute is `beside`
    (best the job's own forward and backward pass, without its collectives), by default matrix products. Broadcasts up
    to 1 MiB. What the calling thread does itself: the call ("launch"), copies ("copy") and conversions ("cast").
    Buffers are reduced as `hook` does it (with None as its state), by default by a plain all-reduce; sizes are those of
    the buffers, whatever a hook sends. Every rank returns the same table. Raises PredictionError outside of a process
    group.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        raise PredictionError("probe_communication: no process group of at least 2 ranks; start the job with torchrun")
    computing = _Computing(beside or _products())
    reduce = _plainly if hook is None else _by_hook(hook)
    measured: list[Measured] = []
    whole = len(dtypes) * len(sizes) + 1
    for number, (dtype, size) in enumerate((dtype, size) for dtype in dtypes for size in sizes):
        progress(number, whole, f"all-reduce of {size:,} bytes")
        measured.append(_all_reduce(size, dtype, repeats, computing, reduce))
    progress(whole - 1, whole, "broadcasts and copies")
    measured += [_broadcast(size, repeats) for size in sizes if size <= 1 << 20]
    measured += [_host_work("copy", dtype, size, repeats) for dtype in dtypes for size in sizes]
    measured += [_host_work("cast", "float16", size, repeats) for size in sizes if "float16" in dtypes]
    measured += [_launch(0, repeats * 4, reduce)]
    if hook is not None:
        measured += [_launch(size, repeats, reduce) for size in sizes]
    facts = {**machine_facts(), "world_size": dist.get_world_size(), "hook": getattr(hook, "__name__", None)}
    table = CommunicationTable(network=network, measured=measured, facts=facts)
    if path is not None and dist.get_rank() == 0:
        save_table(table, path)
    return table


_Reduce = Callable[[torch.Tensor], torch.futures.Future[Any]]


def _plainly(buffer: torch.Tensor) -> torch.futures.Future[Any]:
    work = dist.all_reduce(buffer, async_op=True)
    assert work is not None
    return work.get_future()


def _by_hook(hook: Hook) -> _Reduce:
    return lambda buffer: hook(None, _Bucket(buffer))


class _Bucket:
    """What a hook asks of a gradient bucket; torch's own can't be made in Python."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def buffer(self) -> torch.Tensor:
        """The gradients in a row."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Put another in its place."""
        self._buffer = buffer

    def gradients(self) -> list[torch.Tensor]:
        """One gradient: all of it."""
        return [self._buffer]

    def parameters(self) -> list[torch.Tensor]:
        """The parameter of that gradient."""
        return [self._buffer]

    def index(self) -> int:
        """Its place among the buckets."""
        return 0

    def is_last(self) -> bool:
        """Whether another follows."""
        return True


class _Computing:
    """What is computed beside a collective: `unit` does some of it, and takes so long when nothing hinders it."""

    def __init__(self, unit: Callable[[], object]) -> None:
        self.unit = unit
        self._lengths_ns: list[int] = []
        for _ in range(_WARM_UNITS):
            unit()
        for _ in range(_RECENT):
            self.time_unit()

    @property
    def undisturbed_ns(self) -> int:
        """The median of the last units that nothing hindered; what disturbs a machine comes and goes."""
        return int(median(self._lengths_ns[-_RECENT:]))

    def time_unit(self) -> None:
        """Do one unit with nothing beside it."""
        dist.barrier()
        began = time.perf_counter_ns()
        self.unit()
        self._lengths_ns.append(time.perf_counter_ns() - began)


def _products() -> Callable[[], object]:
    """Matrix products for about as long as a backward pass computes between two buckets."""
    inputs = [torch.randn(_WORK_ROWS, _WORK_SIDE) for _ in range(16)]
    weights = [torch.randn(_WORK_SIDE, _WORK_SIDE) for _ in range(12)]

    def unit() -> None:
        for place in range(_PRODUCTS):
            torch.mm(inputs[place % 16], weights[place % 12])

    return unit


def _all_reduce(size: int, dtype: str, repeats: int, computing: _Computing, reduce: _Reduce) -> Measured:
    buffer = torch.zeros(max(size // getattr(torch, dtype).itemsize, 1), dtype=getattr(torch, dtype))
    alone: list[int] = []
    reduce(buffer).wait()
    for _ in range(repeats):
        dist.barrier()
        began = time.perf_counter_ns()
        reduce(buffer).wait()
        alone.append(time.perf_counter_ns() - began)
    alone = _over_ranks(alone, dist.ReduceOp.MIN)
    # As many in a row as last for some units, on ranks that agree.
    unit_ns = max(_over_ranks([computing.undisturbed_ns], dist.ReduceOp.MAX))
    count = min(max(round(_UNITS_BESIDE * unit_ns / max(median(alone), 1)), 1), MOST_IN_A_ROW)
    contended: list[int] = []
    share: list[float] = []
    for _ in range(repeats):
        computing.time_unit()
        took, left = _hindered(buffer, count, computing, reduce)
        contended.append(took)
        share.append(left)
    return Measured(
        "allreduce", dist.get_world_size(), dtype, buffer.numel() * buffer.element_size(), alone,
        _over_ranks(contended, dist.ReduceOp.MIN), _mean_over_ranks(share),
    )  # fmt: skip


def _hindered(buffer: torch.Tensor, count: int, computing: _Computing, reduce: _Reduce) -> tuple[int, float]:
    """What one of `count` all-reduces in a row takes beside computing (ns), and the share of its speed that is left.

    The calls themselves are not counted among what is taken: they are measured as "launch".
    """
    ends: list[int] = []
    dist.barrier()
    began = time.perf_counter_ns()
    for reduced in [reduce(buffer) for _ in range(count)]:
        reduced.then(lambda _: ends.append(time.perf_counter_ns()))
    enqueued = time.perf_counter_ns()
    units = 0
    while len(ends) < count:
        computing.unit()
        units += 1
    until = time.perf_counter_ns()
    took = max(ends) - began
    taken = until - enqueued - units * computing.undisturbed_ns
    return took // count, min(max(1.0 - taken / max(took, 1), 0.0), 1.0)


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


def _launch(size: int, repeats: int, reduce: _Reduce) -> Measured:
    """What the call alone takes that enqueues a reduction, of a buffer that is in no cache."""
    buffer, others = torch.ones(max(size // 4, 1)), torch.ones(COLD_BYTES // 4)
    took: list[int] = []
    for _ in range(repeats):
        others.add_(1)
        dist.barrier()
        began = time.perf_counter_ns()
        reduced = reduce(buffer)
        took.append(time.perf_counter_ns() - began)
        reduced.wait()
    return Measured("launch", 1, "float32", size, _over_ranks(took, dist.ReduceOp.MIN))


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
