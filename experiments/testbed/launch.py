"""Launch the testbed's workers on a job, wait for them, and read what they measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from network import Place

PORT = 29_517
MINUTES = 20


def launch(places: list[Place], actions: list[dict[str, Any]], *, real_time: bool) -> list[dict[str, Any]]:
    """Let one worker at each of `places` do `actions`; returns one row for each action that measures.

    Raises RuntimeError with what a worker printed where one fails.
    """
    with tempfile.TemporaryDirectory(prefix="makespan-testbed-") as folder:
        job, results = Path(folder) / "job.json", Path(folder) / "results.jsonl"
        job.write_text(json.dumps({"actions": actions, "real_time": real_time, "results": str(results)}))
        workers = [
            _start(place, rank, len(places), places[0].address, job, folder) for rank, place in enumerate(places)
        ]
        try:
            codes = [worker.wait(timeout=60 * MINUTES) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        if any(codes):
            rank = next(rank for rank, code in enumerate(codes) if code)
            text = (Path(folder) / f"{rank}.log").read_text()
            raise RuntimeError(f"worker {rank} failed:\n{text[-3000:]}")
        return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _start(place: Place, rank: int, world: int, master: str, job: Path, folder: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": master, "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": place.device, "TESTBED_DEVICE": place.device, "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    log = (Path(folder) / f"{rank}.log").open("wb")
    out = None if rank == 0 else log
    return subprocess.Popen(
        [*place.enter, sys.executable, str(Path(__file__).parent / "worker.py"), str(job)],
        env=environment, stdout=out, stderr=log,
    )  # fmt: skip
