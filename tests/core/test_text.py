"""Text from strangers: what is shown can't move a cursor, what is quoted is short, what is encoded is UTF-8."""

from __future__ import annotations

import doctest
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from makespan import text as text_module
from makespan.text import BRIEF, brief, cut, encode_json, literal, one_line, sound

ANY_TEXT = st.text(st.characters(), max_size=40) | st.binary(max_size=40).map(
    lambda b: b.decode("utf-8", "surrogateescape")
)
ODD = ("\udcff", "\udcfe")


def nested(depth: int) -> Any:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def test_examples_in_the_docstrings_are_true() -> None:
    result = doctest.testmod(text_module)
    assert (result.failed, result.attempted) == (0, 4)


@given(ANY_TEXT)
def test_any_text_can_be_shown_and_encoded(text: str) -> None:
    assert one_line(text).isprintable()
    assert literal(text).isprintable()
    assert len(literal(text)) == len(text)
    literal(text).encode()
    assert sound(text).encode().decode() == sound(text)


@given(ANY_TEXT, ANY_TEXT)
def test_texts_that_differ_still_do(one: str, other: str) -> None:
    if "\\" not in one + other:
        assert (sound(one) == sound(other)) == (one == other)


def test_a_quotation_is_short_whatever_is_quoted() -> None:
    for value in ("x" * 10**6, 10**5000, -(10**5000), [10**5000], list(range(10**5)), nested(10**5)):
        assert len(brief(value)) <= BRIEF


def test_short_values_are_quoted_whole() -> None:
    assert (brief("a\n"), brief(5), brief([1, "x"]), brief("\udcff")) == (r"'a\n'", "5", "[1, 'x']", r"'\udcff'")
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"


def test_json_of_what_utf8_cannot_hold() -> None:
    value = {"notes": {ODD[0]: 1, ODD[1]: 2}, "names": ("é", "half \ud800"), "none": None, "n": 1.5}
    told = json.loads(encode_json(value))
    assert told == {"notes": {"\\udcff": 1, "\\udcfe": 2}, "names": ["é", "half \\ud800"], "none": None, "n": 1.5}
    assert encode_json({"a": ["é"]}) == '{"a":["é"]}'.encode()
