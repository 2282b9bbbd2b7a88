"""Clock readings: this rank's clock against rank 0's, by messages to and fro (Cristian's algorithm)."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from makespan.trace import ClockReading

ROUNDS: Final = 20
KEPT: Final = 5
"""Of all rounds those with the shortest way to and fro say most."""


def clock_name() -> str:
    """Name of the clock that time.perf_counter_ns reads: equal for processes that read the same one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = socket.gethostname()
    return f"perf_counter since boot {boot}"


def read_clocks(rounds: int = ROUNDS) -> list[ClockReading]:
    """The best of `rounds` readings, on ranks other than 0; all ranks of the default group must call it.

    Rank 0 answers each rank in turn with its own time; half of the round trip bounds a reading's error.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return []
    rank, readings = dist.get_rank(), list[ClockReading]()
    device = "cpu" if dist.get_backend() in ("gloo", "mpi") else torch.accelerator.current_accelerator()
    message = torch.zeros(1, dtype=torch.int64, device=device)
    for other in range(1, dist.get_world_size()):
        for _ in range(rounds):
            if rank == 0:
                dist.recv(message, other)
                message.fill_(time.perf_counter_ns())
                dist.send(message, other)
            elif rank == other:
                sent_ns = time.perf_counter_ns()
                dist.send(message, 0)
                dist.recv(message, 0)
                answered = int(message.item())
                trip_ns = time.perf_counter_ns() - sent_ns
                readings.append(ClockReading(sent_ns + trip_ns // 2, answered, trip_ns))
    return sorted(sorted(readings, key=lambda reading: reading.round_trip_ns)[:KEPT])
