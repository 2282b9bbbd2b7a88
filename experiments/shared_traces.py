"""Where the public traces lie that experiments measure against, and how results are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REAL = Path(__file__).resolve().parents[2] / "shared" / "traces" / "real"
"""Traces of other people's jobs, beside the checkout; they are not part of this project."""


@dataclass(frozen=True, slots=True)
class Row:
    """One claim and its measurement: `published` and `ours` in the unit that `claim` names."""

    claim: str
    published: str
    ours: float | str
    error: str
    how: str


def real_trace(name: str) -> Path:
    """The trace `name`, such as "hta/ns_resolution*"; exits with a sentence where it is not there."""
    return real_traces(name)[0]


def real_traces(pattern: str) -> list[Path]:
    """All traces that fit `pattern`, in order; exits with a sentence where there are none."""
    found = sorted(REAL.glob(pattern))
    if not found:
        sys.exit(f"{pattern}: not found; put the public traces under shared/traces/real beside the checkout")
    return found


def print_rows(rows: Sequence[Row]) -> None:
    """As a table, or with `--json` on the command line as JSON."""
    if "--json" in sys.argv[1:]:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    heads = ("claim", "published", "ours", "error", "how measured")
    cells = [heads, *((row.claim, row.published, _short(row.ours), row.error, row.how) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
