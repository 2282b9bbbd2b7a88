"""Enqueued collectives: which host call put a collective on a worker thread (gloo and other host back ends).

The profiler records the call (`c10d::allreduce_`) on the thread that made it and the span of the work
(`gloo:all_reduce`) on the thread that did it, and no number that joins them. Back ends start their work in the
order of the calls, so the k-th call of a kind belongs to the k-th span of that kind.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from makespan.trace import NONE, EventKind, EventTable

_CALL: Final = re.compile(r"^c10d::_?([a-z_]+?)_?$")
_SPAN: Final = re.compile(r"^[a-z]+:([a-z_]+)$")


def find_enqueuing_calls(events: EventTable, host: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n,) int32: for each collective span on a host thread the call that enqueued it, else -1.

    A span that began before every call not yet matched was enqueued before the recording and stays unmatched.
    """
    enqueuing = np.full(len(events), NONE, np.int32)
    spans = host[events.kind[host] == EventKind.COLLECTIVE]
    if not len(spans):
        return enqueuing
    calls_of: dict[str, list[int]] = {}
    stems = [_stem(_CALL, name) for name in events.names]
    calls = host[events.kind[host] == EventKind.CPU_OP]
    calls = calls[np.fromiter((stem is not None for stem in stems), np.bool_, len(stems))[events.name[calls]]]
    for call in calls[np.argsort(events.start_ns[calls], kind="stable")]:
        calls_of.setdefault(stems[events.name[call]] or "", []).append(int(call))
    taken = dict.fromkeys(calls_of, 0)
    for span in spans[np.argsort(events.start_ns[spans], kind="stable")]:
        stem = _stem(_SPAN, events.name_of(int(span))) or ""
        waiting = calls_of.get(stem, [])
        place = taken.get(stem, 0)
        if place < len(waiting) and events.start_ns[waiting[place]] <= events.start_ns[span]:
            enqueuing[span] = waiting[place]
            taken[stem] = place + 1
    return enqueuing


def _stem(pattern: re.Pattern[str], name: str) -> str | None:
    """A collective's name without prefix, underscores and "base": the two sides spell it differently."""
    match = pattern.match(name)
    return None if match is None else match[1].replace("_", "").removesuffix("base")
