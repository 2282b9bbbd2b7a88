"""Archives and compressed files that are damaged, joined or odd: all that can be read is, and the rest is told."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from chrome_samples import profile, text, two_steps, write

from makespan.errors import TraceError
from makespan.simulator.load import load
from makespan.simulator.reading import tar_members
from makespan.simulator.reading.sources import read_pieces
from makespan.simulator.reading.tar_sparse import HOLES
from makespan.simulator.reading.unpack import find_sources
from makespan.simulator.reading.unpacked_stream import UnpackedStream
from makespan.trace import Diagnostics

RANKS = [text(profile(two_steps(), rank=rank)) for rank in range(3)]
END = bytes(2 * tarfile.BLOCKSIZE)


def block_of(name: str, content: bytes, **facts: object) -> bytes:
    """A header, the extended ones that it needs, and the content in whole blocks."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in facts.items():
        setattr(member, key, value)
    return member.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


BLOCKS = [block_of(f"rank{rank}.json", content) for rank, content in enumerate(RANKS)]


def with_checksum(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def contents(path: Path, strict: bool = False) -> tuple[dict[str, bytes], Diagnostics]:
    """Each source's content by the name of its member, and what was noted."""
    notes = Diagnostics()
    found = {
        each.source.name.removeprefix(f"{path}:"): b"".join(read_pieces(each.source, notes, strict))
        for each in find_sources(path, notes, strict)
    }
    return found, notes


def assert_told(path: Path, reason: str, ranks: list[int], where: str = "") -> None:
    """The ranks are read, `reason` is noted once, and a strict reader refuses with it."""
    trace = load(path)
    assert [part.rank for part in trace] == ranks
    assert trace.diagnostics.counts[reason] == 1
    assert where in trace.diagnostics.places[reason][0]
    with pytest.raises(TraceError) as caught:
        load(path, strict=True)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


# Tar archives


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("between", [END, bytes(20 * 512), bytes(512)])
def test_archives_behind_one_another_are_all_read(tmp_path: Path, pack: Callable[[bytes], bytes], between: bytes):
    path = write(tmp_path, pack(BLOCKS[0] + between) + pack(BLOCKS[1] + END), "joined.tar")
    trace = load(path, strict=True)
    assert [part.rank for part in trace] == [0, 1] and len(trace) == 40
    assert trace.diagnostics.counts == {tar_members.ARCHIVES: 1}


def test_members_behind_a_damaged_header_are_read(tmp_path: Path):
    damaged = bytearray(BLOCKS[1])
    damaged[3] ^= 1
    path = write(tmp_path, BLOCKS[0] + damaged + BLOCKS[2] + END, "damaged.tar")
    assert_told(path, tar_members.NO_HEADER, [0, 2], f"{len(damaged)} bytes from byte {len(BLOCKS[0])} on")
    first = write(tmp_path, bytes(damaged) + BLOCKS[2] + END, "first.tar")
    assert_told(first, tar_members.NO_HEADER, [2])
    last = write(tmp_path, BLOCKS[2] + damaged + END, "last.tar")
    assert_told(last, tar_members.NO_HEADER, [2])


def test_members_behind_lost_or_strange_bytes_are_read(tmp_path: Path):
    shifted = write(tmp_path, BLOCKS[0] + b"strange" + BLOCKS[1] + BLOCKS[2] + END, "shifted.tar")
    assert_told(shifted, tar_members.NO_HEADER, [0, 1, 2], "7 bytes")
    far = write(tmp_path, BLOCKS[0] + b"#" * 300_001 + BLOCKS[1] + END, "far.tar")
    assert_told(far, tar_members.NO_HEADER, [0, 1], "300001 bytes")
    behind = write(tmp_path, BLOCKS[0] + END + b"strange" * 1000, "behind.tar")
    assert_told(behind, tar_members.NO_HEADER, [0], "7000 bytes")


@pytest.mark.parametrize("size", [1 << 60, (1 << 63) - 1, 100_000])
def test_a_member_that_claims_more_than_is_there(tmp_path: Path, size: int):
    header = bytearray(BLOCKS[1][:512])
    header[124:136] = b"\x80" + size.to_bytes(11, "big")
    path = write(tmp_path, BLOCKS[0] + with_checksum(header) + BLOCKS[1][512:] + END, "claims.tar")
    assert_told(path, tar_members.ENDS_EARLY, [0, 1], "bytes are missing")


def test_a_size_below_zero_is_a_damaged_header(tmp_path: Path):
    header = bytearray(BLOCKS[1][:512])
    header[124:136] = b"\xff" * 12
    path = write(tmp_path, BLOCKS[0] + with_checksum(header) + BLOCKS[1][512:] + BLOCKS[2] + END, "below.tar")
    assert_told(path, tar_members.NO_HEADER, [0, 2])


def test_an_archive_that_is_cut_off(tmp_path: Path):
    between = write(tmp_path, BLOCKS[0] + BLOCKS[1], "between.tar")
    assert_told(between, tar_members.ENDS_EARLY, [0, 1], "no end mark")
    inside = write(tmp_path, BLOCKS[0] + BLOCKS[1] + BLOCKS[2][:-512], "inside.tar")
    assert_told(inside, tar_members.ENDS_EARLY, [0, 1, 2])
    in_header = write(tmp_path, BLOCKS[0] + BLOCKS[1][:300], "header.tar")
    assert_told(in_header, tar_members.NO_HEADER, [0])
    packed = gzip.compress(b"".join(BLOCKS) + END)
    cut = write(tmp_path, packed[: len(packed) * 2 // 3], "cut.tar.gz")
    assert tar_members.ENDS_EARLY in load(cut).diagnostics.counts
    with pytest.raises(TraceError, match="compressed data ends early"):
        load(cut, strict=True)


def test_names_in_all_spellings(tmp_path: Path):
    long = "folder/" * 30 + "rank0.json"
    for spelling in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        name = long[80:] if spelling == tarfile.USTAR_FORMAT else long
        member = tarfile.TarInfo(name)
        member.size, member.pax_headers = len(RANKS[0]), {"comment": "a = b\n", "mtime": "nan"}
        with tarfile.open(tmp_path / "named.tar", "w", format=spelling) as archive:
            archive.addfile(member, io.BytesIO(RANKS[0]))
        found, notes = contents(tmp_path / "named.tar", strict=True)
        assert found == {name: RANKS[0]} and not notes
    old = with_checksum(bytearray(BLOCKS[0][:257] + bytes(8) + BLOCKS[0][265:512]))
    found, notes = contents(write(tmp_path, old + BLOCKS[0][512:] + END, "old.tar"), strict=True)
    assert found == {"rank0.json": RANKS[0]} and not notes


def test_a_header_for_all_members_holds_for_this_archive_alone(tmp_path: Path):
    records = b"15 size=000005\n"
    both = (
        block_of("global", records, type=tarfile.XGLTYPE) + block_of("a", b"12345") + END + block_of("b", b"678") + END
    )
    found, _ = contents(write(tmp_path, both, "global.tar"), strict=True)
    assert found == {"a": b"12345", "b": b"678"}


@pytest.mark.parametrize(
    ("extension", "told"),
    [
        (block_of("x", b"30 size=1\n", type=tarfile.XHDTYPE), "no record at byte 0"),
        (block_of("x", b"13 size=1_00\n", type=tarfile.XHDTYPE), "size is no number"),
        (block_of("x", b"0 size=1\n", type=tarfile.XHDTYPE), "no record at byte 0"),
        (block_of("x", b"13 comment=a\nb", type=tarfile.XHDTYPE), "no record at byte 13"),
        (block_of("x", b"n" * (1 << 21), type=tarfile.GNUTYPE_LONGNAME), "2097152 bytes long"),
    ],
)
def test_extended_headers_that_cannot_be_read(tmp_path: Path, extension: bytes, told: str):
    path = write(tmp_path, BLOCKS[0] + extension + BLOCKS[1] + END, "extended.tar")
    assert_told(path, tar_members.BAD_EXTENSION, [0, 1], told)
    alone = write(tmp_path, BLOCKS[0] + block_of("x", b"long name", type=tarfile.GNUTYPE_LONGNAME) + END, "alone.tar")
    assert_told(alone, tar_members.BAD_EXTENSION, [0], "the archive ends behind it")


def sparse_members(size: int = 3000) -> dict[str, bytes]:
    """One member in the four spellings: "begin" at 0, "middle" at 1000, `size` bytes in all."""
    stored, name = b"beginmiddle", {"GNU.sparse.name": "rank0.json"}
    header = bytearray(block_of("rank0.json", stored, type=tarfile.GNUTYPE_SPARSE)[:512])
    header[257:265] = b"ustar  \0"
    for number, value in enumerate((0, 5, 0, 0)):
        header[386 + 12 * number : 398 + 12 * number] = b"%011o\0" % value
    header[482], header[483:495] = 1, b"%011o\0" % size
    more = (b"%011o\0%011o\0" % (1000, 6)).ljust(512, b"\0")
    said = {"GNU.sparse.size": str(size)}
    repeated = b"".join(
        record(key, value)
        for key, value in [
            ("GNU.sparse.size", size), ("GNU.sparse.numblocks", 2),
            ("GNU.sparse.offset", 0), ("GNU.sparse.numbytes", 5),
            ("GNU.sparse.offset", 1000), ("GNU.sparse.numbytes", 6),
        ]
    )  # fmt: skip
    new = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    with_map = b"2\n0\n5\n1000\n6\n".ljust(512, b"\0") + stored
    return {
        "old": with_checksum(header) + more + stored.ljust(512, b"\0"),
        "0.0": block_of("x", repeated, type=tarfile.XHDTYPE) + block_of("rank0.json", stored),
        "0.1": block_of("x", stored, pax_headers=said | name | {"GNU.sparse.map": "0,5,1000,6"}),
        "1.0": block_of("x", with_map, pax_headers=new | name),
    }


def record(key: str, value: object) -> bytes:
    rest = f" {key}={value}\n".encode()
    return b"%d%s" % (len(rest) + 2, rest)


@pytest.mark.parametrize("spelling", sparse_members())
def test_sparse_members_get_their_holes_back(tmp_path: Path, spelling: str):
    path = write(tmp_path, sparse_members()[spelling] + BLOCKS[1] + END, "sparse.tar")
    found, notes = contents(path, strict=True)
    assert found == {"rank0.json": b"begin".ljust(1000, b"\0") + b"middle".ljust(2000, b"\0"), "rank1.json": RANKS[1]}
    assert not notes


@pytest.mark.parametrize("spelling", sparse_members())
@pytest.mark.parametrize("size", [500, HOLES + 3000])
def test_maps_of_holes_that_cannot_be_true(tmp_path: Path, spelling: str, size: int):
    path = write(tmp_path, sparse_members(size)[spelling] + BLOCKS[1] + END, "sparse.tar")
    assert_told(path, tar_members.BAD_MAP, [1], "its size can't be true")


@pytest.mark.parametrize("numbers", [b"9\n0\n5\n", b"x\n", b"2\n0\n5\n3\n6\n", b"1\n0\n-5\n", b"1\n0\n4\n"])
def test_maps_of_holes_before_the_data_that_are_damaged(tmp_path: Path, numbers: bytes):
    said = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "3000"}
    member = block_of("x", numbers.ljust(512, b"\0") + b"beginmiddle", pax_headers=said)
    assert_told(write(tmp_path, member + BLOCKS[1] + END, "sparse.tar"), tar_members.BAD_MAP, [1])


def test_an_archive_of_nothing_but_padding_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tar_members, "STREAM_BYTES", 1 << 20)
    for filler in (b"\0", b"#"):
        path = write(tmp_path, gzip.compress(BLOCKS[0] + END + filler * (1 << 22)), "padded.tar.gz")
        with pytest.raises(TraceError, match="belong to no member"):
            load(path)


# Zip archives


def zipped(contents: list[bytes] = RANKS, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as archive:
        for rank, content in enumerate(contents):
            archive.writestr(zipfile.ZipInfo(f"rank{rank}.json"), content, method)
    return whole.getvalue()


def test_a_member_with_a_wrong_checksum_is_read_to_its_end(tmp_path: Path):
    whole = zipped(method=zipfile.ZIP_STORED)
    assert b"gemm" in whole
    path = write(tmp_path, whole.replace(b"gemm", b"GEMM", 1), "crc.zip")
    assert_told(path, "compressed data broken off", [0, 1, 2], "its checksum")
    assert len(load(path)) == 60


def test_members_that_cannot_be_unpacked(tmp_path: Path):
    whole = zipped()
    entry = whole.rindex(b"PK\1\2")  # that of the last member
    for at, value, reason in (
        (10, 99, "skipped: member of an archive that can't be read"),
        (8, 1, "skipped: encrypted member of an archive"),
        (42, 77, "skipped: member of an archive that can't be read"),
    ):
        path = write(tmp_path, whole[: entry + at] + bytes([value]) + whole[entry + at + 1 :], "odd.zip")
        assert_told(path, reason, [0, 1], "rank2.json")


def test_what_a_zip_archive_does_not_list_is_told(tmp_path: Path):
    joined = write(tmp_path, zipped(RANKS[:1]) + zipped([b"other", RANKS[1]]), "joined.zip")
    around = "bytes before or behind a zip archive, not read"
    assert_told(joined, around, [1], f"{len(zipped(RANKS[:1]))} before and 0 behind")
    behind = write(tmp_path, zipped() + b"strange", "behind.zip")
    assert_told(behind, around, [0, 1, 2], "0 before and 7 behind")
    whole = zipped()
    second = whole.index(b"PK\1\2", whole.index(b"PK\1\2") + 1)
    swallows = write(tmp_path, whole[: second + 32] + b"\xff\xff" + whole[second + 34 :], "swallows.zip")
    reason = "zip archive whose directory doesn't list all of its members"
    assert_told(swallows, reason, [0, 1], "3 are counted, 2 are there")


def test_a_zip_archive_that_is_cut_off(tmp_path: Path):
    cut = write(tmp_path, zipped()[:-30], "folder/cut.zip")
    with pytest.raises(TraceError, match=r"cut\.zip: broken zip archive .* copy it again"):
        load(cut)
    write(tmp_path, RANKS[0], "folder/rank0.json")
    assert_told(tmp_path / "folder", "skipped: broken zip archive", [0], "cut.zip")


# Compressed files


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_what_lies_before_damage_is_unpacked_also_of_small_files(pack: Callable[[bytes], bytes]):
    content = random.Random(1).randbytes(60_000).hex().encode()
    packed = bytearray(pack(content))
    packed[-6] ^= 1  # in a checksum, or the end of an index
    stream = UnpackedStream(io.BytesIO(bytes(packed)))
    unpacked = stream.read()
    assert stream.damage and content.startswith(unpacked) and len(unpacked) > len(content) - 4096


def test_compressed_files_without_readable_content_say_so(tmp_path: Path):
    path = write(tmp_path, gzip.compress(RANKS[0])[:12], "folder/short.json.gz")
    with pytest.raises(TraceError, match=r"short\.json\.gz: in no known format .*can't be unpacked to its end"):
        load(path)
    write(tmp_path, RANKS[0], "folder/rank0.json")
    assert_told(tmp_path / "folder", "compressed data broken off", [0], "short.json.gz")


# Paths without a trace


@pytest.mark.parametrize("name", ["empty.zip", "text.zip", "empty.tar", "text.tar", "folder"])
def test_a_named_archive_or_folder_without_a_trace(tmp_path: Path, name: str):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name.endswith(".zip"):
        path.write_bytes(zipped([] if name.startswith("empty") else [b"only text"]))
    else:
        path.write_bytes((b"" if name.startswith("empty") else block_of("a.txt", b"only text")) + bytes(10240))
    rank0 = write(tmp_path, RANKS[0])
    if name != "empty.tar":  # zeros are no mark of an archive
        trace = load([rank0, path])
        assert trace.diagnostics.counts["skipped: archive or folder without a trace"] == 1
    for paths in ([path], [rank0, path]):
        with pytest.raises(TraceError, match=f"{name}: (holds no trace; |in no known format)"):
            load(paths, strict=True)
    with pytest.raises(TraceError, match=f"{name}: (holds no trace; |in no known format)"):
        load(path)


# Any damage


SEEDS = {
    "ustar": b"".join(BLOCKS) + END,
    "long names": block_of("n" * 300, RANKS[0]) + block_of("m" * 300, gzip.compress(RANKS[1], mtime=0)) + END,
    **{f"sparse {spelling}": member + BLOCKS[1] + END for spelling, member in sparse_members().items()},
    "tar.gz": gzip.compress(b"".join(BLOCKS) + END, mtime=0),
    "tar.zst": pyarrow.compress(b"".join(BLOCKS) + END, codec="zstd", asbytes=True),
    **{
        f"zip {method}": zipped(method=method)
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    },
    "gz": gzip.compress(RANKS[0], mtime=0),
    "bz2": bz2.compress(RANKS[0]),
    "xz": lzma.compress(RANKS[0]),
    "zst": pyarrow.compress(RANKS[0], codec="zstd", asbytes=True),
}
CHECKED = ("tar.gz", "zip", "gz", "bz2", "xz")
"""Formats with checksums over everything: what differs must have been told."""


def damaged(content: bytes, chance: random.Random) -> bytes:
    """One cut, flip, wrong size or wrong header whose checksum is right."""
    at, how = chance.randrange(len(content)), chance.randrange(6)
    if how == 0:
        return content[:at]
    if how == 1:
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    if how == 2:
        return content[:at] + content[at + chance.choice([1, 12, 512]) :]
    if how == 3:
        return (
            content[:at] + struct.pack("<Q", chance.choice([0, 1, 1 << 31, 1 << 63, (1 << 64) - 1])) + content[at + 8 :]
        )
    block = at // 512 * 512
    header = bytearray(content[block : block + 512].ljust(512, b"\0"))
    place = chance.choice([124, 156, 345, 386, 398, 482, 483])
    header[place : place + 12] = chance.choice([b"\xff", b"\0", b"7", b"L", b"S", b"x", b"g", b"\x80"]) * 12
    return content[:block] + with_checksum(header) + content[block + 512 :]


@pytest.mark.parametrize("name", SEEDS)
def test_whatever_is_damaged_is_told_in_a_sentence(tmp_path: Path, name: str):
    whole, notes = contents(write(tmp_path, SEEDS[name], "damaged"), strict=True)
    assert whole and not notes
    chance = random.Random(name)
    for _ in range(60):
        path = write(tmp_path, damaged(SEEDS[name], chance), "damaged")
        refused = False
        try:
            contents(path, strict=True)
        except TraceError as error:
            refused = True
            assert str(path) in str(error) and "\n" not in str(error)
        try:
            found, notes = contents(path)
        except TraceError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            continue
        told = {reason for reason in notes.counts if reason != tar_members.ARCHIVES}
        assert refused == bool(told) or told == {"skipped: hidden or no regular file"}
        if name.startswith(CHECKED) and found != whole and list(found) != [str(path)]:
            assert told
