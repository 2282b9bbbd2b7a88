"""A worker of the testbed: does what a job file says, action after action, together with the other workers."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from cells import STEADY
from models import MODELS
from network import UNTHROTTLED, set_rate
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import makespan as ms
from makespan.runtime.job_facts import bucket_layout

HOOKS = {"plain": None, "fp16": fp16_compress_hook}
"""How a bucket is reduced, by name."""
WARM_UP = 2
ATTEMPTS = 4


def main() -> None:
    """Usage: worker.py JOB.json; the environment tells rank, world size, rendezvous and network device."""
    job = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    _join_group(bool(job["real_time"]))
    results = Path(job["results"])
    for action in job["actions"]:
        found = DO[action["do"]](action)
        if rank == 0 and found is not None:
            with results.open("a") as file:
                file.write(json.dumps({**action, **found}) + "\n")
        if rank == 0:
            print(f"  {' '.join(str(value) for value in action.values() if not isinstance(value, dict))}", flush=True)
    _rate(UNTHROTTLED)
    dist.destroy_process_group()
    sys.stdout.flush()
    # Models in DDP hold the group until the interpreter is torn down, and gloo's threads abort a process that late.
    os._exit(0)


def _join_group(real_time: bool) -> None:
    """Join the process group; with `real_time` gloo's own threads go before whatever else wants the core."""
    before = set(os.listdir("/proc/self/task"))
    dist.init_process_group("gloo")
    # Threads are started with the first collectives.
    for work in [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(8)]:
        assert work is not None
        work.wait()
    if real_time:
        for thread in set(os.listdir("/proc/self/task")) - before:
            if "gloo" in Path(f"/proc/self/task/{thread}/comm").read_text():
                os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(1))


def _rate(rate: str) -> None:
    dist.barrier()
    set_rate(os.environ["TESTBED_DEVICE"], rate)
    dist.barrier()


def rate(action: dict[str, Any]) -> None:
    """Set the rate of every worker's link."""
    _rate(action["rate"])


def probe(action: dict[str, Any]) -> None:
    """Measure the network at a rate, as it is for this process group beside a model's own computing."""
    compute = _computing(action["model"])
    _rate(action["rate"])
    ms.probe_communication(
        action["out"], network=f"veth, {action['rate']}", dtypes=action["dtypes"], repeats=action["repeats"],
        sizes=action["sizes"], beside=compute, hook=HOOKS[action["hook"]],
    )  # fmt: skip


def capture(action: dict[str, Any]) -> dict[str, Any]:
    """Capture a model, all gradients in one bucket; again where the machine's speed changed meanwhile."""
    for attempt in range(ATTEMPTS):
        before_ms = _sentinel_ms(action["model"])
        step = _training(action, UNTHROTTLED)[1]
        _rate(action["rate"])
        with ms.capture(action["out"], steps=action["steps"], warm_up=2, plain=action["steps"]):
            for _ in range(2 * action["steps"] + 2):
                step()
        after_ms = _sentinel_ms(action["model"])
        if abs(after_ms / before_ms - 1) <= STEADY or attempt == ATTEMPTS - 1:
            return {"sentinel_ms": (before_ms + after_ms) / 2, "attempts": attempt + 1}
    raise AssertionError("unreachable: the last attempt returns")


def measure(action: dict[str, Any]) -> dict[str, Any]:
    """Time the steps of a model with some buckets at some rate; again where the machine is not as fast as it was.

    How fast it is, a sentinel tells before and after: the model's computing alone. Of all attempts, which are kept,
    that counts whose sentinel is nearest to the one of the capture.
    """
    attempts: list[dict[str, Any]] = []
    for _ in range(ATTEMPTS):
        before_ms = _sentinel_ms(action["model"])
        model, step = _training(action, UNTHROTTLED)
        _rate(action["rate"])
        step()
        lengths: list[float] = []
        for _ in range(action["steps"]):
            began = time.perf_counter()
            step()
            lengths.append(time.perf_counter() - began)
        dist.barrier()
        sentinel_ms = (before_ms + _sentinel_ms(action["model"])) / 2
        attempts.append(
            {"lengths_ms": [round(1e3 * length, 4) for length in lengths],
             "median_ms": 1e3 * statistics.median(lengths), "formed": len(bucket_layout(model)),
             "sentinel_ms": sentinel_ms, "moved": sentinel_ms / action["sentinel_ms"] - 1}
        )  # fmt: skip
        if abs(attempts[-1]["moved"]) <= STEADY:
            break
    return {**min(attempts, key=lambda attempt: abs(attempt["moved"])), "attempts": attempts}


def _computing(name: str) -> Callable[[], None]:
    """Forward and backward of a model, without any communication."""
    torch.manual_seed(0)
    model, loss = MODELS[name]()

    def compute() -> None:
        model.zero_grad()
        loss(model).backward()

    return compute


def _sentinel_ms(name: str) -> float:
    """How long a model's computing takes now: the mean over ranks, the same on all."""
    _rate(UNTHROTTLED)
    compute = _computing(name)
    compute()
    lengths: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        compute()
        lengths.append(time.perf_counter() - began)
    told = torch.tensor([statistics.median(lengths)], dtype=torch.float64)
    dist.all_reduce(told)
    return 1e3 * float(told) / dist.get_world_size()


def _training(action: dict[str, Any], rate: str) -> tuple[DistributedDataParallel, Any]:
    """The model in DDP, warmed up without a limit on its link, and one training step."""
    torch.manual_seed(0)
    bare, loss = MODELS[action["model"]]()
    _rate(rate)
    model = _parallel(bare, action["buckets"])
    hook = HOOKS[action.get("hook", "plain")]
    if hook is not None:
        model.register_comm_hook(None, hook)
    late = action["slow"] if dist.get_rank() == dist.get_world_size() - 1 else 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with torch.no_grad():
            for _ in range(late):
                loss(bare)
        loss(model).backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    return model, step


def _parallel(bare: nn.Module, buckets: str | float) -> DistributedDataParallel:
    """In DDP with buckets of a cap in MiB, DDP's "default", or those of a plan file."""
    if buckets == "default":
        return DistributedDataParallel(bare)
    if isinstance(buckets, str):
        return ms.lower(ms.Plan.load(buckets), bare)
    return DistributedDataParallel(bare, bucket_cap_mb=buckets)  # pyright: ignore[reportArgumentType]


DO = {"rate": rate, "probe": probe, "capture": capture, "measure": measure}

if __name__ == "__main__":
    main()
