"""Plan: what was decided, for which model and cluster, as versioned JSON that a run can carry out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from makespan.errors import PlanError
from makespan.new_file import new_file
from makespan.resolve import did_you_mean

PLAN_VERSION: Final = 1
MAX_PLAN_BYTES: Final = 64_000_000
MAX_DEPTH: Final = 32
"""How deep lists and objects may nest in a payload."""
_PAYLOAD_DEPTH: Final = 3
PACKAGES: Final = ("makespan", "numpy", "numba", "torch")
"""Packages whose versions a new plan records."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one pass decided: its name, and a payload of plain JSON values that this pass alone validates.

    Raises PlanError, naming the JSON path within the payload, for a value that JSON would not give back the
    same: numpy numbers, tuples, NaN, keys that are no text.
    """

    pass_name: str
    payload: dict[str, Any]

    def __post_init__(self) -> None:
        if type(self.payload) is not dict:
            raise PlanError(f"{type(self.payload).__name__} at $.payload, expected an object")
        _expect_json(self.payload, "$.payload", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions in the order in which they were made, and what they are worth.

    `model` and `cluster` name what the plan is for. `predicted_ns`: predicted times by name ("baseline",
    "iteration", ...), nanoseconds. `versions` of packages, `seed` and `created` (UTC, ISO 8601) tell how to
    repeat it.
    """

    format_version: int = PLAN_VERSION
    model: str
    cluster: str
    decisions: tuple[Decision, ...] = ()
    predicted_ns: dict[str, int] = field(default_factory=dict[str, int])
    seed: int = 0
    versions: dict[str, str] = field(default_factory=lambda: package_versions())
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan; raises PlanError with the JSON path for anything that is not as it should be."""
        return load_plan(path)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON for people to read; raises PlanError where it could not be read back."""
        save_plan(self, path)

    def payloads(self, pass_name: str) -> list[dict[str, Any]]:
        """The payloads of all decisions of one pass, in order."""
        return [decision.payload for decision in self.decisions if decision.pass_name == pass_name]


def package_versions() -> dict[str, str]:
    """Versions of PACKAGES as installed; what is not installed is left out."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load_plan(path: str | Path) -> Plan:
    """Read a plan from `path`; see Plan.load."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_PLAN_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path}: can't be read ({error.strerror}); expected a plan file") from None
    if len(content) > MAX_PLAN_BYTES:
        raise PlanError(f"{path}: larger than {MAX_PLAN_BYTES:,} bytes, more than any plan holds")
    return parse_plan(content, str(path))


def parse_plan(content: bytes, source: str) -> Plan:
    """The plan in `content` (JSON); `source` is what messages call it. Raises PlanError."""
    try:
        raw = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"{source}: not a JSON file ({error}); expected a plan") from None
    if not isinstance(raw, dict) or "format_version" not in raw:
        raise PlanError(f"{source}: no format_version at $; expected a plan as `makespan optimize --plan` writes it")
    stated = raw["format_version"]
    if stated != PLAN_VERSION or type(stated) is not int:
        raise PlanError(
            f"{source}: plan of format version {stated!r} at $.format_version, but this makespan reads version "
            f"{PLAN_VERSION}; make the plan again, or install the makespan that wrote it"
        )
    _expect_keys(raw, Plan, "$", source)
    decisions = raw.get("decisions")
    for place, decision in enumerate(decisions if isinstance(decisions, list) else []):
        if isinstance(decision, dict):
            _expect_keys(decision, Decision, f"$.decisions[{place}]", source)
    try:
        _expect_json(raw, "$", -_PAYLOAD_DEPTH)
        plan = msgspec.convert(raw, Plan)
    except (PlanError, msgspec.ValidationError) as error:
        raise PlanError(f"{source}: {error}") from None
    _expect_time(plan.created, source)
    return plan


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write `plan` to `path`; see Plan.save."""
    content = format_plan(plan)
    if parse_plan(content, str(path)) != plan:
        raise PlanError(f"{path}: the plan would not read back the same; give its fields their declared types")
    try:
        with new_file(path) as file:
            file.write(content)
    except OSError as error:
        raise PlanError(f"{path}: can't be written ({error.strerror or error})") from None


def format_plan(plan: Plan) -> bytes:
    """`plan` as indented JSON."""
    try:
        return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"
    except (TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"the plan holds what JSON can't: {error}") from None


def _expect_keys(raw: Mapping[str, Any], shape: type, path: str, source: str) -> None:
    known = [item.name for item in fields(shape)]
    for key in raw:
        if key not in known:
            raise PlanError(f"{source}: unknown key {key!r} at {path}{did_you_mean(key, known)}")


def _expect_time(created: str, source: str) -> None:
    try:
        datetime.fromisoformat(created)
    except ValueError:
        raise PlanError(f"{source}: {created!r} at $.created is no time; expected ISO 8601") from None


def _expect_json(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise PlanError(f"nested deeper than {MAX_DEPTH} levels at {path}; flatten the payload")
    if isinstance(value, dict) and type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise PlanError(f"key {key!r} at {path} is a {type(key).__name__}, expected text")
            _expect_text(key, path)
            _expect_json(item, f"{path}.{key}", depth + 1)
    elif type(value) is list:
        for place, item in enumerate(value):
            _expect_json(item, f"{path}[{place}]", depth + 1)
    elif type(value) is str:
        _expect_text(value, path)
    elif type(value) is int:
        if not -(2**63) <= value < 2**63:
            raise PlanError(f"integer {value} at {path} doesn't fit 64 bits")
    elif type(value) is float:
        if not math.isfinite(value):
            raise PlanError(f"{value} at {path} is no JSON number; expected a finite one")
    elif value is not None and type(value) is not bool:
        raise PlanError(
            f"{type(value).__name__} at {path} is no JSON value; expected an object, list, text, int, float, bool "
            "or null (turn numpy values and tuples into these)"
        )


def _expect_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PlanError(f"text at {path} holds half a surrogate pair, which UTF-8 has no form for") from None
