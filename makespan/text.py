"""Text from strangers, such as names in traces and bytes in file names, as it may be shown, quoted and encoded."""

from __future__ import annotations

from typing import Any, Final

BRIEF: Final = 100
"""Longest quotation in a message, in characters."""


def literal(text: str) -> str:
    r"""`text` as it may be shown: what would move a terminal's cursor, change its colours or break it is replaced.

    >>> literal("café \x1b[31m")
    'café �[31m'
    """
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def one_line(text: str) -> str:
    """`text` as one line that may be shown."""
    return literal(" ".join(text.splitlines()))


def sound(text: str) -> str:
    r"""`text` as UTF-8 can hold it: half surrogates, from damaged names or undecodable bytes, become backslash escapes.

    Two texts that differ still do afterwards, as they would not with replacement characters.

    >>> sound("gpu \udcff")
    'gpu \\udcff'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def cut(text: str, longest: int = BRIEF) -> str:
    """The beginning of `text`, so that a message stays a sentence.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def brief(value: object) -> str:
    """`value` as a message quotes it: as Python writes it, cut short.

    >>> brief("5 GB"), brief(10**5000)
    ("'5 GB'", 'an integer too long to print')
    """
    try:
        return cut(repr(value))
    except (ValueError, RecursionError):
        # Python prints integers of a few thousand digits and values nested a thousand deep, not more.
        return "an integer too long to print" if isinstance(value, int) else "a value too deep to print"


def encode_json(value: Any) -> bytes:
    """`value`, of plain types, as JSON in UTF-8; text that UTF-8 can't hold becomes `sound`."""
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sounded(value))


def _sounded(value: Any) -> Any:
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, dict):
        return {_sounded(key): _sounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sounded(item) for item in value]
    return value
