import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import source_of

from makespan.errors import TraceError
from makespan.simulator.reading import json_objects
from makespan.simulator.reading.json_objects import ObjectStream, as_integer
from makespan.trace import Diagnostics


class Item(msgspec.Struct):
    id: Any = None
    name: Any = ""
    deps: Any = None


def read(text: str | bytes, strict: bool = False) -> tuple[list[Any], dict[str, Any], dict[str, int]]:
    content = text.encode() if isinstance(text, str) else text
    diagnostics = Diagnostics()
    stream = ObjectStream(source_of(content), diagnostics, strict, Item, ["nodes"])
    items = [item for chunk in stream for item in chunk]
    return [(item.id, item.name) for item in items], stream.metadata, diagnostics.counts


FIRST, SECOND, THIRD = (
    json.dumps({"id": number, "name": f"op{number}", "deps": [{"name": "x"}, {"name": "y"}]}) for number in (1, 2, 3)
)
ALL = [(1, "op1"), (2, "op2"), (3, "op3")]


@pytest.mark.parametrize(
    ("text", "items", "counts"),
    [
        (f'{{"schema": 1, "nodes": [{FIRST}, {SECOND}, {THIRD}], "end": 2}}', ALL, {}),
        (f'{{"nodes": [{FIRST} {SECOND}, {THIRD}]}}', ALL, {"missing comma": 1}),
        (f'{{"nodes": [{FIRST},, {SECOND}, {THIRD},]}}', ALL, {"comma too many": 2}),
        (f'{{"nodes": [{FIRST}, {SECOND[:30]}, {THIRD}]}}', [ALL[0], ALL[2]], {"event that can't be read": 1}),
        (f'{{"nodes": [{FIRST}, {SECOND}, {THIRD[:30]}', ALL[:2], {"file ends inside an event": 1}),
        (f'{{"nodes": [{FIRST}, {SECOND}, {THIRD}', ALL, {"no closing bracket": 1}),
        (f'{{"nodes": [{FIRST}, {SECOND}, {THIRD}]', ALL, {"no closing bracket": 1}),
        (f'{{"nodes": [{FIRST}, 17 {SECOND}, {THIRD}]}}', ALL, {"stray bytes between events": 1}),
        (f"[{FIRST}, {SECOND}, {THIRD}]", ALL, {}),
        (f"{FIRST}\n{SECOND}{THIRD}", ALL, {}),
        ("", [], {}),
        ('{"nodes": []}', [], {}),
    ],
)
def test_objects_are_recovered_and_damage_counted(text: str, items: list[Any], counts: dict[str, int]) -> None:
    assert read(text) == (items, read(text)[1], counts)
    if counts:
        with pytest.raises(TraceError):
            read(text, strict=True)
    else:
        assert read(text, strict=True)[0] == items


def test_members_on_both_sides_of_the_array_are_kept() -> None:
    assert read(f'{{"schema": "1", "pid": 3, "nodes": [{FIRST}], "end": {{"a": [1]}}}}')[1] == {
        "schema": "1", "pid": 3, "end": {"a": [1]},
    }  # fmt: skip


def test_an_unfinished_string_costs_one_object() -> None:
    broken = FIRST.replace('op1"', "op1")
    items, _, counts = read(f'{{"nodes": [{broken}, {SECOND}, {THIRD}]}}')
    assert items[-2:] == ALL[1:]
    assert sum(counts.values()) == 1


@pytest.mark.parametrize("keys", [("id", "name"), ("deps", "name", "id")])
def test_objects_across_pieces(monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]) -> None:
    monkeypatch.setattr(json_objects, "READ_BYTES", 50)
    whole = [{"id": number, "name": "x" * (number % 90), "deps": [{"id": 1}] * (number % 5)} for number in range(300)]
    text = json.dumps({"schema": 1, "nodes": [{key: item[key] for key in keys} for item in whole], "end": 1})
    items, metadata, counts = read(text)
    assert items == [(item["id"], item["name"]) for item in whole]
    assert (metadata, counts) == ({"schema": 1, "end": 1}, {})


@given(st.data())
def test_a_cut_keeps_every_object_before_it(data: st.DataObject) -> None:
    text = f'{{"nodes": [{FIRST}, {SECOND}, {THIRD}]}}'
    cut = data.draw(st.integers(12, len(text) - 1))
    items, _, counts = read(text[:cut])
    whole = sum(text.index(part) + len(part) <= cut for part in (FIRST, SECOND, THIRD))
    assert items == ALL[:whole]
    assert sum(counts.values()) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3), ("3", 3), (3.0, 3), (3.5, None), ("x", None), (None, None), ([], None), (2**64 - 1, -1),
        (2**64, None), (-(2**63), -(2**63)), (-(2**63) - 1, None), (True, 1), ("9" * 30, None), (float("inf"), None),
    ],
)  # fmt: skip
def test_integers_as_files_spell_them(value: Any, expected: int | None) -> None:
    assert as_integer(value) == expected
