"""Captures: what `makespan.capture` recorded of a training loop, with its dependencies as they are known to be."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from makespan.capture_file import (
    CAPTURE_FORMAT,
    COPY_OUT,
    FORWARD,
    LAUNCH,
    MAX_CAPTURE_BYTES,
    WAIT,
    Capture,
    CapturedCollective,
    CapturedStep,
    capture_facts,
    parse_capture,
)
from makespan.simulator.reading.sources import Source, read_whole, report
from makespan.simulator.reading.table_builder import TableBuilder
from makespan.trace import NONE, Diagnostics, EventKind, LaneKind, RankTrace

TITLE = "Makespan capture"

LOOP: Final = "training loop"
BACKWARD_TAIL: Final = "end of backward"
_MARK: Final = f'"format":"{CAPTURE_FORMAT}"'.replace(" ", "").encode()


def recognise(source: Source) -> int:
    """2 where the file begins with a capture's own name."""
    return 2 * (_MARK in source.head[:200].replace(b" ", b""))


def read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
    """One RankTrace with the training thread, cut into what it did between the recorded instants, and the collectives.

    A gradient's event ends when the gradient is ready, and carries its `parameter` and bytes. A collective's event
    begins when the one before it has ended: back ends work through their queue. Attributes: collective, bytes,
    bucket, group_name, group_sequence, parameter.
    """
    capture = parse_capture(read_whole(source, diagnostics, strict, MAX_CAPTURE_BYTES), source.name)
    rows = _Rows(capture)
    for number, step in enumerate(capture.steps):
        rows.add_step(number, step)
    place = f"{source.name}: rank {capture.rank}"
    report(diagnostics, strict, "collectives that ended before the one enqueued before them", place, rows.overtaken)
    dependencies = np.array(rows.dependencies, np.int32).reshape(-1, 2)
    return [
        RankTrace(
            capture.rank,
            source.name,
            TITLE,
            rows.builder.table(),
            diagnostics,
            clock=capture.clock,
            world_size=capture.world_size,
            dependency_source=dependencies[:, 0].copy(),
            dependency_target=dependencies[:, 1].copy(),
            metadata=capture_facts(capture),
            clock_readings=tuple(capture.clock_readings),
        )
    ]


@dataclass(frozen=True, slots=True)
class _Moment:
    """What the training thread did up to `at_ns`."""

    at_ns: int
    name: str
    kind: EventKind = EventKind.CPU_OP
    parameter: int = NONE
    collective: int = NONE
    """Place of the collective that is enqueued at this moment, or whose end is awaited."""


class _Rows:
    """The rows of one rank's trace, step after step, and the dependencies between them."""

    def __init__(self, capture: Capture) -> None:
        self.builder = TableBuilder()
        self.dependencies: list[tuple[int, int]] = []
        self.overtaken = 0
        self._parameters = capture.parameters
        self._grouped = capture.world_size > 1
        self._bucket_of = {place: number for number, bucket in enumerate(capture.buckets) for place in bucket}
        process = f"rank {capture.rank}"
        self._thread = self.builder.lane(LaneKind.HOST, process, "main", "training thread")
        self._link = self.builder.lane(LaneKind.OTHER, process, "collectives", "collectives")
        self._last_row, self._last_ns = NONE, NONE
        self._link_row, self._link_ns = NONE, 0
        self._sequence = 0

    def add_step(self, number: int, step: CapturedStep) -> None:
        """Append what happened in `step`."""
        if self._last_row >= 0 and step.start_ns > self._last_ns:
            self._append("between captured steps", EventKind.CPU_OP, step.start_ns)
        self._last_ns = step.start_ns
        self.builder.add(f"step {number}", EventKind.STEP, self._thread, step.start_ns, step.end_ns - step.start_ns)
        ends = self._ends_in_turn(step)
        collective_rows: dict[int, int] = {}
        for moment in _moments(step, ends):
            at_ns = min(max(moment.at_ns, self._last_ns), step.end_ns)
            name = self._parameters[moment.parameter].name if moment.parameter >= 0 else ""
            row = self._append(moment.name + name, moment.kind, at_ns)
            if moment.parameter >= 0:
                self.builder.set_attr(row, "parameter", name)
                self.builder.set_attr(row, "bytes", self._parameters[moment.parameter].bytes)
                if moment.parameter in self._bucket_of:
                    self.builder.set_attr(row, "bucket", self._bucket_of[moment.parameter])
            if moment.collective < 0:
                continue
            if moment.kind == EventKind.WAIT:
                awaited = [place for place in collective_rows if place <= moment.collective]
                self.dependencies += [(collective_rows.pop(place), row) for place in awaited]
            else:
                collective = step.collectives[moment.collective]
                collective_rows[moment.collective] = self._add_collective(
                    collective, at_ns, max(ends[moment.collective], at_ns), row
                )

    def _ends_in_turn(self, step: CapturedStep) -> list[int]:
        """When each collective ended, at the earliest when the one before it had.

        A worker may close a collective's span up to some ms after it has let the waiting thread go; what that
        thread did next shows that the collective had ended.
        """
        spans = (moment for span in step.spans for moment in (span.start_ns, span.end_ns))
        gradients = (gradient.at_ns for gradient in step.gradients)
        seen = sorted({*spans, *gradients, *(collective.start_ns for collective in step.collectives)})
        ends: list[int] = []
        for collective in step.collectives:
            until_ns = collective.end_ns
            if collective.bucket >= 0:
                waits = (span.end_ns for span in step.spans if span.name == WAIT and span.end_ns > collective.start_ns)
                until_ns = min(until_ns, next(waits, until_ns))
            elif _blocks(step, collective):
                following = bisect_right(seen, collective.start_ns)
                until_ns = min(until_ns, seen[following] if following < len(seen) else until_ns)
            before = ends[-1] if ends else 0
            self.overtaken += until_ns < before
            ends.append(max(until_ns, before))
        return ends

    def _append(self, name: str, kind: EventKind, until_ns: int) -> int:
        """The training thread did this until then."""
        row = self.builder.add(name, kind, self._thread, self._last_ns, until_ns - self._last_ns)
        self.dependencies.append((self._last_row, row))
        self._last_row, self._last_ns = row, until_ns
        return row

    def _add_collective(self, collective: CapturedCollective, enqueued_ns: int, end_ns: int, launch: int) -> int:
        start_ns = max(enqueued_ns, self._link_ns)
        end_ns = max(end_ns, start_ns)
        kind = collective.name.rpartition(":")[2]
        row = self.builder.add(
            collective.name, EventKind.COLLECTIVE, self._link, start_ns, end_ns - start_ns,
            collective=kind, bytes=None if collective.bytes < 0 else collective.bytes,
            bucket=None if collective.bucket < 0 else collective.bucket,
            group_name="default" if self._grouped else None, group_sequence=self._sequence,
        )  # fmt: skip
        self.dependencies.append((launch, row))
        if self._link_row >= 0:
            self.dependencies.append((self._link_row, row))
        self._link_row, self._link_ns = row, end_ns
        self._sequence += 1
        return row


def _blocks(step: CapturedStep, collective: CapturedCollective) -> bool:
    """Whether the training thread does nothing until the collective's end: DDP's broadcasts of buffers in forward."""
    return any(
        span.name == FORWARD and span.start_ns <= collective.start_ns < span.end_ns and collective.bucket < 0
        for span in step.spans
    )


def _moments(step: CapturedStep, ends: list[int]) -> list[_Moment]:
    """The instants at which the training thread went over to something else, in time order."""
    moments = list(_span_moments(step, ends))
    for gradient in step.gradients:
        moments.append(_Moment(gradient.at_ns, "backward of ", parameter=gradient.parameter))
    for place, collective in enumerate(step.collectives):
        moments.append(_Moment(collective.start_ns, LAUNCH + collective.name, collective=place))
        if collective.bucket < 0 and _blocks(step, collective):
            moments.append(_Moment(ends[place], f"wait for {collective.name}", EventKind.WAIT, collective=place))
    moments.append(_Moment(step.end_ns, LOOP))
    return sorted(moments, key=lambda moment: moment.at_ns)


def _span_moments(step: CapturedStep, ends: list[int]) -> Iterator[_Moment]:
    for span in step.spans:
        if span.name != WAIT:
            yield _Moment(span.start_ns, LOOP)
            yield _Moment(span.end_ns, span.name)
            continue
        yield _Moment(span.start_ns, BACKWARD_TAIL)
        launched = [place for place, each in enumerate(step.collectives) if each.start_ns <= span.start_ns]
        if launched:
            # A worker may close a collective's span after it has let the waiting thread go.
            until_ns = min(max(ends[launched[-1]], span.start_ns), span.end_ns)
            yield _Moment(until_ns, WAIT, EventKind.WAIT, collective=launched[-1])
        yield _Moment(span.end_ns, COPY_OUT)
