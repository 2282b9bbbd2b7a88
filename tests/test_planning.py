"""Planning: from captures to a plan and the line of code to paste; by function and by command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from captured_jobs import Network, write_captures

import makespan as ms
from makespan.communication_table import CommunicationTable, Measured, save_table
from makespan.errors import MakespanError, PassError, PredictionError
from makespan.planning import optimize, parse_settings, pass_names
from makespan.simulator.analysis.communication import communication_table

GRADIENTS = ((400_000, 1 << 20), (300_000, 1 << 18), (500_000, 1 << 21), (200_000, 1 << 22), (600_000, 1 << 18))


@pytest.fixture
def captures(tmp_path: Path) -> list[Path]:
    return write_captures(tmp_path / "job", GRADIENTS)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A network of 10 µs and 1 ns a byte."""
    measured = [Measured("allreduce", 2, "float32", size, [10_000 + size]) for size in (1 << 12, 1 << 20, 1 << 24)]
    measured.append(Measured("launch", 1, "float32", 0, [2_000]))
    path = tmp_path / "network.json"
    save_table(CommunicationTable(network="made up", measured=measured), path)
    return path


def test_the_plan_is_worth_what_is_said(captures: list[Path], table: Path) -> None:
    graph = ms.build(ms.load(*captures))
    found = ms.optimize(graph, communication=table)
    # One bucket, reduced after all of backward: nothing is hidden.
    whole = sum(size for _, size in GRADIENTS)
    computing = sum(duration for duration, _ in GRADIENTS)
    assert found.baseline_ns == pytest.approx(computing + whole + 12_000, abs=3_000)
    assert found.iteration_ns < found.baseline_ns
    assert found.plan.predicted_ns["iteration"] == found.iteration_ns <= min(found.named_ns.values())
    assert found.bucket_plan is not None
    assert sum(found.bucket_plan.sizes) == whole
    again = ms.optimize(graph, ["tensor-fusion"], communication=table)
    assert again.plan.decisions == found.plan.decisions


def test_without_a_table_the_jobs_own_transfers_tell(tmp_path: Path, captures: list[Path]) -> None:
    graph = ms.build(ms.load(*captures))
    with pytest.raises(PassError, match=r"no communication model.*all captured all-reduces have one size"):
        optimize(graph)
    told = communication_table(graph, "job")
    assert [(entry.operation, entry.ranks, entry.size_bytes) for entry in told.measured if entry.ranks > 1] == [
        ("allreduce", 2, sum(size for _, size in GRADIENTS))
    ]
    assert {entry.operation: entry.alone_ns for entry in told.measured}["allreduce"] == [500, 500]
    with pytest.raises(PredictionError, match=r"no collective among several ranks"):
        communication_table(ms.build(ms.load(captures[0])), "job")


def test_a_model_may_be_given(captures: list[Path]) -> None:
    found = optimize(ms.build(ms.load(*captures)), communication=Network(latency_ns=5_000_000, ns_per_byte=0.0))
    assert found.bucket_plan is not None
    assert len(found.bucket_plan.buckets) == 1, "where each message costs, one is best"
    assert found.change_pct == 0.0


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        (["tensor-fusion"], "expected PASS.NAME=VALUE"),
        (["tensor-fusion=3"], "expected PASS.NAME=VALUE"),
        (["tensor-fusion.1x=3"], "expected PASS.NAME=VALUE"),
        (["tensor-fussion.x=3"], "did you mean 'tensor-fusion'"),
    ],
)
def test_settings_that_are_none(texts: list[str], match: str) -> None:
    with pytest.raises(MakespanError, match=match):
        parse_settings(texts, ["tensor_fusion"])


def test_settings() -> None:
    given = parse_settings(["a-b.x=3", "a_b.y=[1, 2]", "c.name=big", "c.share=0.5"], ["a_b", "c", "d"])
    assert given == {"a-b": {"x": 3, "y": [1, 2]}, "c": {"name": "big", "share": 0.5}}
    assert "tensor-fusion" in pass_names()
    assert "bucketing" not in pass_names()


def test_unknown_settings_and_passes(captures: list[Path]) -> None:
    graph = ms.build(ms.load(*captures))
    with pytest.raises(PassError, match=r"tensor-fusion: its settings don't fit.*'depth'"):
        optimize(graph, settings={"tensor-fusion": {"depth": 3}})
    with pytest.raises(MakespanError, match="has no 'tensor-fussion'; did you mean 'tensor-fusion'"):
        optimize(graph, ["tensor-fussion"])


def test_the_command_ends_with_the_line_to_paste(captures: list[Path], table: Path, run: Any) -> None:
    plan = table.with_name("plan.json")
    code, out, _ = run("optimize", captures[0].parent, "--communication", table, "--plan", plan)
    assert code == 0
    sizes = ms.Plan.load(plan).payloads("tensor-fusion")[0]["sizes"]
    assert out.splitlines()[-1] == f"bucket_cap_mb_list={[size / (1 << 20) for size in sizes]}"
    told = json.loads(run("optimize", captures[0].parent, "--communication", table, "--json")[1])
    assert told["iteration_time_ms"] == ms.Plan.load(plan).predicted_ns["iteration"] / 1e6
    assert told["change_pct"] == pytest.approx(100 * (told["iteration_time_ms"] / told["baseline_ms"] - 1))
    assert told["bucket_sizes"] == sizes
    assert told["named_ms"]["as captured"] == told["baseline_ms"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--passes", "nope"], "has no 'nope'"),
        (["--communication", "missing.json"], "missing.json: can't be read"),
        (["--set", "x"], "expected PASS.NAME=VALUE"),
        ([], "all captured all-reduces have one size"),
    ],
)
def test_bad_input_is_one_sentence(captures: list[Path], options: list[str], match: str, run: Any) -> None:
    code, _, error = run("optimize", captures[0].parent, *options)
    assert code == 2
    assert match in error
    assert len(error.strip().splitlines()) == 1
