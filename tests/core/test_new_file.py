"""New files replace older ones whole or not at all, and leave nothing beside them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from strategies import random_graph

from makespan.errors import MakespanError
from makespan.graph_file import save_graph
from makespan.new_file import new_file
from makespan.plan import Plan
from makespan.schedule import BY_STREAM
from makespan.simulator.chrome.export import write_chrome
from makespan.simulator.replay import replay


def write(path: Path, content: bytes = b"new") -> None:
    with new_file(path) as file:
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    for fault in (OSError("disk full"), KeyboardInterrupt()):
        with pytest.raises(type(fault)), new_file(path) as file:
            file.write(b"new")
            raise fault
    assert (names(tmp_path), path.read_bytes()) == (["x"], b"old")
    write(path)
    assert (names(tmp_path), path.read_bytes()) == (["x"], b"new")


def test_files_that_others_left_are_not_touched(tmp_path: Path) -> None:
    for name in ("g.npz.part", "g.npz.tmp", ".g.npz.part"):
        (tmp_path / name).write_text("mine")
    before = names(tmp_path)
    save_graph(random_graph(0), tmp_path / "g.npz")
    assert names(tmp_path) == sorted([*before, "g.npz"])
    assert all((tmp_path / name).read_text() == "mine" for name in before)


def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "x"
    plain.touch()
    write(path)
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any file")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        write(path)
    assert path.read_bytes() == b"old"


def test_a_link_stays_and_leads_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "x", tmp_path / "link"
    link.symlink_to(target)
    for content in (b"one", b"two"):
        write(link, content)
        assert (link.is_symlink(), target.read_bytes(), names(target.parent)) == (True, content, ["x"])


def test_devices_and_pipes_are_written_to_not_replaced(tmp_path: Path) -> None:
    write(Path(os.devnull))
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert (got, names(tmp_path)) == ([b"new"], ["pipe"])


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    write(tmp_path / ("x" * 255))
    assert names(tmp_path) == ["x" * 255]


GRAPH = random_graph(0)
PLAN = Plan(model="m", cluster="c")
OUTPUTS: dict[str, Callable[[Path], None]] = {
    "graph": lambda path: save_graph(GRAPH, path),
    "compressed graph": lambda path: save_graph(GRAPH, path, compress=True),
    "plan": lambda path: PLAN.save(path),
    "timeline": lambda path: write_chrome(replay(GRAPH), path),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_output_is_one_sentence_where_it_cannot_be_written(output: str, tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "x.gz", tmp_path, Path("/dev/full")):
        with pytest.raises(MakespanError, match="can't be written") as caught:
            OUTPUTS[output](path)
        assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_output_keeps_the_old_file_until_the_new_one_is_whole(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(MakespanError, match=r"x\.gz.*No space left"):
            OUTPUTS[output](path)
    assert (names(tmp_path), path.read_bytes()) == (["x.gz"], b"old")
    OUTPUTS[output](path)
    assert names(tmp_path) == ["x.gz"]
    assert path.read_bytes() != b"old"


def test_a_timeline_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_bytes(b"old")
    schedule = replay(GRAPH)
    to_itself = np.arange(len(GRAPH), dtype=np.int32)
    bounds = {"bound_by": to_itself, "bound_edge": np.full(len(GRAPH), BY_STREAM, np.int32)}
    with pytest.raises(MakespanError):  # told by the critical path, which comes after the ops
        write_chrome(replace(schedule, **bounds), path)
    assert (names(tmp_path), path.read_bytes()) == (["timeline.json"], b"old")
