"""Real process groups for tests: a function on each of some ranks, over gloo on the loopback device."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def run_ranks(function: Callable[..., None], ranks: int, *args: Any) -> None:
    """Call `function(rank, *args)` in `ranks` processes of one process group; what one raises is raised here."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(_start, (function, ranks, port, args), nprocs=ranks)


def _start(rank: int, function: Callable[..., None], ranks: int, port: int, args: tuple[Any, ...]) -> None:
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    function(rank, *args)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    # Models in DDP hold the group until the interpreter is torn down, and gloo's threads abort a process that late.
    os._exit(0)
