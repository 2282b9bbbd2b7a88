"""The public verbs that run torch jobs: capture, probe, lower. Part of the composition root; loads torch."""

from __future__ import annotations

from makespan.runtime.capture import capture
from makespan.runtime.communication_probe import probe_communication
from makespan.runtime.lower import lower

__all__ = ["capture", "lower", "probe_communication"]
