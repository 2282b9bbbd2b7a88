"""Requests: what communication models are asked and what they answer, checked in one way for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from makespan.communication_table import COLLECTIVES, HOST_WORK
from makespan.errors import PredictionError
from makespan.resolve import did_you_mean
from makespan.units import TIME_LIMIT_NS, format_bytes

_Answer = TypeVar("_Answer")


def check_transfer(collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int]) -> NDArray[np.float64]:
    """The (k,) sizes of a request that makes sense, as float64.

    Raises PredictionError for an unknown collective, ranks that are none or repeat, a send among other than two, and
    sizes below zero.
    """
    if collective not in COLLECTIVES:
        raise PredictionError(f"unknown collective {collective!r}{did_you_mean(collective, COLLECTIVES)}")
    if len(ranks) == 0 or len(set(ranks)) < len(ranks):
        raise PredictionError(f"{collective} among {len(ranks)} ranks: expected one or more, each once")
    if collective == "send" and len(ranks) != 2:
        raise PredictionError(f"send among {len(ranks)} ranks: expected two, the sender and the receiver")
    return check_sizes(collective, size_bytes)


def check_sizes(operation: str, size_bytes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The (k,) sizes as float64; raises PredictionError where one is below zero."""
    sizes = np.asarray(size_bytes, np.float64)
    if sizes.size and sizes.min() < 0:
        raise PredictionError(f"{operation} of {sizes.min():.0f} bytes: expected no size below 0")
    return sizes


def refuse_beyond(operation: str, sizes: NDArray[np.float64], limit_bytes: float, source: str) -> None:
    """Raise PredictionError where a size is beyond `limit_bytes`, which `source` explains."""
    if sizes.size and sizes.max() > limit_bytes:
        raise PredictionError(
            f"{operation} of {format_bytes(sizes.max())} ({sizes.max():.0f} bytes) is out of range: "
            f"{source} reaches from 0 to {limit_bytes:.0f} bytes; measure larger sizes"
        )


def find_host_work(work: str, known: Mapping[str, _Answer], source: str) -> _Answer | None:
    """What is `known` of a host work; None, which stands for no time, where only its counterpart was measured.

    A backend that reduces in place has a launch and no copy, so the one without the other is an answer. Neither
    is none, nor is a cast that nobody measured: these raise PredictionError.
    """
    if work not in HOST_WORK:
        raise PredictionError(f"unknown host work {work!r}{did_you_mean(work, HOST_WORK)}")
    if work in known:
        return known[work]
    if work == "cast" or not ("launch" in known or "copy" in known):
        raise PredictionError(f"{source} tells nothing of host work {work!r}; measure it with the collectives")
    return None


def whole_ns(operation: str, times_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """The (k,) times as whole nanoseconds; raises PredictionError beyond what a replay can hold."""
    if times_ns.size and not times_ns.max() < TIME_LIMIT_NS:
        raise PredictionError(f"{operation} would take more than {TIME_LIMIT_NS} ns; expected smaller sizes")
    return np.rint(times_ns).astype(np.int64)
