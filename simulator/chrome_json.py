"""Chrome JSON trace events of any size, in bounded memory: pieces of whole events, decoded into typed structs."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from makespan.simulator.sources import Source, read_whole
from makespan.trace import Diagnostics


class ChromeEvent(msgspec.Struct, gc=False):
    """One trace event with its own spelling; `args` is the plain dictionary.

    `ts` and `dur` are raw number text: `start_ns` and `duration_ns` give exact nanoseconds, None where the
    event has none or it is no number. Chrome's unit is always the microsecond, whatever displayTimeUnit says.
    """

    ph: Any = ""
    name: Any = ""
    cat: Any = ""
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    pid: Any = ""
    tid: Any = ""
    id: Any = None
    bp: Any = None
    args: dict[str, Any] | None = None

    @property
    def start_ns(self) -> int | None:
        """Exact start."""
        return nanoseconds(self.ts)

    @property
    def duration_ns(self) -> int | None:
        """Exact duration, for complete events."""
        return nanoseconds(self.dur)


def nanoseconds(text: msgspec.Raw) -> int | None:
    """Exact nanoseconds of a number of microseconds as the file spells it (a number, or a number in quotes)."""
    try:
        value = Decimal(bytes(text).decode().strip('" ')) * 1000
    except (ArithmeticError, ValueError):
        return None
    return int(value.to_integral_value()) if value.is_finite() else None


class ChromeReader:
    """Iterates over the events of a source in file order; `metadata` is complete once it is exhausted.

    `metadata` holds every top-level member besides the event array (distributedInfo, baseTimeNanoseconds,
    deviceProperties, ...), those after the array included. Damage is repaired event by event and reported.
    """

    def __init__(self, source: Source, diagnostics: Diagnostics, strict: bool) -> None:
        self.metadata: dict[str, Any] = {}
        self._source, self._diagnostics, self._strict = source, diagnostics, strict

    def __iter__(self) -> Iterator[ChromeEvent]:
        content = msgspec.json.decode(read_whole(self._source, self._diagnostics, self._strict))
        events = content.pop("traceEvents", []) if isinstance(content, dict) else content
        self.metadata = content if isinstance(content, dict) else {}
        yield from msgspec.json.decode(msgspec.json.encode(events), type=list[ChromeEvent])
