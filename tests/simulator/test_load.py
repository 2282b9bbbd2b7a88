"""Loading: files, archives and directories to one trace; formats told apart, ranks found, traps harmless."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow
import pytest
from chrome_samples import profile, text, two_steps, write

from makespan.errors import TraceError
from makespan.simulator import load as load_module
from makespan.simulator.importers import chrome, kineto
from makespan.simulator.load import EXECUTION_TRACE, find_importers, load
from makespan.simulator.reading import sources
from makespan.simulator.reading.sources import HEAD_BYTES, Source, as_path, read_pieces, read_whole
from makespan.simulator.reading.unpack import find_sources
from makespan.simulator.reading.unpacked_stream import UnpackedStream
from makespan.trace import Diagnostics, RankTrace, Trace

GOOD = text(profile(two_steps()))
EXECUTION = (
    b'{"schema": "1.0.1", "pid": 1, "nodes": [{"name": "aten::mm", "id": 2, "rf_id": 4, "parent": 1, "tid": 1}]}'
)


def ranks_of(trace: Trace) -> list[int]:
    return [part.rank for part in trace]


def notes_of(trace: Trace) -> dict[str, int]:
    return trace.diagnostics.counts


# Containers


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda content: pyarrow.compress(content, codec="zstd", asbytes=True)),
        (".wrong.name", gzip.compress),
        (".two-members.gz", lambda content: gzip.compress(content[:999]) + gzip.compress(content[999:]) + b"\0" * 40),
    ],
)
def test_compressed_files(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]):
    trace = load(write(tmp_path, pack(GOOD), f"rank0.json{suffix}"), strict=True)
    assert len(trace) == 20 and not trace.diagnostics


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_tar_archives(tmp_path: Path, mode: str):
    path = tmp_path / "run.tar"
    with tarfile.open(path, mode) as archive:  # pyright: ignore
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        add(archive, "run/rank1.json.gz", gzip.compress(text(profile(two_steps(), rank=1))))
        add(archive, "../../outside/rank0.json", GOOD)
        add(archive, "run/notes.txt", b"not a trace")
    trace = load(path)
    assert ranks_of(trace) == [0, 1] and len(trace) == 40
    assert notes_of(trace) == {"skipped: hidden or no regular file": 1, "skipped: file in no known format": 1}
    assert [file.name for file in tmp_path.rglob("*")] == ["run.tar"]


def test_members_of_an_archive_can_be_opened_again_and_later(tmp_path: Path):
    path = tmp_path / "run.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number in range(3):
            add(archive, f"{number}.json", b"%d" % number * 100_000)
    found = list(find_sources(path, Diagnostics()))
    for number, each in enumerate(found):
        for _ in range(2):
            with each.source.open() as stream:
                assert stream.read() == b"%d" % number * 100_000
    walked: list[bytes] = []
    for each in find_sources(path, Diagnostics()):
        with each.source.open() as stream:
            walked.append(stream.read(5))
            assert stream.read(-1) == walked[-1][:1] * 99_995
    assert walked == [b"00000", b"11111", b"22222"]


def test_zip_archives(tmp_path: Path):
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b/rank1.json", text(profile(two_steps(), rank=1)))
        archive.writestr("../rank0.json.gz", gzip.compress(GOOD))
        archive.mkdir("folder")
    trace = load(path)
    assert ranks_of(trace) == [0, 1] and len(trace) == 40 and not trace.diagnostics


def test_broken_archives(tmp_path: Path):
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        add(archive, "rank0.json", GOOD)
        add(archive, "rank1.json", text(profile(two_steps(), rank=1)))
    whole = (tmp_path / "run.tar").read_bytes()
    cut = write(tmp_path, whole[:5500], "cut.tar")
    trace = load(cut)
    assert ranks_of(trace)[0] == 0 and len(trace.ranks[0].events) == 20
    assert any(reason.startswith(("archive broken off", "compressed data", "file ends")) for reason in notes_of(trace))
    bad = write(tmp_path, b"PK\x03\x04" + b"\0" * 100, "bad.zip")
    with pytest.raises(TraceError, match=r"bad\.zip"):
        load(bad)


def test_directories_take_what_is_a_trace_and_count_the_rest(tmp_path: Path):
    write(tmp_path, GOOD, "a/rank0.json")
    write(tmp_path, gzip.compress(text(profile(two_steps(), rank=1))), "b/deep/rank1.json.gz")
    write(tmp_path, b"just text", "README.txt")
    write(tmp_path, b"", "empty.json")
    write(tmp_path, GOOD, ".hidden.json")
    trace = load(tmp_path)
    assert ranks_of(trace) == [0, 1]
    assert notes_of(trace) == {"skipped: file in no known format": 2, "skipped: hidden or no regular file": 1}


def test_several_paths(tmp_path: Path):
    first = write(tmp_path, GOOD, "x.json")
    second = write(tmp_path, text(profile(two_steps(), rank=1)), "y.json")
    assert ranks_of(load([first, str(second)])) == ranks_of(load((second, first))) == [0, 1]


def test_a_trap_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "STREAM_BYTES", 1 << 22)
    trap = write(tmp_path, gzip.compress(b"[" + b" " * (1 << 23)), "trap.json.gz")
    with pytest.raises(TraceError, match="unpacks to more than"):
        load(trap)


# Sources


def test_whole_content_and_real_path(tmp_path: Path):
    diagnostics = Diagnostics()
    in_memory = Source("memory", b"abc", lambda: io.BytesIO(b"abc" * 1000))
    assert read_whole(in_memory, diagnostics, True) == b"abc" * 1000
    with pytest.raises(TraceError, match="memory: larger than"):
        read_whole(in_memory, diagnostics, False, limit=100)
    with as_path(in_memory, diagnostics, True) as path:
        assert path.read_bytes() == b"abc" * 1000
    assert not path.exists()
    file = write(tmp_path, b"plain", "plain")
    (found,) = find_sources(file, diagnostics)
    with as_path(found.source, diagnostics, True) as path:
        assert path == file


def test_broken_compression_gives_all_that_could_be_read():
    content = np.random.default_rng(1).integers(0, 255, 500_000, np.uint8).tobytes()
    packed = bytearray(gzip.compress(content))
    for damage, tail in (("cut", b""), ("garbled", b"\xff" * 3000)):
        broken = bytes(packed[:250_000]) + tail
        given = Source("x.gz", b"", lambda: UnpackedStream(io.BytesIO(broken)))  # noqa: B023  # pyright: ignore
        diagnostics = Diagnostics()
        read = b"".join(read_pieces(given, diagnostics, False))
        assert len(read) > 200_000 and read[:200_000] == content[:200_000], damage
        assert diagnostics.counts == {"compressed data broken off": 1}
        with pytest.raises(TraceError, match=r"x\.gz"):
            list(read_pieces(given, Diagnostics(), True))


def test_heads_are_short_and_decompressed(tmp_path: Path):
    path = write(tmp_path, gzip.compress(b"x" * 1_000_000), "x.gz")
    (found,) = find_sources(path, Diagnostics())
    assert found.source.head == b"x" * HEAD_BYTES and found.source.path is None and found.named


# Formats


def importer(title: str, claim: int) -> ModuleType:
    module = ModuleType(title)
    module.TITLE = title  # pyright: ignore
    module.recognise = lambda source: claim  # pyright: ignore
    module.read = lambda source, diagnostics, strict: [_part(source, title)]  # pyright: ignore
    return module


def _part(source: Source, title: str) -> RankTrace:
    (part,) = kineto.read(Source("inner", GOOD, lambda: io.BytesIO(GOOD)), Diagnostics(), False)
    return RankTrace(0, source.name, title, part.events, Diagnostics())


def test_certain_claims_win_and_two_of_them_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path, b"what is it", "what.bin")
    known = {"a": importer("Format A", 1), "b": importer("Format B", 2), "c": importer("Format C", 0)}
    monkeypatch.setattr(load_module, "find_importers", lambda: known)
    assert load(path).ranks[0].format == "Format B"
    known["c"] = importer("Format C", 2)
    with pytest.raises(TraceError, match=r"what\.bin: could be Format B and Format C .*what is it.*'b' or 'c'"):
        load(path)
    known["b"], known["c"] = importer("Format B", 0), importer("Format C", 0)
    assert load(path).ranks[0].format == "Format A"


def test_a_named_file_in_no_known_format_says_what_was_seen(tmp_path: Path):
    path = write(tmp_path, b"hello \xff there", "what.bin")
    with pytest.raises(TraceError, match=r"what\.bin: in no known format \(it begins with .*hello .*PyTorch Kineto"):
        load(path)
    with pytest.raises(TraceError, match="it is empty"):
        load(write(tmp_path, b"", "empty.json"))


def test_format_by_name_and_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path, GOOD)
    assert load(path, format="kineto").ranks[0].format == kineto.TITLE
    assert load(path, format="chrome").ranks[0].format == chrome.TITLE
    assert len(load(write(tmp_path, EXECUTION, "et.json"), format="pytorch_et")) == 1
    monkeypatch.setitem(sys.modules, "outside.importer", importer("Outside", 0))
    assert load(path, format="outside.importer").ranks[0].format == "Outside"
    with pytest.raises(TraceError, match=r"format 'nonsense' is not known, expected one of .*kineto"):
        load(path, format="nonsense")
    with pytest.raises(TraceError, match=r"'no\.such\.module' can't be imported"):
        load(path, format="no.such.module")
    with pytest.raises(TraceError, match=r"'os\.path' is no importer: it has no TITLE"):
        load(path, format="os.path")


def test_importers_are_found_by_scanning_the_folder():
    known = find_importers()
    assert {"kineto", "chrome"} <= set(known)
    assert all(isinstance(each.TITLE, str) and callable(each.read) for each in known.values())


def test_finding_importers_loads_no_compiler():
    code = "import sys; from makespan.simulator import load; load.find_importers(); print('numba' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_no_importer_claims_nonsense():
    for head in (b"", b"\0" * 100, b"\xff\xd8\xff", b"<html>", b"{}", b'"text"', b"12", b"{" * 70_000):
        given = Source("x", head[:HEAD_BYTES], lambda: io.BytesIO(head))  # noqa: B023
        for name, each in find_importers().items():
            assert each.recognise(given) == 0, (name, head[:20])


def test_paths_that_do_not_exist(tmp_path: Path):
    with pytest.raises(TraceError, match="no such file or directory"):
        load(tmp_path / "absent.json")
    with pytest.raises(TraceError, match="holds no trace"):
        load(tmp_path)
    with pytest.raises(TraceError, match="no path was given"):
        load([])


# Ranks


def silent(folder: Path, *names: str) -> list[Path]:
    return [write(folder, profile(two_steps(), rank=None), name) for name in names]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["run-rank-34.json"], [34]),
        (["rank5/trace.json"], [5]),
        (["worker0.pt.trace.json", "worker1.pt.trace.json"], [0, 1]),
        (["rank_3.json", "rank_11.json"], [3, 11]),
        (["trace_0.json", "trace_1.json", "trace_2.json.gz"], [0, 1, 2]),
        (["t.1.et.json", "t.0.et.json"], [1, 0]),
    ],
)
def test_ranks_from_file_names(tmp_path: Path, names: list[str], ranks: list[int]):
    paths = silent(tmp_path, *names)
    trace = load(paths)
    assert {part.source: part.rank for part in trace} == {str(p): r for p, r in zip(paths, ranks, strict=True)}
    assert notes_of(trace) == {"rank taken from the file's name": len(names)}


@pytest.mark.parametrize(
    "names",
    [
        ["timeline_01.json"],
        ["host_123.987.json", "host_124.988.json"],
        ["a_1.json", "a_3.json"],
        ["rank0.json", "other.json"],
    ],
)
def test_doubtful_names_give_places_in_line(tmp_path: Path, names: list[str]):
    trace = load(silent(tmp_path, *names))
    assert [part.source.rpartition("/")[2] for part in trace] == names and ranks_of(trace) == list(range(len(names)))
    assert notes_of(trace) == {"rank taken from the file's place in line": len(names)}


@pytest.mark.parametrize("number", ["9" * 30, "9" * 180, str(2**31), "0" * 20 + "3"])
@pytest.mark.parametrize("name", ["rank{}.json", "worker_{}.json", "run-{}.json"])
def test_numbers_of_names_that_are_no_ranks(tmp_path: Path, name: str, number: str):
    trace = load(silent(tmp_path, name.format(number)))
    assert ranks_of(trace) == [0] and notes_of(trace) == {"rank taken from the file's place in line": 1}


def test_names_within_archives_can_be_of_any_length(tmp_path: Path):
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"rank{'9' * 5000}.json", text(profile(two_steps(), rank=None)))
    assert ranks_of(load(path)) == [0]


def test_a_stated_rank_that_cannot_be_one_is_told_and_replaced(tmp_path: Path):
    path = write(tmp_path, profile(two_steps(), rank=2**40), "rank5.json")
    trace = load(path)
    assert ranks_of(trace) == [5]
    assert notes_of(trace) == {
        "stated rank that can't be one, not used": 1, "rank taken from the file's name": 1,
    }  # fmt: skip
    with pytest.raises(TraceError, match=r"rank5\.json: 1099511627776: stated rank that can't be one"):
        load(path, strict=True)


def test_silent_files_take_the_ranks_that_are_left(tmp_path: Path):
    write(tmp_path, profile(two_steps(), rank=0), "a.json")
    silent(tmp_path, "b.json")
    assert {part.source.rpartition("/")[2]: part.rank for part in load(tmp_path)} == {"a.json": 0, "b.json": 1}


def test_ranks_given_by_the_user(tmp_path: Path):
    silent(tmp_path, "left.json", "right.json")
    trace = load(tmp_path, ranks={"left.json": 7, str(tmp_path / "right.json"): 2})
    assert {part.source.rpartition("/")[2]: part.rank for part in trace} == {"left.json": 7, "right.json": 2}
    for wrong in (-1, 2**31, 2**40, True, 1.0, "1"):
        with pytest.raises(TraceError, match=rf"rank {wrong!r} for left\.json: expected a whole number from 0 to"):
            load(tmp_path, ranks={"left.json": wrong})  # pyright: ignore
    with pytest.raises(TraceError, match="claimed by two files"):
        load(tmp_path, ranks={"left.json": 1, "right.json": 1})
    with pytest.raises(TraceError, match=r"a rank was given for middle\.json, expected the name of a file"):
        load(tmp_path, ranks={"middle.json": 1})


def test_an_execution_trace_lies_beside_the_timed_trace_of_its_rank(tmp_path: Path):
    write(tmp_path, GOOD, "kineto_rank0.json")
    write(tmp_path, EXECUTION, "et_rank0.json")
    trace = load(tmp_path)
    assert ranks_of(trace) == [0] and len(trace) == 20
    beside = trace.ranks[0].metadata[EXECUTION_TRACE]
    assert beside.rank == 0 and not beside.timed and len(beside.events) == 1
    assert notes_of(trace)["execution trace kept beside the timed trace of its rank, not linked"] == 1
    alone = load(tmp_path / "et_rank0.json")
    assert ranks_of(alone) == [0] and not alone.ranks[0].timed


def test_ranks_of_one_clock_share_their_base(tmp_path: Path):
    begin = 1_700_000_000_000_000
    write(tmp_path, profile(two_steps(begin + 5_000_000), rank=0), "a.json")
    write(tmp_path, profile(two_steps(begin), rank=1), "b.json")
    write(tmp_path, profile(two_steps(1000), rank=2), "c.json")
    first, second, third = load(tmp_path)
    assert first.clock_base_ns == second.clock_base_ns == begin * 1000
    assert first.events.start_ns[0] - second.events.start_ns[0] == 5_000_000_000
    assert third.clock == "unknown" and third.events.start_ns[0] == 1_000_000
