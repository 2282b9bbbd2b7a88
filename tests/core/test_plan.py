"""Plans: what is saved is what is loaded, and whatever is wrong is told with its JSON path."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makespan.errors import PlanError
from makespan.plan import MAX_PLAN_BYTES, Decision, Plan, format_plan, load_plan, package_versions, parse_plan

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTS = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PLANS = st.builds(
    Plan,
    model=TEXT,
    cluster=TEXT,
    decisions=st.lists(st.builds(Decision, TEXT, st.dictionaries(TEXT, JSON, max_size=3)), max_size=3).map(tuple),
    predicted_ns=st.dictionaries(TEXT, INTS, max_size=3),
    seed=INTS,
    versions=st.dictionaries(TEXT, TEXT, max_size=3),
    created=st.datetimes().map(lambda time: time.isoformat()),
)


@given(plan=PLANS)
def test_what_is_written_is_read(plan: Plan) -> None:
    content = format_plan(plan)
    again = parse_plan(content, "x")
    assert again == plan
    assert repr(again) == repr(plan), "1 and 1.0 and True are equal, but not the same"
    assert format_plan(again) == content


def test_a_plan_on_disk_is_json_for_people(tmp_path: Path) -> None:
    plan = Plan(
        model="resnet-50", cluster="dgx-a100", decisions=(Decision("tensor-fusion", {"bucket_mb": [1, 25.5]}),),
        predicted_ns={"iteration": 80_000_000}, seed=3,
    )  # fmt: skip
    path = tmp_path / "plan.json"
    plan.save(path)
    assert Plan.load(path) == load_plan(path) == plan
    written = json.loads(path.read_text())
    assert written["format_version"] == 1
    assert written["decisions"] == [{"pass_name": "tensor-fusion", "payload": {"bucket_mb": [1, 25.5]}}]
    assert written["versions"] == package_versions()
    assert {"makespan", "numpy", "torch"} <= written["versions"].keys()
    assert written["created"].endswith("+00:00")
    assert path.read_text().startswith('{\n  "format_version": 1,\n  "model": "resnet-50"')


def test_payloads_of_one_pass_come_in_order() -> None:
    decisions = tuple(Decision(name, {"number": n}) for n, name in enumerate(["a", "b", "a"]))
    assert Plan(model="m", cluster="c", decisions=decisions).payloads("a") == [{"number": 0}, {"number": 2}]


GOOD = Plan(model="m", cluster="c", decisions=(Decision("p", {"x": 1}),), created="2026-01-01T00:00:00+00:00")


def changed(path: list[Any], value: Any) -> bytes:
    raw = json.loads(format_plan(GOOD))
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a JSON file"),
        (b"\xff\xfe", "not a JSON file"),
        (b"[" * 5000, "not a JSON file"),
        (b"[1]", "no format_version at $"),
        (b"{}", "no format_version at $"),
        (changed(["format_version"], 2), "format version 2 at $.format_version, but this makespan reads version 1"),
        (changed(["format_version"], True), "plan of format version True"),
        (changed(["modell"], "x"), "unknown key 'modell' at $; did you mean 'model'?"),
        (changed(["decisions", 0, "payloud"], {}), "unknown key 'payloud' at $.decisions[0]; did you mean 'payload'?"),
        (changed(["model"], 5), "Expected `str`, got `int` - at `$.model`"),
        (changed(["decisions"], {}), "at `$.decisions`"),
        (changed(["decisions", 0], []), "at `$.decisions[0]`"),
        (changed(["decisions", 0, "payload"], []), "at `$.decisions[0].payload`"),
        (changed(["predicted_ns"], {"iteration": 1.5}), "at `$.predicted_ns[...]`"),
        (changed(["seed"], 2**64 - 1), "at $.seed doesn't fit 64 bits"),
        (changed(["created"], "yesterday"), "'yesterday' at $.created is no time"),
        (changed(["decisions", 0, "payload", "x"], 2**64), "at $.decisions[0].payload.x"),
        (format_plan(GOOD).replace(b'"x": 1', b'"x": 1e999'), "not a JSON file"),
        (format_plan(GOOD).replace(b'"x": 1', b'"x": ' + b"[" * 40 + b"]" * 40), "nested deeper than 32 levels"),
        (json.dumps({"format_version": 1, "model": "m"}).encode(), "missing required field `cluster`"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_told_with_its_path(content: bytes, told: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(content, "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"a": {"b": (1, 2)}}, r"tuple at \$\.payload\.a\.b is no JSON value"),
        ({"a": [np.int64(1)]}, r"int64 at \$\.payload\.a\[0\]"),
        ({"a": float("nan")}, r"nan at \$\.payload\.a is no JSON number"),
        ({1: 2}, r"key 1 at \$\.payload is a int, expected text"),
        ({"a": "\ud800"}, r"text at \$\.payload\.a holds half a surrogate pair"),
        ([], r"\$\.payload"),
        ("text", r"\$\.payload"),
    ],
)
def test_a_payload_that_json_would_change_is_refused_at_once(payload: Any, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        Decision("p", payload)


def test_a_plan_with_undeclared_types_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(PlanError, match="would not read back the same"):
        Plan(model="m", cluster="c", decisions=[Decision("p", {})]).save(path)  # type: ignore[arg-type]
    with pytest.raises(PlanError):
        Plan(model="m", cluster="c", seed=object()).save(path)  # type: ignore[arg-type]
    assert not path.exists()
    with pytest.raises(PlanError, match="can't be written"):
        GOOD.save(tmp_path / "no folder" / "plan.json")


def test_files_that_are_missing_or_huge(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="can't be read"):
        load_plan(tmp_path / "none.json")
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MAX_PLAN_BYTES + 1)
    with pytest.raises(PlanError, match="larger than 64,000,000 bytes"):
        load_plan(path)


@given(content=st.binary(max_size=100))
def test_random_bytes_are_no_plan(content: bytes) -> None:
    with pytest.raises(PlanError):
        parse_plan(content, "x")
