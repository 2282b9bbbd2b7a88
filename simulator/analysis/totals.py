"""Totals: exact integer sums and counts by code, as small tables for people."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def sum_by(codes: NDArray[Any], values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """(count,) int64: the sum of `values` (k,) for each of the `codes` (k,); exact, unlike bincount's floats."""
    total = np.zeros(count, np.int64)
    np.add.at(total, codes, values)
    return total


def share_table(
    labels: dict[str, list[str]], counts: NDArray[Any], time_ns: NDArray[Any], whole_ns: int
) -> pd.DataFrame:
    """One row for each label: the label columns, `count`, `time_ns` and `share_pct` of `whole_ns`, longest first."""
    frame = pd.DataFrame({**labels, "count": counts, "time_ns": time_ns})
    frame["share_pct"] = 100.0 * frame["time_ns"] / max(whole_ns, 1)
    return frame.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)
