"""Chrome JSON trace events of any size, in bounded memory: pieces of whole events, decoded into typed structs."""

from __future__ import annotations

import gc
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar

import msgspec

from makespan.simulator.chrome.repair import mend
from makespan.simulator.chrome.rescue import EVENT_OPENS, SEVERAL_DUMPS, STRAY_BYTES, TRUNCATED, rescue
from makespan.simulator.chrome.times import nanoseconds
from makespan.simulator.reading.json_window import JsonWindow
from makespan.simulator.reading.sources import Source, read_pieces, report
from makespan.trace import Diagnostics

READ_BYTES: Final = 1 << 18
"""Small enough for a piece and its events to stay in a core's cache, which halves the time of decoding."""
LARGEST_BYTES: Final = 1 << 26
"""An event, or a member beside the event array, that is larger is left out."""

OWN_TIMELINE: Final = re.compile(rb'\s*\{\s*"makespan"\s*:\s*\{')
"""How the timelines begin that Makespan itself exports."""
NO_OPENING: Final = "no opening bracket"
NO_CLOSING: Final = "no closing bracket"
OTHER_NAME: Final = "events under another name than traceEvents"
TOO_LARGE: Final = "event or member too large"
BAD_MEMBER: Final = "member beside the events that can't be read"

_BOUNDARY: Final = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|bp)"\s*:)')
_EVENTS_MEMBER: Final = re.compile(rb'traceEvents"\s*:\s*\[')
_EVENTS: Final = re.compile(rb'\[\s*\{[^{}]*"ph"\s*:')

EventT = TypeVar("EventT", bound=msgspec.Struct)


class ChromeEvent(msgspec.Struct, gc=False):
    """One trace event in its own spelling; `args` is the plain dictionary.

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
        return nanoseconds(bytes(self.ts))

    @property
    def duration_ns(self) -> int | None:
        """Exact duration, for complete events."""
        return nanoseconds(bytes(self.dur))


@dataclass(frozen=True, slots=True)
class Chunk(Generic[EventT]):
    """Some events in file order; `text` is the JSON array that they were decoded from, `first` their first number."""

    events: list[EventT]
    text: bytes
    first: int


@contextmanager
def collector_paused() -> Generator[None]:
    """Without garbage collection: decoded events hold no cycles, and looking for some costs more than decoding."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class EventStream(Generic[EventT]):
    """Iterates over the events of a source as chunks of `event_type`, in file order.

    `metadata` holds every top-level member besides the event array (distributedInfo, baseTimeNanoseconds,
    deviceProperties, ...), also those after the array: it is complete once the iteration is over. Damage is
    repaired event by event and reported; a valid file is decoded as it stands.
    """

    def __init__(self, source: Source, diagnostics: Diagnostics, strict: bool, event_type: type[EventT]) -> None:
        self.metadata: dict[str, Any] = {}
        self._source, self._diagnostics, self._strict = source, diagnostics, strict
        self._decode_one = msgspec.json.Decoder(event_type).decode
        self._decode_many = msgspec.json.Decoder(GenericAlias(list, (event_type,))).decode
        self._window = JsonWindow(read_pieces(source, diagnostics, strict, READ_BYTES))
        self._count = 0
        self._arrays = 0

    def __iter__(self) -> Iterator[Chunk[EventT]]:
        """Chunks from all dumps that the file holds."""
        window = self._window
        if window.peek() == b"\xef":  # a byte order mark
            window.position += 3
        while mark := window.peek():
            if mark == b"[":
                window.position += 1
                yield from self._array()
            elif mark == b"{" and self._begins_event():
                self._tell(NO_OPENING)
                yield from self._array()
            elif mark in (b"{", b'"'):
                window.position += mark == b"{"
                yield from self._members()
            else:
                if mark not in (b",", b"]", b"}"):
                    self._tell(STRAY_BYTES)
                window.position += 1

    def _begins_event(self) -> bool:
        """Whether the top-level object is itself an event: the middle of a dump, without its header."""
        self._window.fill(READ_BYTES)
        text = self._window.buffer[self._window.position :]
        return EVENT_OPENS.match(text) is not None and b'"ph"' in text.partition(b'"traceEvents"')[0]

    def _members(self) -> Iterator[Chunk[EventT]]:
        """The members of the top-level object, from inside its brace on."""
        window = self._window
        while mark := window.peek():
            if mark in (b",", b"}"):
                window.position += 1
                if mark == b"}":
                    return
                continue
            key = window.take_value(LARGEST_BYTES) if mark == b'"' else None
            if key is not None and window.peek() == b":":
                window.position += 1
            if key is not None and window.peek() == b"[" and self._holds_events(key):
                window.position += 1
                yield from self._array()
                continue
            value = window.take_value(LARGEST_BYTES) if key is not None else None
            if key is not None and value is not None:
                self._keep_member(key.strip(b'"').decode("utf-8", "replace"), value)
                continue
            self._tell(BAD_MEMBER)
            if window.skip_past(_EVENTS_MEMBER):
                yield from self._array()
        self._tell_end()

    def _holds_events(self, key: bytes) -> bool:
        """Whether the array that comes next is the event array, even where damage has changed its name."""
        if key != b'"traceEvents"' and _EVENTS.match(self._window.buffer, self._window.position):
            self._tell(OTHER_NAME)
            return True
        return key == b'"traceEvents"'

    def _keep_member(self, key: str, value: bytes) -> None:
        try:
            self.metadata[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            mended, reasons = mend(value)
            try:
                self.metadata[key] = msgspec.json.decode(mended)
            except (msgspec.DecodeError, RecursionError):
                reasons = [BAD_MEMBER]
            for reason in reasons:
                report(self._diagnostics, self._strict, reason, f"{self._source.name}:{key}")

    def _array(self) -> Iterator[Chunk[EventT]]:
        """The events up to the closing bracket, in pieces; the position is behind the opening one."""
        window = self._window
        self._arrays += 1
        if self._arrays > 1:
            self._tell(SEVERAL_DUMPS)
        comma_due = False
        while True:
            cut = self._last_boundary()
            if cut is None and not window.ended and len(window) < READ_BYTES:
                window.more()
                continue
            if cut is not None and not comma_due:
                end, following = cut
                text = window.as_array(end)
                events = self._decode(text)
                if events is not None:
                    window.position = following
                    yield Chunk(events, text, self._count)
                    self._count += len(events)
                    window.more()
                    continue
            found = rescue(bytes(window.buffer), window.position, comma_due, window.ended, self._decode_one, self._tell)
            window.position, comma_due = found.position, found.comma_due
            text = b"[" + b",".join(found.texts) + b"]"
            events = self._decode(text)
            if events:
                yield Chunk(events, text, self._count)
                self._count += len(events)
            if found.closed:
                return
            if window.ended:
                self._tell_end()
                return
            if len(window) > LARGEST_BYTES:
                self._tell(TOO_LARGE)
                window.skip_past(_BOUNDARY)
                comma_due = False
            else:
                window.more()

    def _decode(self, text: bytes) -> list[EventT] | None:
        try:
            return self._decode_many(text)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _last_boundary(self) -> tuple[int, int] | None:
        """The end of the last event that another one follows in the window, and where that one starts."""
        buffer, position = self._window.buffer, self._window.position
        place = len(buffer)
        for _ in range(256):
            place = buffer.rfind(b"{", position + 1, place)
            if place < 0:
                return None
            first = max(position, place - 64)
            before = buffer[first:place].rstrip()
            if before.endswith(b",") and EVENT_OPENS.match(buffer, place):
                event = before[:-1].rstrip()
                if event.endswith(b"}"):
                    return first + len(event), place
        return None

    def _tell_end(self) -> None:
        """Report, once, that the file ends before its brackets do."""
        if not {TRUNCATED, NO_CLOSING} & self._diagnostics.counts.keys():
            self._tell(NO_CLOSING)

    def _tell(self, reason: str, after: int = 0) -> None:
        report(self._diagnostics, self._strict, reason, f"{self._source.name}:event {self._count + after}")


class ChromeReader:
    """Iterates over the events of a source one by one, for formats whose files are small.

    `metadata` as in EventStream, complete once the iteration is over.
    """

    def __init__(self, source: Source, diagnostics: Diagnostics, strict: bool) -> None:
        self._stream = EventStream(source, diagnostics, strict, ChromeEvent)

    @property
    def metadata(self) -> dict[str, Any]:
        """The top-level members besides the event array."""
        return self._stream.metadata

    def __iter__(self) -> Iterator[ChromeEvent]:
        for chunk in self._stream:
            yield from chunk.events
