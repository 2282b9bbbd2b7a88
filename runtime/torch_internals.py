"""Torch internals: all that capture needs of torch beyond its public interface, in one place to mend it."""
# pyright: reportPrivateUsage=false, reportCallIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch._C import _autograd
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

queue_callback: Final[Callable[[Callable[[], None]], None]] = Variable._execution_engine.queue_callback
"""Run a function when the backward pass at hand is through, after those queued before."""


def profiler_is_running() -> bool:
    """Whether any profiler records this process."""
    return bool(_autograd._profiler_enabled())


def start_user_scopes() -> None:
    """Start the profiler for user scopes only; its public interface offers no choice of scopes."""
    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
    _autograd._prepare_profiler(config, {ProfilerActivity.CPU})
    _autograd._enable_profiler(config, {ProfilerActivity.CPU}, {RecordScope.USER_SCOPE})


def stop_profiler() -> list[Any]:
    """Stop it and return its events, with `name()`, `start_ns()` since 1970 and `duration_ns()`."""
    return list(_autograd._disable_profiler().events())


def data_parallel_facts(model: DistributedDataParallel) -> dict[str, Any]:
    """What DDP tells of itself: bucket layout and settings."""
    return dict(model._get_ddp_logging_data())
