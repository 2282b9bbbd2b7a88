"""Lanes on which events may cross, spread over further lanes until those of each nest or follow one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from makespan.trace import EventTable


def spread_crossing(events: EventTable, spreads: NDArray[np.bool_], nesting: bool = True) -> EventTable:
    """`events` with the crossing ones of the lanes in `spreads` (lanes,) on further lanes of the same process.

    Events cross when they overlap and neither holds the other; where `nesting` is False every overlap counts. Each
    goes to the first of its lane's lanes on which it fits, in the order of starts, the longer of equal ones first.
    """
    further = _places(events, spreads, nesting)
    if not further.any():
        return events
    key = events.lane.astype(np.int64) * (int(further.max()) + 1) + further
    distinct, inverse = np.unique(key, return_inverse=True)
    lanes = list(events.lanes)
    number = np.empty(len(distinct), np.int32)
    for place, each in enumerate(distinct.tolist()):
        lane, beside = divmod(each, int(further.max()) + 1)
        number[place] = lane
        if beside:
            number[place] = len(lanes)
            lanes.append(replace(events.lanes[lane], thread=f"{events.lanes[lane].thread} +{beside}"))
    return replace(events, lane=number[inverse], lanes=tuple(lanes))


def _places(events: EventTable, spreads: NDArray[np.bool_], nesting: bool) -> NDArray[np.int64]:
    """(n,) which of its lane's lanes each event goes to."""
    # Numba takes as long to load as ten megabytes of trace, and most traces never come here.
    from makespan.simulator.reading.first_fit import first_fit

    further = np.zeros(len(events), np.int64)
    rows = np.flatnonzero(spreads[events.lane] & (events.duration_ns > 0))
    order = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows], events.lane[rows]))]
    further[order] = first_fit(events.lane[order], events.start_ns[order], events.end_ns[order], nesting)
    return further
