"""Compiled functions run wherever there is no place for a cache, and use one wherever there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numba.core import config
from numba.core.caching import FunctionCache

from makespan.compiled import compiled


def make() -> Any:
    @compiled()
    def triple(value: int) -> int:
        return 3 * value

    return triple


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def files(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.rglob(f"*{ending}"))


def test_what_was_compiled_is_found_again(folder: Path) -> None:
    first = make()
    assert first(2) == 6
    assert len(files(folder, ".nbi")) == len(files(folder, ".nbc")) == 1
    again = make()
    assert again(2) == 6
    assert sum(again.stats.cache_hits.values()) == 1


def test_without_a_place_for_the_cache_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    impl = FunctionCache._impl_class
    monkeypatch.setattr(impl, "_locator_classes", [])
    function = make()
    assert function(2) == 6
    assert not function.stats.cache_path


def test_a_damaged_cache_is_begun_anew(folder: Path) -> None:
    make()(2)
    for damaged in (".nbi", ".nbc"):
        files(folder, damaged)[0].write_bytes(b"")
        assert make()(2) == 6
        again = make()
        assert again(2) == 6
        assert sum(again.stats.cache_hits.values()) == 1


def test_a_full_disk_is_no_reason_not_to_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FunctionCache, "_save_overload", fail)
    assert make()(2) == 6
    assert files(folder, ".nbc") == []


def test_a_division_by_zero_is_as_was_asked() -> None:
    @compiled(error_model="numpy")
    def quietly(value: float) -> float:
        return 1.0 / value

    @compiled()
    def loudly(value: float) -> float:
        return 1.0 / value

    assert quietly(0.0) == float("inf")
    with pytest.raises(ZeroDivisionError):
        loudly(0.0)
