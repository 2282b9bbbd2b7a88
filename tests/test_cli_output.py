"""The command line where its output goes nowhere, its encoding is poor, or its arguments are no text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import makespan as ms

CLUSTER = ms.bundled_trace("cnn_step").parents[1] / "clusters" / "dgx-a100.toml"
SHOW = f"show {CLUSTER}"
ODD = os.fsdecode(b"odd\xff")
LONE = "k\ud800"


def shell(arguments: str, redirect: str = "", **environment: str) -> tuple[int, bytes, str]:
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", f"'{sys.executable}' -m makespan {arguments} {redirect}"],
        capture_output=True, env=os.environ | environment, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("arguments", [SHOW, f"{SHOW} --json", "--help", "--version"])
@pytest.mark.parametrize(("redirect", "said"), [(">/dev/full", "No space left"), (">&-", "output is closed")])
def test_output_that_goes_nowhere_is_one_sentence(arguments: str, redirect: str, said: str) -> None:
    code, out, err = shell(arguments, redirect)
    assert (code, out) == (2, b"")
    assert err.startswith("makespan: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize("arguments", [SHOW, f"{SHOW} --json", "--help"])
def test_a_reader_that_has_gone_is_told_nothing(arguments: str) -> None:
    assert shell(arguments, "| true") == (1, b"", "")


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-"])
def test_where_complaints_go_nowhere_the_code_tells(redirect: str) -> None:
    assert shell("show /no/such/file", redirect) == (2, b"", "")
    assert shell("--version", redirect)[0] == 0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Run `makespan ARGUMENTS` in this process, with an encoding; gives (exit code, output, error)."""
    from makespan import cli

    def run_once(*arguments: str | Path, encoding: str = "utf-8") -> tuple[int, bytes, bytes]:
        monkeypatch.setattr(sys, "argv", ["makespan", *map(str, arguments)])
        with open(os.dup(1), "w", encoding=encoding) as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            with pytest.raises(SystemExit) as stop:
                cli.main()
        shown = capfdbinary.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    return run_once


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace whose file and ops have names that no encoding holds."""
    step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#1{LONE}", "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    op = {"ph": "X", "cat": "cpu_op", "name": "日本", "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    kernel = {"ph": "X", "cat": "kernel", "name": LONE, "pid": 0, "tid": 7, "ts": 5, "dur": 3}
    kernel["args"] = {"device": 0, "stream": 7}
    path = tmp_path / f"{ODD}.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step, op, kernel]}))
    return path


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16", "utf-8"])
def test_any_encoding_takes_the_answer(run: Any, trace: Path, encoding: str) -> None:
    code, out, err = run("replay", trace, encoding=encoding)
    assert (code, err) == (0, b"")
    assert "iteration time" in out.decode(encoding)
    code, out, _ = run("show", trace, "--json", encoding=encoding)
    assert (code, json.loads(out.decode(encoding))["holds"]) == (0, "trace")
    code, out, _ = run("replay", trace, "--json", encoding=encoding)
    assert json.loads(out.decode(encoding))["critical_path"]["top_ops"][0]["name"] == "日本"
    assert out.isascii() == (encoding in ("ascii", "latin-1"))


def test_file_names_and_names_in_files_need_not_be_text(run: Any, trace: Path, tmp_path: Path) -> None:
    graph, timeline = tmp_path / f"{ODD}.npz", tmp_path / f"{ODD}.timeline.json"
    assert run("replay", trace, "--graph", graph, "--timeline", timeline)[0] == 0
    json.loads(timeline.read_bytes().decode())
    told = json.loads(run("show", graph, "--json")[1])
    assert told["source"].endswith("odd\\udcff.npz")
    for given in (trace, graph, timeline):
        for verb in (["replay"], ["show"], ["whatif", "--scale", "name:日=2"], ["compare", trace]):
            for json_too in ([], ["--json"]):
                code, out, err = run(verb[0], given, *verb[1:], *json_too)
                assert (code, err) == (0, b"")
                out.decode()
    missing = run("replay", tmp_path / f"no{ODD}.npz")
    assert (missing[0], b"no such file" in missing[2].lower()) == (2, True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--move", f"gpu={ODD}"), ("--move", f"{ODD}=x"), ("--scale", f"name:{ODD}=2"), ("--scale", f"gpu={ODD}"),
        ("--scale", f"{ODD}=2"), ("--remove", f"stream:{ODD}"), ("--remove", f"step:{ODD}"), ("--remove", ODD),
    ],
)  # fmt: skip
def test_arguments_that_are_no_text_are_one_sentence(run: Any, trace: Path, option: str, value: str) -> None:
    timeline = trace.parent / "timeline.json"
    code, out, err = run("whatif", trace, option, value, "--timeline", timeline)
    assert (code, out, timeline.exists()) == (2, b"", False)
    assert err.startswith(b"makespan: ")
    assert err.count(b"\n") == 1


def test_outputs_are_no_inputs_and_two_files(run: Any, trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    code, _, err = run("replay", tmp_path, "--timeline", trace)
    assert (code, b"lies in the input" in err) == (2, True)
    code, _, err = run("replay", trace, "--timeline", tmp_path / "x", "--graph", tmp_path / "." / "x")
    assert (code, b"two outputs" in err) == (2, True)
    assert [trace.read_bytes(), [item.name for item in tmp_path.iterdir()]] == [before, [trace.name]]


def test_too_little_memory_is_one_sentence(run: Any, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from makespan import api

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(api, "load", fail)
    code, _, err = run("replay", trace)
    assert (code, err.count(b"\n"), b"not enough memory" in err) == (2, 1, True)
