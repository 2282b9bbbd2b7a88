"""Chrome JSON of any shape and any damage: what is valid stays as it is, what is damaged costs nothing else."""

from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from chrome_samples import profile, source, span, text, two_steps
from hypothesis import given
from hypothesis import strategies as st

from makespan.errors import TraceError
from makespan.simulator.chrome import reader as chrome_json
from makespan.simulator.chrome.collector import read_columns
from makespan.simulator.chrome.columns import ChromeColumns
from makespan.simulator.chrome.reader import BAD_MEMBER, ChromeReader, EventStream, collector_paused
from makespan.simulator.chrome.repair import BAD_ESCAPE, mend, value_end
from makespan.simulator.chrome.rescue import STRAY_BYTES, rescue
from makespan.simulator.chrome.times import nanoseconds, nanoseconds_of_numbers, nanoseconds_of_texts
from makespan.trace import Diagnostics


def events_of(content: bytes | list[Any] | dict[str, Any], strict: bool = False) -> tuple[list[Any], Diagnostics, Any]:
    diagnostics = Diagnostics()
    reader = ChromeReader(source(content), diagnostics, strict)
    return list(reader), diagnostics, reader.metadata


def names_of(content: bytes | list[Any] | dict[str, Any]) -> list[str]:
    return [event.name for event in events_of(content)[0]]


def columns_of(content: bytes | list[Any] | dict[str, Any], strict: bool = False) -> tuple[ChromeColumns, Diagnostics]:
    diagnostics = Diagnostics()
    return read_columns(source(content), diagnostics, strict), diagnostics


def plain(name: str, **members: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": 1, "dur": 1, "pid": 1, "tid": 1, **members}


# Structure


def test_metadata_before_and_after_the_events():
    content = b'{"a": {"traceEvents": 1}, "traceEvents": [{"ph":"X","name":"x","ts":1}], "b": [1, "]}"], "c": null}'
    events, diagnostics, metadata = events_of(content)
    assert [event.name for event in events] == ["x"]
    assert metadata == {"a": {"traceEvents": 1}, "b": [1, "]}"], "c": None}
    assert not diagnostics


@pytest.mark.parametrize("content", [b"[]", b'{"traceEvents": []}', b" \n[ ]\n", b"\xef\xbb\xbf[]", b"{}"])
def test_empty_files_are_empty_not_damaged(content: bytes):
    events, diagnostics, _ = events_of(content, strict=True)
    assert events == [] and not diagnostics


def test_array_at_top_and_byte_order_mark():
    assert names_of(b"\xef\xbb\xbf" + text([plain("a"), plain("b")])) == ["a", "b"]


def test_nested_objects_that_look_like_events_do_not_split_an_event(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chrome_json, "READ_BYTES", 200)
    inner = [{"name": "inner", "ph": "X"}] * 4
    content = [plain(f"event {n}", args={"list": inner, "text": '}, {"ph": "X"'}) for n in range(40)]
    events, diagnostics, _ = events_of(content, strict=True)
    assert [event.name for event in events] == [f"event {n}" for n in range(40)]
    assert all(event.args["list"] == inner for event in events) and not diagnostics


def test_events_in_pieces_equal_events_at_once(monkeypatch: pytest.MonkeyPatch):
    content = text(profile([event for step in range(30) for event in two_steps(1000.0 + 1000 * step)]))
    whole = columns_of(content)[0]
    for size in (64, 1000, 4096):
        monkeypatch.setattr(chrome_json, "READ_BYTES", size)
        assert_equal_columns(columns_of(content, strict=True)[0], whole)


def test_one_by_one_and_piecewise_reading_agree(monkeypatch: pytest.MonkeyPatch):
    """The path that damaged pieces take gives the same table for a valid file: it never alters one."""
    content = text(profile(two_steps()))
    fast = columns_of(content)[0]
    monkeypatch.setattr(EventStream, "_last_boundary", lambda self: None)
    careful, diagnostics = columns_of(content, strict=True)
    assert_equal_columns(careful, fast)
    assert not diagnostics


def assert_equal_columns(left: ChromeColumns, right: ChromeColumns) -> None:
    for name in ("phase", "name", "category", "place", "start_ns", "duration_ns", "number", "flow_id", "flow_ns"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    assert (left.names, left.categories, left.places) == (right.names, right.categories, right.places)
    assert left.metadata == right.metadata and left.args.keys() == right.args.keys()
    for key, column in left.args.items():
        np.testing.assert_array_equal(column.rows, right.args[key].rows)
        np.testing.assert_array_equal(column.values, right.args[key].values)
        assert column.table == right.args[key].table


def test_first_places_name_the_event():
    content = text([plain("a"), plain("b")])[:-1] + rb', {"ph": "X", "name": "C:\dir", "ts": 1}]'
    _, diagnostics, _ = events_of(content)
    assert diagnostics.places == {"invalid escape in a string": ["sample.json:event 2"]}


def test_collector_is_paused_and_comes_back():
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


# Damage


DAMAGE = {
    "invalid escape in a string": (rb'{"ph":"X","name":"torch\cuda\nn.py","ts":5}', r"torch\cuda\nn.py"),
    "control byte in a string": (b'{"ph":"X","name":"a\x01b\tc\nd","ts":5}', "a\x01b\tc\nd"),
    "unescaped quote in a string": (b'{"ph":"X","name":"f("x", "y") {"z"}","ts":5}', 'f("x", "y") {"z"}'),
    "invalid UTF-8 in a string": (b'{"ph":"X","name":"a\xff\xfeb","ts":5}', "a\ufffd\ufffdb"),
    "NaN or infinite number": (b'{"ph":"X","name":"n","ts":5,"args":{"x":NaN,"y":-Infinity,"z":1e999}}', "n"),
    "missing comma": (b'{"ph":"X" "name":"m","ts":5}', "m"),
    "comma too many": (b'{"ph":"X","name":"c","ts":5,}', "c"),
    "args that are no object": (b'{"ph":"X","name":"l","ts":5,"args":[1,2]}', "l"),
}


@pytest.mark.parametrize("reason", DAMAGE)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_damaged_event_costs_no_other(reason: str, place: int):
    damaged, name = DAMAGE[reason]
    parts = [text(plain("first")), text(plain("second"))]
    parts.insert(place, damaged)
    content = b'{"schemaVersion": 1, "traceEvents": [' + b",\n".join(parts) + b'], "after": 1}'
    events, diagnostics, metadata = events_of(content)
    expected = ["first", "second"]
    expected.insert(place, name)
    assert [event.name for event in events] == expected
    assert diagnostics.counts == {reason: 1}
    assert metadata == {"schemaVersion": 1, "after": 1}
    with pytest.raises(TraceError, match=reason):
        events_of(content, strict=True)


@pytest.mark.parametrize(
    ("content", "names", "reasons"),
    [
        (b"[", [], {"no closing bracket"}),
        (b'{"traceEvents": [', [], {"no closing bracket"}),
        (b'[{"ph":"X","name":"a","ts":1},\n', ["a"], {"no closing bracket"}),
        (b'[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b","t', ["a"], {"file ends inside an event"}),
        (b'[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"b', ["a"], {"file ends inside an event"}),
        (b'[{"ph":"X","name":"a","ts":1},]', ["a"], {"comma too many"}),
        (b'[{"ph":"X","name":"a","ts":1} {"ph":"X","name":"b","ts":1}]', ["a", "b"], {"missing comma"}),
        (b'[{"ph":"X","name":"a","ts":1}]\n[{"ph":"X","name":"b","ts":2}]', ["a", "b"], {"several dumps in one file"}),
        (
            b'{"traceEvents":[{"ph":"X","name":"a","ts":1}]}{"traceEvents":[{"ph":"X","name":"b","ts":2}]}',
            ["a", "b"],
            {"several dumps in one file"},
        ),
        (
            b'{"traceEvents":[{"ph":"X","name":"a","ts":1},\n{"traceEvents":[{"ph":"X","name":"b","ts":2}]}',
            ["a", "b"],
            {"several dumps in one file"},
        ),
        (
            b'{"ph":"X","name":"a","ts":1},\n{"ph":"X","name":"b","ts":2}\n',
            ["a", "b"],
            {"no opening bracket", "no closing bracket"},
        ),
        (
            b'{"ph":"X","name":"a","ts":1}], "displayTimeUnit": "ms"}',
            ["a"],
            {"no opening bracket"},
        ),
        (b'[1, null, "text", [2], {"ph":"X","name":"a","ts":1}]', ["a"], {"entry that is no event"}),
        (b'[{"ph":"X","name":"a","ts":1}, oops, {"ph":"X","name":"b","ts":1}]', ["a", "b"], {STRAY_BYTES}),
        (b'{"traceEvents": [{"ph":"X","name":"a","ts":1}], "x": {"y": ', ["a"], {BAD_MEMBER}),
        (rb'{"traceName": "C:\temp\", "traceEvents": [{"ph":"X","name":"a","ts":1}]}', ["a"], {BAD_MEMBER}),
        (rb'{"traceName": "C:\temp\x", "traceEvents": [{"ph":"X","name":"a","ts":1}]}', ["a"], {BAD_ESCAPE}),
    ],
)  # fmt: skip
def test_damaged_containers(content: bytes, names: list[str], reasons: set[str]):
    events, diagnostics, _ = events_of(content)
    assert [event.name for event in events] == names
    assert reasons <= set(diagnostics.counts)
    with pytest.raises(TraceError):
        events_of(content, strict=True)


def test_every_event_of_a_large_file_damaged_the_same_way():
    event = rb'{"ph":"X","name":"torch\cuda\_init.py","ts":1,"args":{"a":"say "hi" twice"}}'
    events, diagnostics, _ = events_of(b"[" + b",".join([event] * 3000) + b"]")
    assert len(events) == 3000 and {event.name for event in events} == {r"torch\cuda\_init.py"}
    assert diagnostics.counts["unescaped quote in a string"] == 3000


def test_deep_nesting_does_not_crash():
    deep = b'{"ph":"X","name":"deep","ts":1,"args":{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}}"
    # args are skipped unread by typed columns and read by the plain reader, whose recursion is bounded.
    events, diagnostics, _ = events_of(b"[" + text(plain("a")) + b"," + deep + b"," + text(plain("b")) + b"]")
    assert [event.name for event in events] == ["a", "b"]
    assert diagnostics.counts == {"event that can't be read": 1}
    assert events_of(b"[" * 100_000)[0] == []
    assert events_of(b'{"a":' * 50_000)[0] == []


def test_huge_strings_and_huge_events(monkeypatch: pytest.MonkeyPatch):
    events, diagnostics, _ = events_of(text([plain("x" * 3_000_000), plain("b")]), strict=True)
    assert [len(event.name) for event in events] == [3_000_000, 1] and not diagnostics
    monkeypatch.setattr(chrome_json, "LARGEST_BYTES", 1 << 20)
    events, diagnostics, _ = events_of(text([plain("a"), plain("x" * 3_000_000), plain("b"), plain("c")]))
    assert [event.name for event in events] == ["a", "b", "c"]
    assert diagnostics.counts == {"event or member too large": 1}


@given(st.integers(0, 3339), st.binary(max_size=3))
def test_any_replaced_bytes_never_crash_and_cost_few_events(place: int, replacement: bytes):
    content = text(profile(two_steps()))
    damaged = content[:place] + replacement + content[place + 1 :]
    columns, _ = columns_of(damaged)
    # Damage costs the event it hits and, where it hides a boundary, the neighbour; only the array's own bracket and
    # the braces before it decide about all.
    if place > content.index(b'"traceEvents": [') + 16:
        assert len(columns) >= 18


@given(st.integers(0, 3339))
def test_any_truncation_keeps_all_whole_events(length: int):
    events = two_steps()
    content = text(profile(events))
    whole = sum(content.index(text(event)) + len(text(event)) <= length for event in events)
    columns, diagnostics = columns_of(content[:length])
    assert len(columns) >= whole
    assert diagnostics or length == 0


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash(content: bytes):
    for prefix in (b"", b"[", b'{"traceEvents":[', b'[{"ph":"X","name":"'):
        columns_of(prefix + content)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_mending_a_valid_object_changes_nothing(value: dict[str, Any]):
    spelled = json.dumps(value).encode()
    mended, reasons = mend(spelled)
    assert json.loads(mended) == value and not reasons
    assert value_end(spelled + b" tail", 0) == len(spelled)


def test_rescue_waits_for_more_data_where_an_event_is_cut():
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    buffer = b'{"ph":"X"}, {"ph": "i", "name": "cut'
    found = rescue(buffer, 0, False, False, decode, lambda reason, after: pytest.fail(reason))
    assert found.texts == [b'{"ph":"X"}'] and buffer[found.position :].lstrip(b", ").startswith(b'{"ph": "i"')


# Times


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("1711667379483817.8", 1711667379483817800),
        ("1711667379483817.823", 1711667379483817823),
        ("4203669604595.407", 4203669604595407),
        ("0.437", 437),
        ("-5", -5000),
        ("-0.001", -1),
        ("1.5e3", 1_500_000),
        ("0.0004", 0),
        ("0.0006", 1),
        ('"1000.5"', 1_000_500),
        ("true", None),
        ("", None),
        ('"abc"', None),
        ("1e9999999", 2**62 - 1),
        ("19978045970716470", 2**62 - 1),
    ],
)
def test_nanoseconds_are_exact(spelled: str, expected: int | None):
    assert nanoseconds(spelled.encode()) == expected


@given(st.lists(st.integers(-(10**15), 2**43 * 1000 - 1), min_size=1, max_size=20))
def test_doubles_below_2_to_43_name_the_nanosecond(times_ns: list[int]):
    numbers = [time / 1000 for time in times_ns]
    assert nanoseconds_of_numbers(numbers).tolist() == times_ns


@given(st.lists(st.integers(0, 4 * 10**18), min_size=1, max_size=20))
def test_spelled_times_name_the_nanosecond(times_ns: list[int]):
    texts = [f"{time // 1000}.{time % 1000:03d}".encode() for time in times_ns]
    assert nanoseconds_of_texts(texts).tolist() == times_ns


@pytest.mark.parametrize("shift", [0, 1_712_195_495_505_543, 4_203_669_604_595])
def test_integers_fractions_and_text_give_one_table(shift: int):
    spelled = [f"{shift + n}.{n:03d}" for n in range(200)]
    exact = [(shift + n) * 1000 + n for n in range(200)]
    for quote in ("", '"'):
        events = ",".join(f'{{"ph":"X","name":"n","ts":{quote}{ts}{quote},"dur":0.5}}' for ts in spelled)
        columns, diagnostics = columns_of(f"[{events}]".encode())
        assert columns.start_ns.tolist() == exact and set(columns.duration_ns.tolist()) == {500}
        assert diagnostics.counts == ({"number written as text": 200} if quote else {})


def test_times_that_can_not_be_true_are_set_aside_and_counted():
    events = two_steps()
    events[2]["dur"] = -1
    events[3]["dur"] = 1e15
    events[5]["ts"] = 1e17
    events[6]["ts"] = -1e15
    events[8]["ts"] = None
    del events[9]["dur"]
    columns, diagnostics = columns_of(events)
    assert len(columns) == 17
    assert columns.start_ns.min() == 1_000_000 and (columns.start_ns + columns.duration_ns).max() == 1_800_000
    assert diagnostics.counts == {
        "event without a time": 1,
        "negative duration, taken as zero": 1,
        "duration absurdly long, taken as zero": 1,
        "complete event without a duration": 1,
        "timestamp far in the future": 1,
        "timestamp far in the past": 1,
    }


def test_a_late_but_possible_event_stays():
    events = two_steps()
    events.append(span("cpu_op", "late", 1000.0 + 60e6, 1.0))
    columns, diagnostics = columns_of(events, strict=True)
    assert len(columns) == 21 and not diagnostics


def test_display_time_unit_changes_nothing():
    plain_columns = columns_of(profile(two_steps()))[0]
    told = columns_of(profile(two_steps(), displayTimeUnit="ns"))[0]
    np.testing.assert_array_equal(told.start_ns, plain_columns.start_ns)


# Spans, counters, odd values


def test_begin_and_end_events_pair_up_by_thread_and_name():
    events = [
        {"ph": "B", "name": "outer", "ts": 1, "pid": 0, "tid": 1},
        {"ph": "B", "name": "inner", "ts": 2, "pid": 0, "tid": 1},
        {"ph": "B", "name": "other thread", "ts": 2, "pid": 0, "tid": 2},
        {"ph": "E", "ts": 5, "pid": 0, "tid": 1},
        {"ph": "E", "name": "outer", "ts": 9, "pid": 0, "tid": 1},
        {"ph": "E", "name": "never begun", "ts": 9, "pid": 0, "tid": 1},
        {"ph": "b", "name": "async", "cat": "net", "id": 7, "ts": 3, "pid": 0, "tid": 1},
        {"ph": "e", "name": "async", "cat": "net", "id": 7, "ts": 8, "pid": 0, "tid": 3},
    ]
    columns, diagnostics = columns_of(events)
    found = {columns.names[name]: int(ns) for name, ns in zip(columns.name, columns.duration_ns, strict=True)}
    assert found == {"outer": 8000, "inner": 3000, "other thread": 0, "async": 5000}
    assert diagnostics.counts == {"end without a begin": 1, "begin without an end": 1}


def test_counters_carry_their_sum_and_metadata_names_threads():
    events = [
        plain("work"),
        {"ph": "C", "name": "memory", "ts": 2, "pid": 1, "args": {"used": 3, "cached": 4.5}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
        {"ph": "M", "name": "process_name", "pid": "1", "args": {"name": "python"}},
        {"ph": "N", "name": "object", "ts": 1, "pid": 1},
    ]
    columns, diagnostics = columns_of(events)
    assert columns.args["value"].rows.tolist() == [1] and columns.args["value"].values.tolist() == [7.5]
    assert columns.thread_names == {("1", "1"): "main"} and columns.process_names == {"1": "python"}
    assert diagnostics.counts == {"event of a phase that is not used": 1}


def test_one_thread_under_two_spellings_is_one_place():
    columns, _ = columns_of([plain("a", tid="7"), plain("b", tid=7), plain("c", tid=None, pid=None), plain(None)])
    assert columns.places[0] == ("1", "7") and columns.place.tolist() == [0, 0, 1, 2]
    assert columns.names[columns.name[3]] == ""


def test_odd_values_become_text_or_nothing():
    events = [plain(["list"], args={"correlation": [1], "stream": "0x10", "device": 2.0}), plain("b", args=None)]
    columns, diagnostics = columns_of(events)
    assert columns.names[columns.name[0]] == '["list"]'
    assert columns.args["stream"].values.tolist() == [16] and columns.args["device"].values.tolist() == [2]
    assert "correlation" not in columns.args and not diagnostics


def test_integers_beyond_64_bits_are_counted():
    events = [plain("a", args={"correlation": 2**64 - 1}), plain("b", args={"correlation": 2**70})]
    columns, diagnostics = columns_of(events)
    assert columns.args["correlation"].values.tolist() == [-1] and columns.args["correlation"].rows.tolist() == [0]
    assert diagnostics.counts == {"integer beyond 64 bits": 2}
