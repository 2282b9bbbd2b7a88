"""Gradient watch: the instants at which gradients become ready, and how long backward waits for their reduction."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from torch import Tensor, nn

from makespan.capture_file import WAIT, CapturedStep, GradientReady, Span
from makespan.runtime.job_facts import trained_parameters
from makespan.runtime.root_model import watch_forward
from makespan.runtime.torch_internals import queue_callback


class GradientWatch:
    """Hooks on a model; `take_step` gives what they saw of one step.

    When the last gradient of a backward pass is there, data parallelism waits for its all-reduces in a callback
    at the end of backward, which no profiler shows. Callbacks run in the order in which they were queued: one
    that is queued with the first gradient opens a span before that wait, and queues another that closes it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._gradients: list[GradientReady] = []
        self._spans: list[Span] = []
        self._in_backward = False
        self._handles: list[Any] = [
            parameter.register_post_accumulate_grad_hook(partial(self._ready, number))
            for number, (_, parameter) in enumerate(trained_parameters(model))
        ]
        self._handles += watch_forward(model, self.add_span)

    def add_span(self, name: str, start_ns: int, end_ns: int) -> None:
        """Record that something took time on this thread."""
        self._spans.append(Span(name, start_ns, end_ns))

    def take_step(self, start_ns: int, end_ns: int) -> CapturedStep:
        """What was seen since the last call, as one step."""
        step = CapturedStep(start_ns, end_ns, self._spans, self._gradients)
        self._spans, self._gradients = [], []
        return step

    def stop(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _ready(self, number: int, parameter: Tensor) -> None:
        self._gradients.append(GradientReady(number, time.perf_counter_ns()))
        if not self._in_backward:
            self._in_backward = True
            queue_callback(self._open_wait)

    def _open_wait(self) -> None:
        opened_ns = time.perf_counter_ns()

        def close() -> None:
            self._in_backward = False
            self.add_span(WAIT, opened_ns, time.perf_counter_ns())

        queue_callback(close)
