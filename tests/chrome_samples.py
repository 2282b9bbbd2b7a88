"""Small Chrome JSON traces for tests: two steps of three launches each, as a PyTorch profile of one rank."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from makespan.simulator.reading.sources import HEAD_BYTES, Source

Event = dict[str, Any]


def span(cat: str, name: str, ts: float, dur: float, pid: Any = 1, tid: Any = 1, **args: Any) -> Event:
    """A complete event; the spaces of argument names are written as underscores ("External_id")."""
    named = {key.replace("_", " ") if key[0].isupper() else key: value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": named}


def two_steps(begin: float = 1000.0, pid: int = 1, device: int = 0) -> list[Event]:
    """20 events: two steps of 400 us, three ops of 40 us in each, each with a launch and a kernel of 50 us."""
    events = [
        span("user_annotation", f"ProfilerStep#{step + 1}", begin + 400 * step, 400.0, pid, External_id=step + 1)
        for step in range(2)
    ]
    for step in range(2):
        for number in range(3):
            ts, key = begin + 400 * step + 10 + 60 * number, 100 + 10 * step + number
            events.append(span("cpu_op", "aten::mm", ts, 40.0, pid, External_id=key))
            events.append(
                span("cuda_runtime", "cudaLaunchKernel", ts + 5, 10.0, pid, External_id=key, correlation=key, cbid=211)
            )
            on_device = {"External_id": key, "correlation": key, "stream": 7, "device": device, "context": 1}
            events.append(span("kernel", "gemm", ts + 20, 50.0, pid - 1, 7, **on_device))
    return events


def kernels(events: list[Event]) -> list[Event]:
    """The kernels among `events`."""
    return [event for event in events if event["cat"] == "kernel"]


def profile(events: list[Event], rank: int | None = 0, **members: Any) -> dict[str, Any]:
    """A whole profile; `members` stand beside the events."""
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
    return {
        "schemaVersion": 1,
        **info,
        "deviceProperties": [{"id": 0, "name": "Fake"}],
        **members,
        "traceEvents": events,
    }


def text(content: Any) -> bytes:
    """`content` as JSON."""
    return json.dumps(content).encode()


def source(content: bytes | list[Event] | dict[str, Any], name: str = "sample.json") -> Source:
    """A source in memory."""
    whole = content if isinstance(content, bytes) else text(content)
    return Source(name, whole[:HEAD_BYTES], lambda: io.BytesIO(whole))


def write(folder: Path, content: bytes | list[Event] | dict[str, Any], name: str = "rank0.json") -> Path:
    """A file in `folder`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else text(content))
    return path
