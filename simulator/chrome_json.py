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

from makespan.simulator.chrome_repair import mend, value_end
from makespan.simulator.chrome_rescue import EVENT_OPENS, SEVERAL_DUMPS, STRAY_BYTES, TRUNCATED, rescue
from makespan.simulator.chrome_times import nanoseconds
from makespan.simulator.sources import Source, read_pieces, report
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
_SPACE: Final = re.compile(rb"\s*")
_WORD: Final = re.compile(rb"[^,{}\[\]\s]*")

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
        self._pieces = read_pieces(source, diagnostics, strict, READ_BYTES)
        self._buffer = b""
        self._position = 0
        self._ended = False
        self._count = 0
        self._arrays = 0

    def __iter__(self) -> Iterator[Chunk[EventT]]:
        """Chunks from all dumps that the file holds."""
        if self._peek() == b"\xef":  # a byte order mark
            self._position += 3
        while mark := self._peek():
            if mark == b"[":
                self._position += 1
                yield from self._array()
            elif mark == b"{" and self._begins_event():
                self._tell(NO_OPENING)
                yield from self._array()
            elif mark in (b"{", b'"'):
                self._position += mark == b"{"
                yield from self._members()
            else:
                if mark not in (b",", b"]", b"}"):
                    self._tell(STRAY_BYTES)
                self._position += 1

    def _begins_event(self) -> bool:
        """Whether the top-level object is itself an event: the middle of a dump, without its header."""
        while len(self._buffer) - self._position < READ_BYTES and self._more():
            pass
        text = self._buffer[self._position :]
        return EVENT_OPENS.match(text) is not None and b'"ph"' in text.partition(b'"traceEvents"')[0]

    def _members(self) -> Iterator[Chunk[EventT]]:
        """The members of the top-level object, from inside its brace on."""
        while mark := self._peek():
            if mark == b"," or mark == b"}":
                self._position += 1
                if mark == b"}":
                    return
                continue
            key = self._take_value() if mark == b'"' else None
            if key is not None and self._peek() == b":":
                self._position += 1
            if key is not None and self._peek() == b"[" and self._holds_events(key):
                self._position += 1
                yield from self._array()
                continue
            value = self._take_value() if key is not None else None
            if key is not None and value is not None:
                self._keep_member(key.strip(b'"').decode("utf-8", "replace"), value)
                continue
            self._tell(BAD_MEMBER)
            if self._skip_past(_EVENTS_MEMBER):
                yield from self._array()
        self._tell_end()

    def _holds_events(self, key: bytes) -> bool:
        """Whether the array that comes next is the event array, even where damage has changed its name."""
        if key != b'"traceEvents"' and _EVENTS.match(self._buffer, self._position):
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

    def _take_value(self) -> bytes | None:
        """The text of the value that comes next, None where it does not end."""
        self._peek()
        while True:
            if self._buffer[self._position : self._position + 1] in (b"{", b"[", b'"'):
                end = value_end(self._buffer, self._position)
            else:
                word = _WORD.match(self._buffer, self._position)
                end = word.end() if word and word.end() < len(self._buffer) else -1
            if end > 0:
                value, self._position = self._buffer[self._position : end], end
                return value
            wanted = 2 * (len(self._buffer) - self._position)
            if self._ended or wanted > 2 * LARGEST_BYTES:
                return None
            while len(self._buffer) - self._position < wanted and self._more():
                pass

    def _array(self) -> Iterator[Chunk[EventT]]:
        """The events up to the closing bracket, in pieces; the position is behind the opening one."""
        self._arrays += 1
        if self._arrays > 1:
            self._tell(SEVERAL_DUMPS)
        comma_due = False
        while True:
            cut = self._last_boundary()
            if cut is None and not self._ended and len(self._buffer) - self._position < READ_BYTES:
                self._more()
                continue
            if cut is not None and not comma_due:
                text = b"[" + self._buffer[self._position : cut[0]] + b"]"
                events = self._decode(text)
                if events is not None:
                    self._position = cut[1]
                    yield Chunk(events, text, self._count)
                    self._count += len(events)
                    self._more()
                    continue
            found = rescue(self._buffer, self._position, comma_due, self._ended, self._decode_one, self._tell)
            self._position, comma_due = found.position, found.comma_due
            text = b"[" + b",".join(found.texts) + b"]"
            events = self._decode(text)
            if events:
                yield Chunk(events, text, self._count)
                self._count += len(events)
            if found.closed:
                return
            if self._ended:
                self._tell_end()
                return
            if len(self._buffer) - self._position > LARGEST_BYTES:
                self._tell(TOO_LARGE)
                self._skip_past(_BOUNDARY)
                comma_due = False
            else:
                self._more()

    def _decode(self, text: bytes) -> list[EventT] | None:
        try:
            return self._decode_many(text)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _last_boundary(self) -> tuple[int, int] | None:
        """The end of the last event that another one follows in the buffer, and where that one starts."""
        buffer = self._buffer
        place = len(buffer)
        for _ in range(256):
            place = buffer.rfind(b"{", self._position + 1, place)
            if place < 0:
                return None
            first = max(self._position, place - 64)
            before = buffer[first:place].rstrip()
            if before.endswith(b",") and EVENT_OPENS.match(buffer, place):
                event = before[:-1].rstrip()
                if event.endswith(b"}"):
                    return first + len(event), place
        return None

    def _skip_past(self, mark: re.Pattern[bytes]) -> bool:
        """Move behind the next match of `mark`; to the end, and False, where there is none."""
        while True:
            found = mark.search(self._buffer, self._position)
            if found:
                self._position = found.end()
                return True
            self._position = max(self._position, len(self._buffer) - 256)
            if not self._more():
                self._position = len(self._buffer)
                return False

    def _peek(self) -> bytes:
        """The next byte that is no space, b"" at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._position)
            self._position = space.end() if space else self._position
            if self._position < len(self._buffer) or not self._more():
                return self._buffer[self._position : self._position + 1]

    def _more(self) -> bool:
        """Read on; what lies before the position is forgotten."""
        piece = next(self._pieces, b"")
        self._ended = not piece
        self._buffer = self._buffer[self._position :] + piece
        self._position = 0
        return not self._ended

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
