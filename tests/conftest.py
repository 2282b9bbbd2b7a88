"""Settings that every test shares."""

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Before dgl and matplotlib are imported: dgl otherwise writes a file into the home folder, and a
# figure must not ask for a screen.
os.environ.setdefault("DGLBACKEND", "pytorch")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import settings

# The first call of a numba kernel compiles it, so single examples have no deadline; derandomize, so
# that a red run is red again.
settings.register_profile("makespan", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("makespan")


@cache
def _cuda_is_there() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of others' traces and measurements beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder shared beside the checkout: others' traces and measurements")
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `makespan ARGUMENTS`; gives (exit code, standard output, standard error)."""

    from makespan import cli

    def run_once(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["makespan", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        shown = capsys.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    return run_once


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _cuda_is_there():
        pytest.skip("needs a CUDA device")
