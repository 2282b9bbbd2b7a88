"""Communication probe in real process groups: what it tells of reductions whose costs a test sets."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gloo_jobs import run_ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

import makespan as ms
from makespan.communication_table import CommunicationTable, load_table
from makespan.errors import PredictionError
from makespan.predictors.measured_curve import MeasuredCurve

SIZES = (1 << 10, 1 << 14)
CALL_S = 0.004
AFTER_S = 0.006


def probe_plain(rank: int, path: str) -> None:
    """Every rank gets what rank 0 writes."""
    table = ms.probe_communication(path, network="loopback", sizes=SIZES, repeats=2, beside=busy)
    told: list[CommunicationTable | None] = [None, None]
    dist.all_gather_object(told, table)
    assert told[0] == told[1] == table


def probe_hooks(rank: int, path: str) -> None:
    """A hook that takes its time, and torch's own."""
    ms.probe_communication(path, network="loopback", sizes=SIZES, repeats=2, beside=busy, hook=slow_hook)
    fp16 = ms.probe_communication(network="loopback", sizes=SIZES, repeats=2, beside=busy, hook=fp16_compress_hook)
    assert fp16.facts["hook"] == "fp16_compress_hook"


def busy() -> None:
    """Some computing."""
    torch.mm(torch.ones(64, 64), torch.ones(64, 64))


def slow_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Takes CALL_S before it returns, and AFTER_S more until the buffer is reduced."""
    assert state is None
    assert bucket.is_last() and bucket.index() == 0
    assert [each.numel() for each in bucket.gradients()] == [bucket.buffer().numel()]
    time.sleep(CALL_S)
    reduced: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    threading.Timer(AFTER_S, lambda: reduced.set_result(bucket.buffer())).start()
    return reduced


def by_operation(table: CommunicationTable, operation: str) -> dict[int, list[int]]:
    """Times alone, by size."""
    return {entry.size_bytes: entry.alone_ns for entry in table.measured if entry.operation == operation}


def test_a_plain_probe_tells_of_all_that_buckets_cost(tmp_path: Path) -> None:
    run_ranks(probe_plain, 2, str(tmp_path / "network.json"))
    table = load_table(tmp_path / "network.json")
    assert (table.network, table.facts["world_size"], table.facts["hook"]) == ("loopback", 2, None)
    assert list(by_operation(table, "allreduce")) == list(by_operation(table, "broadcast")) == list(SIZES)
    assert list(by_operation(table, "copy")) == list(SIZES)
    # A call costs the same whatever the size.
    assert list(by_operation(table, "launch")) == [0]
    for entry in table.measured:
        assert min(entry.alone_ns) > 0
        hindered = 2 if entry.operation == "allreduce" else 0
        assert len(entry.contended_ns) == len(entry.share_left) == hindered
    model = MeasuredCurve(table)
    assert np.all(model.transfer_ns("allreduce", np.array([0, 1 << 16]), [0, 1], None) > 0)


def test_a_hook_is_measured_as_a_whole(tmp_path: Path) -> None:
    run_ranks(probe_hooks, 2, str(tmp_path / "network.json"))
    table = load_table(tmp_path / "network.json")
    assert table.facts["hook"] == "slow_hook"
    launches, reductions = by_operation(table, "launch"), by_operation(table, "allreduce")
    assert list(launches) == [0, *SIZES]
    assert min(min(times) for times in launches.values()) >= 1e9 * CALL_S
    assert min(min(times) for times in reductions.values()) >= 1e9 * (CALL_S + AFTER_S)


def test_a_probe_needs_ranks_to_talk_to() -> None:
    with pytest.raises(PredictionError, match="no process group of at least 2 ranks; start the job with torchrun"):
        ms.probe_communication(network="none")
