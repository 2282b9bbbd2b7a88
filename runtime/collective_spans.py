"""Collective spans: when each collective was enqueued and when it ended, from a profiler that records nothing else."""

from __future__ import annotations

import time
from itertools import cycle
from typing import Any, Final

import torch
from torch import nn

from makespan.capture_file import CapturedCollective, CapturedStep
from makespan.errors import TraceError
from makespan.runtime.job_facts import buffer_bytes, trained_parameters
from makespan.runtime.torch_internals import profiler_is_running, start_user_scopes, stop_profiler
from makespan.trace import NONE

_BACKENDS: Final = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:")
_CLOCK_MARK: Final = "makespan::clock"
_MARK_ERROR_NS: Final = 50_000
"""The profiler's clock is known by marks that take some microseconds to make; no launch is later than told by more."""

CollectiveSpan = tuple[str, int, int]
"""Name, start and end on the clock of time.perf_counter_ns."""


class CollectiveSpans:
    """Records from its making to `stop`.

    torch's profiler records ops by scope; limited to user scopes it sees the spans of the communication back ends,
    and none of the thousands of ops that make profiling slow.
    """

    def __init__(self) -> None:
        if profiler_is_running():
            raise TraceError("capture: another profiler is running in this loop; stop it, there can be only one")
        start_user_scopes()
        self._found: list[CollectiveSpan] = []
        self._marks = [_mark_clock()]

    def stop(self) -> None:
        """Stop recording, and put what was recorded on the clock of time.perf_counter_ns."""
        self._marks.append(_mark_clock())
        events = stop_profiler()
        marked = [event.start_ns() for event in events if event.name() == _CLOCK_MARK]
        if len(marked) != len(self._marks):
            return
        (first, last), (began, ended) = self._marks, marked
        rate = (last - first) / (ended - began)
        for event in events:
            if event.name().startswith(_BACKENDS):
                start_ns = first + round((event.start_ns() - began) * rate)
                self._found.append((event.name(), start_ns, start_ns + round(event.duration_ns() * rate)))
        self._found.sort(key=lambda span: span[1])

    def take(self) -> list[CollectiveSpan]:
        """All spans, in the order in which the collectives were enqueued."""
        return self._found

    @staticmethod
    def within(
        step: CapturedStep, spans: list[CollectiveSpan], buckets: list[list[int]], model: nn.Module
    ) -> CapturedStep:
        """`step` with those of `spans` that began in it.

        All-reduces that began after the first gradient are those of the buckets, in turn, each launched once its
        gradients are ready; broadcasts before it are those of the model's buffers, one for each dtype.
        """
        sizes = [sum(_gradient_bytes(model)[place] for place in bucket) for bucket in buckets]
        reductions = cycle(range(len(buckets))) if buckets else cycle([NONE])
        broadcasts = cycle(buffer_bytes(model) or [NONE])
        ready_ns = {gradient.parameter: gradient.at_ns for gradient in step.gradients}
        first_ns = step.gradients[0].at_ns - _MARK_ERROR_NS if step.gradients else step.end_ns
        found: list[CapturedCollective] = []
        for name, start_ns, end_ns in spans:
            if not step.start_ns <= start_ns < step.end_ns:
                continue
            bucket, size = NONE, NONE
            if start_ns >= first_ns and "all_reduce" in name:
                bucket = next(reductions)
                if bucket >= 0:
                    size = sizes[bucket]
                    last_ns = max((ready_ns.get(place, 0) for place in buckets[bucket]), default=0)
                    start_ns = max(start_ns, min(last_ns, start_ns + _MARK_ERROR_NS, end_ns))
            elif "broadcast" in name:
                size = next(broadcasts)
            found.append(CapturedCollective(name, start_ns, end_ns, size, bucket))
        return CapturedStep(step.start_ns, step.end_ns, step.spans, step.gradients, found)


def _gradient_bytes(model: nn.Module) -> list[int]:
    return [parameter.numel() * parameter.element_size() for _, parameter in trained_parameters(model)]


def _mark_clock() -> int:
    """A mark in the profile, and when it was made on the clock of time.perf_counter_ns.

    Of a few tries the quickest would be closer, but the profile would hold them all.
    """
    mark: Any = torch.profiler.record_function(_CLOCK_MARK)
    before = time.perf_counter_ns()
    mark.__enter__()
    after = time.perf_counter_ns()
    mark.__exit__(None, None, None)
    return (before + after) // 2
