"""Capture: record the steps of a real training loop on every rank, without a change to the loop.

Steps are told apart by the optimizer's own steps. Some go by unwatched, for comparison; then the instants at which
gradients become ready, waits and collectives are recorded, at a cost that is hardly measurable; last, if asked for,
a few steps run under the full profiler, which names every op and slows the loop down.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from makespan.capture_file import CAPTURE_SUFFIX, PROFILE_SUFFIX, Capture, CapturedStep, save_capture
from makespan.errors import TraceError
from makespan.runtime.clock_readings import clock_name, read_clocks
from makespan.runtime.collective_spans import CollectiveSpans
from makespan.runtime.gradient_watch import GradientWatch
from makespan.runtime.job_facts import bucket_layout, distributed_place, job_facts, parameters_of
from makespan.runtime.root_model import RootModel
from makespan.trace import ClockReading

Phase = Literal["warm-up", "plain", "watched", "profiled", "done"]
PHASES: Final[tuple[Phase, ...]] = ("warm-up", "plain", "watched", "profiled")


@contextmanager
def capture(
    out_dir: str | Path,
    steps: int = 8,
    *,
    warm_up: int = 2,
    plain: int = 4,
    profiled: int = 0,
    boundaries: Literal["optimizer", "call"] = "optimizer",
) -> Generator[Recording]:
    """Record `steps` steps of the training loop inside; every rank writes `out_dir/rankN.capture.json`.

    Before them `warm_up` steps (at least 1) and `plain` unwatched ones go by, after them `profiled` ones under
    torch.profiler, written to `out_dir/rankN.profile.json.gz`. The loop may run on for as long as it likes. A step
    ends with the optimizer's step, or, for loops with several optimizers, where `recording.step()` is called
    (`boundaries="call"`). All ranks must enter and leave the context, since their clocks are compared there.

    Raises TraceError where the loop ended before a step was watched, or trained nothing.

    >>> with makespan.capture("capture"):
    ...     for inputs, labels in batches:
    ...         optimizer.zero_grad()
    ...         loss_of(model(inputs), labels).backward()
    ...         optimizer.step()
    """
    if min(steps, warm_up) < 1 or min(plain, profiled) < 0:
        raise TraceError("capture: expected at least 1 step and 1 warm-up step, and no negative number of others")
    recording = Recording(Path(out_dir), dict(zip(PHASES, (warm_up, plain, steps, profiled), strict=True)))
    readings = read_clocks()
    hooks = [register_optimizer_step_pre_hook(recording.before_optimizer)]
    hooks.append(register_optimizer_step_post_hook(recording.after_optimizer))
    recording.ends_with_optimizer = boundaries == "optimizer"
    try:
        yield recording
    finally:
        for hook in hooks:
            hook.remove()
        recording.stop()
    recording.write([*readings, *read_clocks()])


class Recording:
    """What `capture` has recorded so far; `step()` ends a step where the loop says so itself."""

    def __init__(self, out_dir: Path, plan: dict[Phase, int]) -> None:
        self.ends_with_optimizer = True
        self._out_dir = out_dir
        self._plan = plan
        self._phase: Phase = "warm-up"
        self._lengths: dict[Phase, list[int]] = {phase: [] for phase in PHASES}
        self._began_ns = time.perf_counter_ns()
        self._root = RootModel()
        self._watch: GradientWatch | None = None
        self._spans: CollectiveSpans | None = None
        self._profiler: torch.profiler.profile | None = None
        self._steps: list[CapturedStep] = []
        self._optimizer_began_ns = 0

    @property
    def phase(self) -> Phase:
        """What is being done with the step at hand: "warm-up", "plain", "watched", "profiled", or "done"."""
        return self._phase

    def before_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Called by torch before each step of an optimizer."""
        self._optimizer_began_ns = time.perf_counter_ns()

    def after_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Called by torch after each step of an optimizer."""
        if self._watch is not None:
            self._watch.add_span("optimizer", self._optimizer_began_ns, time.perf_counter_ns())
        if self.ends_with_optimizer:
            self.step()

    def step(self) -> None:
        """A step ends here, and the next begins."""
        if self._phase == "done":
            return
        now = time.perf_counter_ns()
        self._lengths[self._phase].append(now - self._began_ns)
        if self._watch is not None:
            self._steps.append(self._watch.take_step(self._began_ns, now))
        while self._phase != "done" and len(self._lengths[self._phase]) >= self._plan[self._phase]:
            self._leave(self._phase)
            following = (*PHASES, "done")[PHASES.index(self._phase) + 1]
            self._phase = following
            if self._phase != "done" and self._plan[self._phase]:
                self._enter(self._phase)
        # What was done between the phases belongs to no step.
        self._began_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """Take all hooks and profilers away, wherever the loop stopped."""
        if self._phase != "done":
            self._leave(self._phase)
            self._phase = "done"
        self._root.stop()

    def write(self, readings: list[ClockReading]) -> None:
        """Write this rank's file; raises TraceError where there is nothing to write."""
        rank, world_size = distributed_place()
        model = self._root.model
        if not self._steps or model is None:
            done = sum(map(len, self._lengths.values()))
            raise TraceError(
                f"capture: the loop ended after {done} step(s) and none was watched; let it run for at least "
                f"{self._plan['warm-up'] + self._plan['plain'] + 1} (steps end with an optimizer's step; in other "
                'loops take boundaries="call" and call step())'
            )
        buckets = bucket_layout(model)
        spans = self._spans.take() if self._spans is not None else []
        save_capture(
            Capture(
                rank=rank,
                world_size=world_size,
                clock=clock_name(),
                parameters=parameters_of(model),
                buckets=buckets,
                steps=[CollectiveSpans.within(step, spans, buckets, model) for step in self._steps],
                plain_step_ns=self._lengths["plain"],
                profiled_step_ns=self._lengths["profiled"],
                clock_readings=readings,
                facts=job_facts(model),
            ),
            self._out_dir / f"rank{rank}{CAPTURE_SUFFIX}",
        )

    def _enter(self, phase: Phase) -> None:
        model = self._root.model
        if phase == "watched":
            if model is None:
                raise TraceError("capture: no module was called before the optimizer's step; train a torch.nn.Module")
            _refuse_devices(model)
            self._watch = GradientWatch(model)
            self._spans = CollectiveSpans()
        if phase == "profiled":
            self._profiler = torch.profiler.profile(record_shapes=True)
            self._profiler.start()

    def _leave(self, phase: Phase) -> None:
        if phase == "warm-up":
            self._root.stop()
        if phase == "watched" and self._watch is not None and self._spans is not None:
            self._watch.stop()
            self._watch = None
            self._spans.stop()
        if phase == "profiled" and self._profiler is not None:
            self._profiler.stop()
            self._out_dir.mkdir(parents=True, exist_ok=True)
            path = self._out_dir / f"rank{distributed_place()[0]}{PROFILE_SUFFIX}"
            self._profiler.export_chrome_trace(str(path))
            self._profiler = None


def _refuse_devices(model: nn.Module) -> None:
    """On an accelerator the host's clock says when a gradient was enqueued, not when it was ready."""
    devices = {parameter.device.type for parameter in model.parameters()}
    if devices - {"cpu"}:
        raise TraceError(
            f"capture: gradients on {', '.join(sorted(devices))} can't be watched from the host; use torch.profiler "
            "there and give its trace to makespan.load"
        )
