"""Graph files: exact round trips, and one sentence for whatever is damaged or hostile."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import full_graphs, same_graph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import random_graph

from makespan.errors import GraphError
from makespan.graph import Graph, OpKind
from makespan.graph_file import load_graph, save_graph

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_FOLDER
@given(graph=full_graphs(), compress=st.booleans())
def test_what_is_saved_is_loaded(graph: Graph, compress: bool, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    save_graph(graph, path, compress=compress)
    again = load_graph(path)
    assert same_graph(again, graph)
    assert not any(column.flags.writeable for column in again.columns().values())
    assert [item.name for item in tmp_path.iterdir()] == ["graph.npz"]


def test_odd_names_and_numbers_come_through(tmp_path: Path) -> None:
    count = 5
    graph = random_graph(3, ops=count).replace(
        names=("half \ud800 a surrogate", "", "\x00\x1f", "日本", "x" * 10_000),
        attrs={
            "nan": np.array([0.0, -0.0, np.nan, np.inf, 1e-310]),
            "half": np.arange(count, dtype=np.float16),
            "flag": np.arange(count) % 2 == 0,
            "big endian": np.arange(count, dtype=">i4"),
            "wide": np.full(count, 2**64 - 1, np.uint64),
        },
        sync=np.arange(count, dtype=np.uint8),
    )
    save_graph(graph, tmp_path / "g")
    assert same_graph(load_graph(tmp_path / "g"), graph)


def test_numpy_alone_can_read_the_columns(tmp_path: Path) -> None:
    graph = random_graph(0)
    save_graph(graph, tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz", allow_pickle=False) as file:
        assert np.array_equal(file["duration_ns"], graph.duration_ns)
        assert json.loads(file["header"].tobytes())["ops"] == len(graph)


@pytest.mark.parametrize(
    "column", [np.array(["a"] * 40), np.array([None] * 40), np.zeros((40, 2)), np.zeros(40, "M8[s]")]
)
def test_only_plain_numbers_are_kept(column: np.ndarray, tmp_path: Path) -> None:
    graph = random_graph(0).with_attrs(odd=column)
    with pytest.raises(GraphError, match=r"attribute 'odd' is .*, expected one plain number for each op"):
        save_graph(graph, tmp_path / "graph.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="can't be written"):
        save_graph(random_graph(0), tmp_path / "none" / "graph.npz")
    with pytest.raises(GraphError, match="can't be read"):
        load_graph(tmp_path / "none.npz")
    with pytest.raises(GraphError, match="can't be read"):
        load_graph(tmp_path)


def npy(array: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def rewritten(path: Path, change: Any, method: int = zipfile.ZIP_STORED) -> None:
    """Write the file anew with `change` applied to its members, a dictionary of bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def in_header(**values: Any) -> Any:
    def change(members: dict[str, bytes]) -> None:
        array = np.lib.format.read_array(io.BytesIO(members["header.npy"]))
        header = json.loads(array.tobytes()) | values
        members["header.npy"] = npy(np.frombuffer(json.dumps(header).encode(), np.uint8))

    return change


def member(name: str, content: bytes | None) -> Any:
    def change(members: dict[str, bytes]) -> None:
        if content is None:
            del members[name]
        else:
            members[name] = content

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (member("header.npy", None), "has no header"),
        (member("header.npy", npy(np.frombuffer(b"{", np.uint8))), "the header is damaged"),
        (member("header.npy", npy(np.frombuffer(b"[" * 99_999, np.uint8))), "the header is damaged"),
        (member("header.npy", npy(np.frombuffer(b"[1]", np.uint8))), "graph file of format None"),
        (in_header(format=2), "graph file of format 2, but this makespan reads format 1"),
        (in_header(ops=39), "kind.npy states .* expected at most|expected uint8"),
        (in_header(ops=2**31 - 1, edges=2**31 - 1), "take more than"),
        (in_header(ops=-1), "the header is damaged"),
        (in_header(ops=2**40), "the header is damaged"),
        (in_header(unknown=1), "the header is damaged"),
        (in_header(names=[]), "every name exists"),
        (in_header(streams=[]), "every stream exists"),
        (in_header(streams=[[2**40, "s", 0, 0]]), "the header is damaged"),
        (in_header(streams=[[0, "s", 99, 0]]), "the header is damaged"),
        (in_header(steps=[["s", 0, 0, 40, -1, -1]]), "begins or ends outside the 40 ops"),
        (in_header(origin_ns=2**70), "the header is damaged"),
        (in_header(sync=True), r"holds other columns than its header states \(sync.npy\)"),
        (in_header(attrs={"x": "|O"}), "attribute 'x' has type '|O'"),
        (in_header(attrs={"x": "<f3"}), "attribute 'x' has type '<f3'"),
        (in_header(attrs={str(number): "<i8" for number in range(1001)}), "1001 attributes"),
        (member("kind.npy", None), "holds other columns than its header states"),
        (member("extra.npy", b""), "holds other columns than its header states"),
        (member("kind.npy", b""), "not a graph file, or a damaged one"),
        (member("kind.npy", npy(np.zeros(40, np.int8))), r"kind.npy is int8\[40\], expected uint8\[40\]"),
        (member("kind.npy", npy(np.zeros(41, np.uint8))), r"kind.npy is uint8\[41\]"),
        (member("kind.npy", npy(np.zeros((40, 1), np.uint8))), r"kind.npy is uint8\[40, 1\]"),
        (member("kind.npy", npy(np.zeros(40, np.uint8))[:-1]), r"kind.npy is uint8\[40\]"),
        (member("kind.npy", npy(np.zeros(40, np.uint8), version=(2, 0))), "has .npy version"),
        (member("kind.npy", npy(np.zeros(40_000, np.uint8))), "kind.npy states 40,128 bytes, expected at most 40"),
        (member("duration_ns.npy", npy(np.full(40, -1))), "durations are never negative; 40 op"),
        (member("pred_ptr.npy", npy(np.arange(41)[::-1])), "pred_ptr doesn't cut"),
        (member("kind.npy", npy(np.array([OpKind.MARK, None] * 20), allow_pickle=True)), "states|kind.npy is object"),
    ],
)  # fmt: skip
def test_a_made_up_file_is_told_in_one_sentence(change: Any, told: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    save_graph(random_graph(0), path)
    rewritten(path, change)
    with pytest.raises(GraphError, match=told) as caught:
        load_graph(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_zip_bomb_is_refused_by_its_stated_size(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    save_graph(random_graph(0), path)
    rewritten(path, member("kind.npy", npy(np.zeros(50_000_000, np.uint8))), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(GraphError, match=r"kind.npy states 50,000,128 bytes"):
        load_graph(path)


def test_a_zip_bomb_that_lies_about_its_size_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    save_graph(random_graph(0), path)
    rewritten(path, member("kind.npy", npy(np.zeros(5_000_000, np.uint8))), zipfile.ZIP_DEFLATED)
    content = path.read_bytes()
    true, false = (number.to_bytes(4, "little") for number in (5_000_128, 168))
    assert content.count(true) == 2
    path.write_bytes(content.replace(true, false))
    with pytest.raises(GraphError, match=r"not a graph file, or a damaged one|expected uint8"):
        load_graph(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_unpack_without_limit_are_refused(method: int, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    save_graph(random_graph(0), path)
    rewritten(path, lambda members: None, method)
    with pytest.raises(GraphError, match="packed by an unusual method"):
        load_graph(path)


def test_the_reader_may_set_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    save_graph(random_graph(0), path)
    with pytest.raises(GraphError, match=r"40 ops and .* edges take more than 1,000 bytes"):
        load_graph(path, max_bytes=1000)


@SAME_FOLDER
@given(data=st.data())
def test_any_damaged_byte_is_noticed_or_harmless(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    graph = random_graph(0, ops=6)
    save_graph(graph, path, compress=data.draw(st.booleans()))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), place]))])
    try:
        assert same_graph(load_graph(path), graph)
    except GraphError as error:
        assert "\n" not in str(error)


@SAME_FOLDER
@given(content=st.binary(max_size=200))
def test_random_bytes_are_no_graph_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    path.write_bytes(content)
    with pytest.raises(GraphError):
        load_graph(path)
