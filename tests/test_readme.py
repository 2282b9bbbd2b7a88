"""The README's commands print what it says they print, and its Python runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\$ (makespan .+)\n((?:(?!\$ |```).*\n)*)", README, re.MULTILINE)
PYTHON = re.findall(r"```python\n(.+?)```", README, re.DOTALL)


def words(line: str) -> str:
    return " ".join(line.split())


def test_there_is_something_to_try() -> None:
    assert len(COMMANDS) >= 4
    assert len(PYTHON) == 1


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_prints_what_the_readme_shows(command: str, shown: str) -> None:
    quoted = re.findall(r"'([^']*)'|(\S+)", command)
    arguments = [quote or bare for quote, bare in quoted][1:]
    done = subprocess.run(
        [sys.executable, "-m", "makespan", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "110"},
    )  # fmt: skip
    printed = {words(line) for line in done.stdout.splitlines()}
    assert {words(line) for line in shown.splitlines() if line.strip()} <= printed


def test_the_python_runs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PYTHON[0]], cwd=tmp_path, check=True)
    assert (tmp_path / "timeline.json.gz").stat().st_size > 10_000
