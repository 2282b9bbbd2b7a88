"""Events one at a time out of text that doesn't decode as a whole: damaged, cut off, or the end of the array."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from makespan.simulator.chrome.repair import EXTRA_COMMA, MISSING_COMMA, mend, value_end

SEVERAL_DUMPS: Final = "several dumps in one file"
TRUNCATED: Final = "file ends inside an event"
UNREADABLE: Final = "event that can't be read"
NO_EVENT: Final = "entry that is no event"
STRAY_BYTES: Final = "stray bytes between events"
ODD_ARGS: Final = "args that are no object"

_KEYS: Final = rb'"(?:ph|name|cat|pid|tid|ts|dur|args|bp)"\s*:'
EVENT_OPENS: Final = re.compile(rb"\{\s*" + _KEYS)
_BOUNDARY: Final = re.compile(rb"\}[\s,]*(?=\{\s*" + _KEYS + rb")")
_ARRAY_END: Final = re.compile(rb"\}[\s,]*(?=\]\s*(?:[,}]|$))")
_HEADER: Final = re.compile(rb'\{\s*"traceEvents"\s*:\s*\[|\[(?=\s*\{)')
_GAP: Final = re.compile(rb"[\s,]*")
_JUNK: Final = re.compile(rb"[^,{\[\]\s\"][^,{\[\]\s]*|[^{]+", re.DOTALL)
_ENDS_TRIED: Final = 3
_DOUBT_BYTES: Final = 1 << 16
"""How far to look for the end of an event that holds what looks like the start of another one."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


@dataclass(slots=True)
class Rescue:
    """What was found: `texts` of whole, valid events up to `position`; `closed` where the array ended there.

    `comma_due`: an event came last, so that a comma has to follow.
    """

    position: int
    comma_due: bool
    texts: list[bytes] = field(default_factory=list[bytes])
    closed: bool = False


def rescue(
    buffer: bytes,
    position: int,
    comma_due: bool,
    at_end: bool,
    decode: Callable[[bytes], object],
    tell: Callable[[str, int], None],
) -> Rescue:
    """Take events from `buffer`, which holds the inside of an event array, from `position` on.

    Stops at the array's end or before an event that more data may complete (none will come where `at_end`).
    `decode` says by raising whether a text is an event; `tell` gets a reason and how many events came before.
    """
    found = Rescue(position, comma_due)
    while True:
        gap = _GAP.match(buffer, found.position)
        begin = gap.end() if gap else found.position
        commas = buffer.count(b",", found.position, begin)
        mark = buffer[begin : begin + 1]
        if not mark:
            found.position, found.comma_due = begin, found.comma_due and commas == 0
            return found
        step = _take(buffer, begin, at_end, decode)
        if step is None:
            return found
        closing = mark == b"]"
        if commas > (found.comma_due and not closing):
            tell(EXTRA_COMMA, len(found.texts))
        elif found.comma_due and not commas and step.text:
            tell(MISSING_COMMA, len(found.texts))
        for reason in step.reasons:
            tell(reason, len(found.texts))
        found.position = step.end
        found.comma_due = step.is_item
        if step.text:
            found.texts.append(step.text)
        if closing:
            found.closed = True
            return found


@dataclass(frozen=True, slots=True)
class _Step:
    """One thing met inside the array: where it ends, what was wrong, the event's text if it is one."""

    end: int
    reasons: tuple[str, ...] = ()
    text: bytes = b""
    is_item: bool = True


def _take(buffer: bytes, begin: int, at_end: bool, decode: Callable[[bytes], object]) -> _Step | None:
    """What begins at `begin`; None where it is cut off and more data may come."""
    mark = buffer[begin : begin + 1]
    if mark == b"]":
        return _Step(begin + 1, is_item=False)
    header = _HEADER.match(buffer, begin)
    if header:
        return _Step(header.end(), (SEVERAL_DUMPS,), is_item=False)
    if mark == b"{":
        return _take_event(buffer, begin, at_end, decode)
    if mark in b'"[':
        end = value_end(buffer, begin)
        if end > 0:
            return _Step(end, (NO_EVENT,))
        if not at_end:
            return None
    junk = _JUNK.match(buffer, begin)
    end = junk.end() if junk else begin + 1
    if end == len(buffer) and not at_end:
        return None
    return _Step(end, (NO_EVENT if _accepts(_decode_raw, buffer[begin:end]) else STRAY_BYTES,))


def _take_event(buffer: bytes, begin: int, at_end: bool, decode: Callable[[bytes], object]) -> _Step | None:
    following = _BOUNDARY.search(buffer, begin + 1)
    next_event = following.start() + 1 if following else len(buffer)
    balanced = value_end(buffer, begin, next_event)
    if balanced > 0 and _accepts(decode, buffer[begin:balanced]):
        return _Step(balanced, (), buffer[begin:balanced])
    for end in _likely_ends(buffer, begin, balanced, at_end):
        text = buffer[begin:end]
        if _accepts(decode, text):
            return _Step(end, (), text)
        mended, reasons = mend(text)
        if _accepts(decode, mended):
            return _Step(end, tuple(reasons), mended)
        mended, more = _with_plain_args(mended)
        if _accepts(decode, mended):
            return _Step(end, (*reasons, *more), mended)
    if balanced < 0 and not at_end and len(buffer) - begin < _DOUBT_BYTES:
        return None
    if following is None and balanced < 0:
        return _Step(len(buffer), (TRUNCATED,)) if at_end else None
    return _Step(next_event if balanced < 0 else balanced, (UNREADABLE,))


def _likely_ends(buffer: bytes, begin: int, balanced: int, at_end: bool) -> Iterator[int]:
    """Where an event that isn't plainly whole may end: its last bracket, before the next ones, the array's end."""
    if balanced > 0:
        yield balanced
    yield from (found.start() + 1 for found in islice(_BOUNDARY.finditer(buffer, begin + 1), _ENDS_TRIED))
    if balanced < 0:
        whole = value_end(buffer, begin, begin + _DOUBT_BYTES)
        if whole > 0:
            yield whole
    if at_end:
        yield from (found.start() + 1 for found in islice(_ARRAY_END.finditer(buffer, begin + 1), _ENDS_TRIED))


def _accepts(decode: Callable[[bytes], object], text: bytes) -> bool:
    try:
        decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _with_plain_args(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """`text` with args replaced by an empty object, for events whose args are a list or a word."""
    try:
        members = _decode_members(text)
    except (msgspec.DecodeError, RecursionError):
        return text, ()
    args = bytes(members.get("args", b"null"))
    members["args"] = msgspec.Raw(b"{}")
    return msgspec.json.encode(members), () if args == b"null" else (ODD_ARGS,)
