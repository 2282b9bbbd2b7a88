"""Repair of one damaged JSON object: escapes, control bytes, stray quotes, NaN; as text in, valid JSON text out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isinf
from typing import Final

TOKEN: Final = re.compile(rb'[{}\[\]]|"[^"\\]*(?:\\.[^"\\]*)*"|"', re.DOTALL)
"""Everything that decides where an object ends; a lone quote is a string without an end."""

_NOT_A_NUMBER: Final = re.compile(rb"-?(?:NaN|nan|Infinity|inf)\b")
_NUMBER: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_VALID_ESCAPE: Final = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_BACKSLASHES: Final = re.compile(rb'\\\\|\\"|\\')
# What may follow the quote that ends a key or a value of an object, or an item of an array.
_AFTER_IN_OBJECT: Final = re.compile(
    rb'\s*(?::|,\s*"[^"\\]*(?:\\.[^"\\]*)*"\s*:|,?\s*\}\s*(?:[,}\]]|$)|"[^"\\]*"\s*:\s*["\d\[{tfn-])', re.DOTALL
)
_AFTER_IN_ARRAY: Final = re.compile(rb'\s*(?:\]|,\s*["\d\[{tfnN-])')
_STRING_STOP: Final = re.compile(rb'["\\]')
_OUTSIDE_STOP: Final = re.compile(rb'["{}\[\],]')

BAD_UTF8: Final = "invalid UTF-8 in a string"
BAD_ESCAPE: Final = "invalid escape in a string"
CONTROL_BYTE: Final = "control byte in a string"
STRAY_QUOTE: Final = "unescaped quote in a string"
NOT_A_NUMBER: Final = "NaN or infinite number"
MISSING_COMMA: Final = "missing comma"
EXTRA_COMMA: Final = "comma too many"


def value_end(text: bytes | bytearray, start: int, stop: int | None = None) -> int:
    """Where the object, array or string that begins at `start` ends (one past), -1 where not before `stop`.

    No recursion: nesting costs a counter. Right only for text whose strings are well formed.
    """
    depth = 0
    for token in TOKEN.finditer(text, start, len(text) if stop is None else stop):
        first = text[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif token.end() - token.start() == 1:
            return -1
        if depth <= 0:
            return token.end()
    return -1


def mend(text: bytes) -> tuple[bytes, list[str]]:
    """Valid JSON text for one damaged object, as far as one pass can tell, and the reasons for each change.

    Strings are followed leniently: a quote ends one only where what follows can follow a string.
    """
    reasons: list[str] = []
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        reasons.append(BAD_UTF8)
    return b"".join(_mended(text, reasons)), list(dict.fromkeys(reasons))


def _mended(text: bytes, reasons: list[str]) -> Iterator[bytes]:
    """The mended pieces of `text`, strings and what lies between them in turn."""
    nesting = bytearray()
    position = 0
    value_done = False
    while position < len(text):
        stop = _OUTSIDE_STOP.search(text, position)
        between = text[position : stop.start() if stop else len(text)]
        if between.strip():
            value_done = True
        yield _mend_numbers(between, reasons)
        if stop is None:
            return
        position = stop.end()
        mark = stop[0]
        if mark == b'"':
            if value_done:
                reasons.append(MISSING_COMMA)
                yield b","
            content, position = _string_content(text, position, in_array=nesting[-1:] == b"[", reasons=reasons)
            yield b'"' + content + b'"'
            value_done = not re.match(rb"\s*:", text[position : position + 64])
            if not value_done:
                colon = text.index(b":", position) + 1
                yield text[position:colon]
                position = colon
            continue
        if mark == b",":
            if re.match(rb"\s*[}\]]", text[position : position + 256]) or not value_done:
                reasons.append(EXTRA_COMMA)
                continue
            value_done = False
        elif mark in b"{[":
            nesting += mark
            value_done = False
        else:
            nesting = nesting[:-1]
            value_done = True
        yield mark


def _string_content(text: bytes, start: int, in_array: bool, reasons: list[str]) -> tuple[bytes, int]:
    """The mended inside of the string whose opening quote lies before `start`, and the position after it."""
    may_follow = _AFTER_IN_ARRAY if in_array else _AFTER_IN_OBJECT
    parts: list[bytes] = []
    position = start
    while True:
        stop = _STRING_STOP.search(text, position)
        if stop is None:
            parts.append(text[position:])
            position = len(text)
            break
        parts.append(text[position : stop.start()])
        position = stop.end()
        if stop[0] == b"\\":
            parts.append(b"\\" + text[position : position + 1])
            position += 1
        elif may_follow.match(text, position):
            break
        else:
            reasons.append(STRAY_QUOTE)
            parts.append(b'\\"')
    return _mend_string(b"".join(parts), reasons), position


def _mend_string(content: bytes, reasons: list[str]) -> bytes:
    if b"\\" in content and (_VALID_ESCAPE.sub(b"", content).find(b"\\") >= 0 or _has_lone_surrogate(content)):
        # One bad escape means that nobody escaped anything: a Windows path's \n and \t are no control bytes.
        content = _BACKSLASHES.sub(lambda found: found[0] if len(found[0]) == 2 else b"\\\\", content)
        reasons.append(BAD_ESCAPE)
    if _CONTROL.search(content):
        content = _CONTROL.sub(lambda found: b"\\u%04x" % found[0][0], content)
        reasons.append(CONTROL_BYTE)
    return content


def _has_lone_surrogate(content: bytes) -> bool:
    codes = [int(found[0][2:], 16) for found in _SURROGATE.finditer(content)]
    pairs = zip(codes[::2], codes[1::2], strict=False)
    return len(codes) % 2 == 1 or any(high >= 0xDC00 or low < 0xDC00 for high, low in pairs)


def _mend_numbers(between: bytes, reasons: list[str]) -> bytes:
    if not between.strip(b" \t\r\n"):
        return between
    mended = _NOT_A_NUMBER.sub(b"null", between)
    mended = _NUMBER.sub(lambda found: b"null" if isinf(float(found[0])) else found[0], mended)
    if mended != between:
        reasons.append(NOT_A_NUMBER)
    return mended
