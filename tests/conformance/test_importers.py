"""Every module of simulator/importers keeps the importer contract, whatever bytes it is given."""

import json
import random
import sqlite3
from pathlib import Path

import pytest
from contracts import check_module, expect_parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from importing import assert_survives, source_at, source_of

from makespan.resolve import find_module, member_names
from makespan.simulator.load import find_importers

FOLDER = "makespan.simulator.importers"
NAMES = member_names(FOLDER)
BUNDLED = sorted((Path(__file__).parents[2] / "datasets" / "traces").rglob("*.json.gz"))


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER)")
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 3)")
    return connection.serialize()


EVENT = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, "args": {"correlation": 3}}
NODE = {
    "id": 1,
    "name": "[pytorch|profiler|execution_trace|process]",
    "parent": 1,
    "rf_id": 0,
    "inputs": [],
    "outputs": [],
}
HOROVOD = [
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "grad/w"}},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 0},
    {"ph": "E", "ts": 4, "pid": 0},
]
MXNET = {"traceEvents": [{"name": "Conv", "cat": "operator", "ph": ph, "ts": 1, "pid": 0, "tid": 1} for ph in "BE"]}
SEEDS = [
    json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [EVENT]}).encode(),
    json.dumps(HOROVOD).encode(),
    json.dumps({"schema": "1.0.1", "pid": 1, "time": "", "start_ts": 1, "nodes": [NODE]}).encode(),
    json.dumps(MXNET).encode(),
    json.dumps({"step_stats": {"dev_stats": []}, "comm": {"Push": [[1, 2]]}}).encode(),
    b"\x06\x0a\x040.0.4\x0c\x08\x01\x12\x03add\x18\x05",
    database(),
]


def test_there_are_importers() -> None:
    """An empty folder would leave the rest of this file without a test."""
    assert {"chrome", "kineto"} <= set(NAMES), f"{FOLDER} holds {NAMES}"
    assert BUNDLED, "datasets/traces holds no trace"
    assert sorted(find_importers()) == NAMES, "loading looks at the same modules"


@pytest.mark.parametrize("name", NAMES)
def test_the_three_names(name: str) -> None:
    module = find_module(FOLDER, name)
    check_module(module)
    assert isinstance(module.TITLE, str) and module.TITLE.strip()
    expect_parameters(module.recognise, "source")
    expect_parameters(module.read, "source", "diagnostics", "strict")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=60)
@given(content=st.binary(max_size=300))
def test_random_bytes_give_a_table_or_a_trace_error(name: str, strict: bool, content: bytes) -> None:
    assert_survives(find_module(FOLDER, name), content, strict)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=60)
@given(seed=st.sampled_from(SEEDS), chance=st.randoms(use_true_random=False), cuts=st.integers(0, 6))
def test_damaged_traces_of_any_format_give_a_table_or_a_trace_error(
    name: str, strict: bool, seed: bytes, chance: random.Random, cuts: int
) -> None:
    content = bytearray(seed)
    for _ in range(cuts):
        place = chance.randrange(len(content) + 1)
        how = chance.randrange(4)
        if how == 0:
            content[place : place + 1] = bytes([chance.randrange(256)])
        elif how == 1:
            del content[place : place + chance.randrange(1, 9)]
        elif how == 2:
            content[place:place] = content[chance.randrange(len(content) + 1) :][:20]
        else:
            content[place:place] = chance.choice([b"NaN", b"-1e999", b"null", b"[", b"}", b'"', b"\xff", b"\x00"])
    assert_survives(find_module(FOLDER, name), bytes(content), strict)


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_claims_exclude_each_other(number: int) -> None:
    claims = {name: find_module(FOLDER, name).recognise(source_of(SEEDS[number])) for name in NAMES}
    certain = [name for name, claim in claims.items() if claim == 2]
    assert len(certain) <= 1, f"several are certain: {certain}"
    assert [name for name, claim in claims.items() if claim == 1] in ([], ["chrome"])


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_bundled_traces_have_one_format(path: Path) -> None:
    claims = {name: find_module(FOLDER, name).recognise(source_at(path)) for name in NAMES}
    assert [name for name, claim in claims.items() if claim == 2] == ["kineto"]
