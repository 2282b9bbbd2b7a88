"""Captures of jobs that never ran, with times that a test can reckon with; and a network with known costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from makespan.capture_file import (
    WAIT,
    Capture,
    CapturedCollective,
    CapturedStep,
    GradientReady,
    Parameter,
    Span,
    save_capture,
)
from makespan.cluster import Cluster

FORWARD_NS = 1_000
OPTIMIZER_NS = 300
LOOP_NS = 50


class Network:
    """A communication model: `latency_ns` a bucket and `ns_per_byte`; contention as given."""

    validity = "tests"

    def __init__(
        self, latency_ns: int = 100, ns_per_byte: float = 1.0, stretch: float = 1.0, share_left: float = 1.0,
        launch_ns: int = 0, copy_ns_per_byte: float = 0.0,
    ) -> None:  # fmt: skip
        self.latency_ns, self.ns_per_byte = latency_ns, ns_per_byte
        self.stretch, self.share_left = stretch, share_left
        self.launch_ns, self.copy_ns_per_byte = launch_ns, copy_ns_per_byte

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        """Latency and bytes."""
        return self.latency_ns + np.rint(size_bytes * self.ns_per_byte).astype(np.int64)

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same for all sizes."""
        return np.full(len(size_bytes), self.stretch), np.full(len(size_bytes), self.share_left)

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """A constant for the call, bytes for copies."""
        if work == "launch":
            return np.full(len(size_bytes), self.launch_ns, np.int64)
        return np.rint(size_bytes * self.copy_ns_per_byte).astype(np.int64)


def write_captures(
    folder: Path,
    gradients: Sequence[tuple[int, int]],
    *,
    ranks: int = 2,
    steps: int = 2,
    reduce_ns: int = 500,
    late_ns: Sequence[int] = (),
) -> list[Path]:
    """Captures of `ranks` ranks whose backward pass makes `gradients` ready, (ns of computing, bytes) each, in turn.

    All are reduced in one bucket, which takes `reduce_ns` from when the last rank has it; `late_ns` is what each
    rank's forward pass takes longer than FORWARD_NS. The ranks read one clock.
    """
    late = list(late_ns) or [0] * ranks
    paths: list[Path] = []
    parameters = [
        Parameter(f"layer{place}.weight", size // 4, "float32", size) for place, (_, size) in enumerate(gradients)
    ]
    for rank in range(ranks):
        captured: list[CapturedStep] = []
        start_ns = 1_000_000
        for _ in range(steps):
            forward_ns = start_ns + LOOP_NS + FORWARD_NS + late[rank]
            ready: list[GradientReady] = []
            now = forward_ns
            for place, (compute_ns, _) in enumerate(gradients):
                now += compute_ns
                ready.append(GradientReady(place, now))
            reduced_ns = now - late[rank] + max(late) + reduce_ns
            end_ns = reduced_ns + OPTIMIZER_NS
            captured.append(
                CapturedStep(
                    start_ns,
                    end_ns,
                    [
                        Span("forward", start_ns + LOOP_NS, forward_ns),
                        Span(WAIT, now, reduced_ns),
                        Span("optimizer", reduced_ns, end_ns),
                    ],
                    ready,
                    [CapturedCollective("gloo:all_reduce", now, reduced_ns, sum(size for _, size in gradients), 0)]
                    if ranks > 1
                    else [],
                )
            )
            start_ns = end_ns
        path = folder / f"rank{rank}.capture.json"
        save_capture(
            Capture(
                rank=rank, world_size=ranks, clock="test", parameters=parameters,
                buckets=[list(range(len(parameters)))] if ranks > 1 else [], steps=captured,
            ),
            path,
        )  # fmt: skip
        paths.append(path)
    return paths
