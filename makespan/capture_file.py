"""Capture file: what `makespan.capture` writes for each rank, as versioned JSON that an importer reads."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from makespan.errors import TraceError
from makespan.new_file import new_file
from makespan.trace import NONE, ClockReading
from makespan.units import TIME_LIMIT_NS

CAPTURE_FORMAT: Final = "makespan capture"
CAPTURE_VERSION: Final = 1
CAPTURE_SUFFIX: Final = ".capture.json"
PROFILE_SUFFIX: Final = ".profile.json.gz"
"""End of the names of full profiles that lie beside captures, of the same ranks."""
MAX_CAPTURE_BYTES: Final = 512_000_000

FORWARD: Final = "forward"
"""Span of a call of the trained model."""
WAIT: Final = "wait for gradients"
"""Span from the end of backward to the end of what the training thread does about reduced gradients."""
COPY_OUT: Final = "copy of reduced gradients"
"""What is left of that span once the last reduction has ended."""
LAUNCH: Final = "launch of "
"""Begin of the names of events in which a collective is enqueued."""


class Parameter(NamedTuple):
    """A trained parameter: its name in the model, its number of elements, its dtype, and the bytes of its gradient."""

    name: str
    elements: int
    dtype: str
    bytes: int


class Span(NamedTuple):
    """Something that took time on the training thread, from `start_ns` to `end_ns`."""

    name: str
    start_ns: int
    end_ns: int


class GradientReady(NamedTuple):
    """The instant at which the gradient of a parameter (its place in `parameters`) was complete."""

    parameter: int
    at_ns: int


class CapturedCollective(NamedTuple):
    """A collective from the call that enqueued it to its end; `bytes` that this rank put in, -1 where not known.

    `bucket`: which gradient bucket it reduces, -1 where it is something else.
    """

    name: str
    start_ns: int
    end_ns: int
    bytes: int
    bucket: int


class CapturedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training step of one rank, in ns of the rank's clock; each list in time order."""

    start_ns: int
    end_ns: int
    spans: list[Span] = []
    gradients: list[GradientReady] = []
    collectives: list[CapturedCollective] = []


class Capture(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one rank recorded of a training loop.

    `clock` names the clock: ranks with equal names read the same one. `buckets`: the parameters of each gradient
    bucket, in the order in which buckets are reduced; empty without data parallelism. `plain_step_ns`: lengths of
    steps before anything was watched, `profiled_step_ns` of those under the full profiler. `facts`: what else is
    known of model, machine and settings.
    """

    format: str = CAPTURE_FORMAT
    format_version: int = CAPTURE_VERSION
    rank: int
    world_size: int
    clock: str
    parameters: list[Parameter]
    buckets: list[list[int]]
    steps: list[CapturedStep]
    plain_step_ns: list[int] = []
    profiled_step_ns: list[int] = []
    clock_readings: list[ClockReading] = []
    facts: dict[str, str | int | float | None] = {}


def parse_capture(content: bytes, source: str) -> Capture:
    """The capture in `content` (JSON), checked; `source` is what messages call it. Raises TraceError."""
    try:
        capture = msgspec.json.decode(content, type=Capture)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{source}: no capture of format version {CAPTURE_VERSION} ({error}); capture the job again, or give the "
            "file as it was written"
        ) from None
    if capture.format != CAPTURE_FORMAT or capture.format_version != CAPTURE_VERSION:
        raise TraceError(
            f"{source}: {capture.format!r} of version {capture.format_version}, expected {CAPTURE_FORMAT!r} of version "
            f"{CAPTURE_VERSION}; capture the job again, or install the makespan that wrote it"
        )
    _check(capture, source)
    return capture


def save_capture(capture: Capture, path: Path) -> None:
    """Write `capture` to `path`; raises TraceError where it is not sound or can't be written."""
    _check(capture, str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            file.write(msgspec.json.encode(capture))
    except OSError as error:
        raise TraceError(f"{path}: can't be written ({error.strerror}); give a folder that can") from None


def _check(capture: Capture, source: str) -> None:
    """Raise TraceError for the first thing that can't be."""
    if not 0 <= capture.rank < capture.world_size:
        raise TraceError(f"{source}: rank {capture.rank} of {capture.world_size}, expected 0 to world size - 1")
    if not capture.steps:
        raise TraceError(f"{source}: holds no step; let the loop run for more steps inside makespan.capture")
    count = len(capture.parameters)
    named = chain.from_iterable(capture.buckets)
    ready = (gradient.parameter for step in capture.steps for gradient in step.gradients)
    for parameter in chain(named, ready):
        if not 0 <= parameter < count:
            raise TraceError(f"{source}: parameter {parameter} at a bucket or gradient, expected 0 to {count - 1}")
    for before, after in pairwise(capture.steps):
        if after.start_ns < before.end_ns:
            raise TraceError(f"{source}: a step begins at {after.start_ns} ns, before the one before it ended")
    for place, step in enumerate(capture.steps):
        _check_step(step, len(capture.buckets), f"{source}: step {place}")


def _check_step(step: CapturedStep, buckets: int, where: str) -> None:
    spans: list[tuple[str, int, int]] = [("step", step.start_ns, step.end_ns)]
    spans += [(span.name, span.start_ns, span.end_ns) for span in (*step.spans, *step.collectives)]
    for name, start_ns, end_ns in spans:
        if not 0 <= start_ns <= end_ns < TIME_LIMIT_NS:
            raise TraceError(f"{where}: {name!r} lasts from {start_ns} to {end_ns} ns, expected 0 <= start <= end")
    for gradient in step.gradients:
        if not step.start_ns <= gradient.at_ns <= step.end_ns:
            raise TraceError(f"{where}: a gradient was ready at {gradient.at_ns} ns, outside of the step")
    for collective in step.collectives:
        if not NONE <= collective.bucket < buckets or collective.bytes < NONE:
            raise TraceError(
                f"{where}: {collective.name!r} moves {collective.bytes} bytes of bucket {collective.bucket}"
            )


def capture_facts(capture: Capture) -> dict[str, Any]:
    """What a trace's metadata tells of a capture: its facts, layout of parameters and buckets, and overheads."""
    return {
        **capture.facts,
        "parameters": [parameter._asdict() for parameter in capture.parameters],
        "buckets": capture.buckets,
        "plain_step_ns": capture.plain_step_ns,
        "profiled_step_ns": capture.profiled_step_ns,
    }
