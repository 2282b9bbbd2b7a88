"""Job facts: what is known of a training job: its parameters, its gradient buckets, its place among the ranks."""

from __future__ import annotations

import os
import platform
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from makespan.capture_file import Parameter
from makespan.runtime.torch_internals import data_parallel_facts

Fact = str | int | float | None


def distributed_place() -> tuple[int, int]:
    """Rank and world size of this process; 0 of 1 outside of a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Name and parameter of all that get a gradient, each once, in the order in which DDP numbers them."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    ignored: set[str] = set()
    if isinstance(model, DistributedDataParallel):
        ignored = set(model.parameters_to_ignore)
    return [(name, each) for name, each in inner.named_parameters() if each.requires_grad and name not in ignored]


def parameters_of(model: nn.Module) -> list[Parameter]:
    """The trained parameters as a capture file tells them."""
    return [
        Parameter(name, each.numel(), str(each.dtype).removeprefix("torch."), each.numel() * each.element_size())
        for name, each in trained_parameters(model)
    ]


def bucket_layout(model: nn.Module) -> list[list[int]]:
    """The parameters of each gradient bucket in the order of reduction; empty for a model that is not in DDP.

    DDP regroups its buckets after the first step; before that the layout is not final, and told as none.
    """
    if not isinstance(model, DistributedDataParallel):
        return []
    told = str(data_parallel_facts(model).get("rebuilt_per_bucket_param_indices", ""))
    return [[int(number) for number in bucket.split()] for bucket in told.split(",") if bucket.strip()]


def buffer_bytes(model: nn.Module) -> list[int]:
    """Bytes of the buffers that DDP broadcasts in each forward pass, by dtype, in the order of broadcast."""
    if not isinstance(model, DistributedDataParallel) or not model.broadcast_buffers:
        return []
    sizes: dict[torch.dtype, int] = {}
    for buffer in model.module.buffers():
        sizes[buffer.dtype] = sizes.get(buffer.dtype, 0) + buffer.numel() * buffer.element_size()
    return list(sizes.values())


def machine_facts() -> dict[str, Fact]:
    """Facts of this machine and its software."""
    facts: dict[str, Fact] = {
        "host": socket.gethostname(),
        "processor": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    if dist.is_available() and dist.is_initialized():
        facts["backend"] = dist.get_backend()
    return facts


def job_facts(model: nn.Module) -> dict[str, Fact]:
    """Facts of model, settings and machine, for people and for whoever must tell two captures apart."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    facts: dict[str, Fact] = {
        "model": type(inner).__name__,
        "parameter_elements": sum(each.numel() for _, each in trained_parameters(model)),
        **machine_facts(),
    }
    if isinstance(model, DistributedDataParallel):
        told = data_parallel_facts(model)
        for key in ("gradient_as_bucket_view", "find_unused_parameters", "broadcast_buffers", "bucket_cap_bytes"):
            value = told.get(key)
            facts[f"ddp_{key}"] = value if isinstance(value, str | int | float) else None
    return facts
