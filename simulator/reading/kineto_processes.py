"""Which process each event of a profile belongs to, where a file merges several whose correlation ids repeat."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.columns import ChromeColumns


def number_processes(
    columns: ChromeColumns,
    calls: NDArray[np.int64],
    works: NDArray[np.int64],
    correlation: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(p,) a process number for each place: all 0 unless several processes use the same correlation ids.

    `calls`, `works`: rows of host calls and device events that carry a `correlation` (n,). A device belongs to the
    process whose calls precede most of its events with the same id. Among equals, and for places without such events,
    to the one whose calls lie nearest in the file where processes follow one another, else in order of appearance.
    """
    pids: dict[str, int] = {}
    pid_of_place = np.array([pids.setdefault(place[0], len(pids)) for place in columns.places], np.int64)
    pid_of_row = pid_of_place[columns.place]
    distinct, first = np.unique(pid_of_row[calls], return_index=True)
    launching = distinct[np.argsort(first)].tolist()
    if len(launching) < 2 or not _repeats(correlation[calls], pid_of_row[calls]):
        return np.zeros(len(columns.places), np.int64)
    numbers = [columns.number[calls[pid_of_row[calls] == pid]] for pid in launching]
    ordered = sorted((int(some.min()), int(some.max())) for some in numbers)
    one_after_another = all(former[1] < latter[0] for former, latter in pairwise(ordered))
    others = [pid for pid in dict.fromkeys(pid_of_row.tolist()) if pid not in launching]
    owner = np.zeros(len(pids), np.int64)
    owner[launching] = np.arange(len(launching))
    for place, pid in enumerate(others):
        if one_after_another:
            own = columns.number[pid_of_row == pid].mean()
            distance = np.array([abs(own - some.mean()) for some in numbers])
        else:
            distance = np.abs(np.arange(len(launching)) - place * len(launching) // len(others))
        matches = _launched(columns, calls, works[pid_of_row[works] == pid], correlation, pid_of_row, launching)
        owner[pid] = np.lexsort((distance, -matches))[0]
    return owner[pid_of_place]


def _repeats(correlation: NDArray[np.int64], pid: NDArray[np.int64]) -> bool:
    """Whether two processes use the same id."""
    order = np.lexsort((pid, correlation))
    same_id = correlation[order[1:]] == correlation[order[:-1]]
    return bool(np.any(same_id & (pid[order[1:]] != pid[order[:-1]])))


def _launched(
    columns: ChromeColumns,
    calls: NDArray[np.int64],
    works: NDArray[np.int64],
    correlation: NDArray[np.int64],
    pid_of_row: NDArray[np.int64],
    launching: list[int],
) -> NDArray[np.int64]:
    """(k,) for each launching process, how many of `works` start after a call of that process with the same id."""
    counts = np.zeros(len(launching), np.int64)
    for at, pid in enumerate(launching):
        own = calls[pid_of_row[calls] == pid]
        own = own[np.argsort(correlation[own], kind="stable")]
        found = np.minimum(np.searchsorted(correlation[own], correlation[works]), len(own) - 1)
        same = correlation[own[found]] == correlation[works]
        counts[at] = np.count_nonzero(same & (columns.start_ns[own[found]] <= columns.start_ns[works]))
    return counts
