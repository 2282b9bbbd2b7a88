"""Graph files: a graph as .npz, exactly, without pickle, and checked before a byte of it is believed.

One array for each column, under its own name, and `header`: a JSON text as UTF-8 bytes with the names, streams
and steps. The columns of a graph have three lengths (ops, edges, ops + 1), which a Parquet file would need three
tables for; an .npz keeps dtypes and NaN patterns exactly, reads at the speed of the disk, and
`numpy.load(path)["duration_ns"]` works wherever numpy does. Columns are deflated lightly where asked for.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.errors import GraphError
from makespan.graph import EDGE_COLUMNS, OP_COLUMNS, Graph, Step, Stream, StreamKind
from makespan.new_file import new_file

FORMAT: Final = 1
MAX_BYTES: Final = 16 << 30
"""Most that the columns of a file may take in memory, unless the reader allows more."""
MAX_HEADER_BYTES: Final = 256 << 20
_NPY_HEADER_BYTES: Final = 4096
_MAX_ATTRS: Final = 1000

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _StoredStream(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    rank: _Int32
    name: str
    kind: StreamKind
    device: _Int32


class _StoredStep(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    rank: _Int32
    begin_op: _Count
    end_op: _Count
    measured_start_ns: _Int64
    measured_end_ns: _Int64


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    ops: _Count
    edges: _Count
    names: tuple[str, ...]
    streams: tuple[_StoredStream, ...]
    step_names: tuple[str, ...]
    steps: tuple[_StoredStep, ...]
    attrs: dict[str, str]
    sync: bool
    origin_ns: _Int64
    notes: dict[str, _Int64]


def save_graph(graph: Graph, path: str | Path, *, compress: bool = False) -> None:
    """Write `graph` to `path`; `load_graph` gives the same graph back, every dtype and value.

    Raises GraphError where a graph can't be kept: attributes that are not plain numbers.
    """
    for name, column in graph.attrs.items():
        if not name.isprintable() or not name or _plain_dtype(column.dtype.str) is None or column.ndim != 1:
            raise GraphError(
                f"attribute {name!r} is {column.dtype}{list(column.shape)}, expected one plain number for each op"
            )
    header = {
        "format": FORMAT,
        "ops": len(graph),
        "edges": graph.edge_count,
        "names": graph.names,
        "streams": [(stream.rank, stream.name, stream.kind, stream.device) for stream in graph.streams],
        "step_names": graph.step_names,
        "steps": [
            (step.name, step.rank, step.begin_op, step.end_op, step.measured_start_ns, step.measured_end_ns)
            for step in graph.steps
        ],
        "attrs": {name: column.dtype.str for name, column in graph.attrs.items()},
        "sync": graph.sync is not None,
        "origin_ns": graph.origin_ns,
        "notes": dict(graph.notes),
    }
    # json writes ASCII, so that half surrogates in names from damaged traces come through.
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    try:
        with (
            new_file(path) as file,
            zipfile.ZipFile(file, "w", method, compresslevel=1 if compress else None) as archive,
        ):
            for name, column in (("header", text), *graph.columns().items()):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, column, allow_pickle=False)
    except OSError as error:
        raise GraphError(f"{path}: can't be written ({error.strerror or error})") from None


def load_graph(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Graph:
    """Read a graph file and verify the graph.

    Raises GraphError, in one sentence, for whatever is damaged, made up, larger than `max_bytes`, or not a
    graph file at all; sizes are compared with what the header states before anything is unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, str(path), max_bytes)
    except OSError as error:
        raise GraphError(f"{path}: can't be read ({error.strerror or error}); expected a graph file") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise GraphError(f"{path}: not a graph file, or a damaged one ({error})") from None


def _read(archive: zipfile.ZipFile, path: str, max_bytes: int) -> Graph:
    members = {info.filename: info for info in archive.infolist()}
    if "header.npy" not in members:
        raise GraphError(f"{path}: has no header; expected a graph file as `makespan` writes it")
    header = _header(_array(archive, members["header.npy"], np.dtype(np.uint8), None, path), path)
    expected = _expected_columns(header, path)
    if sum(length * dtype.itemsize for dtype, length in expected.values()) > max_bytes:
        raise GraphError(f"{path}: {header.ops:,} ops and {header.edges:,} edges take more than {max_bytes:,} bytes")
    wanted = {"header.npy", *(f"{name}.npy" for name in expected)}
    if wanted != members.keys() or len(members) != len(archive.infolist()):
        odd = sorted(wanted ^ members.keys())
        raise GraphError(f"{path}: holds other columns than its header states ({', '.join(odd[:3]) or 'some twice'})")
    columns = {
        name: _array(archive, members[f"{name}.npy"], dtype, length, path) for name, (dtype, length) in expected.items()
    }
    graph = Graph(
        **{name: column for name, column in columns.items() if not name.startswith("attrs.")},
        names=header.names,
        streams=tuple(Stream(item.rank, item.name, item.kind, item.device) for item in header.streams),
        step_names=header.step_names,
        steps=tuple(
            Step(item.name, item.rank, item.begin_op, item.end_op, item.measured_start_ns, item.measured_end_ns)
            for item in header.steps
        ),
        attrs={name: columns[f"attrs.{name}"] for name in header.attrs},
        origin_ns=header.origin_ns,
        notes=header.notes,
    )
    try:
        graph.verify()
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    return graph


def _header(text: NDArray[np.uint8], path: str) -> _Header:
    try:
        raw: Any = json.loads(text.tobytes())
        stated = raw.get("format") if isinstance(raw, dict) else None
        if stated != FORMAT:
            raise GraphError(f"{path}: graph file of format {stated!r}, but this makespan reads format {FORMAT}")
        return msgspec.convert(raw, _Header)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise GraphError(f"{path}: the header is damaged ({error})") from None


def _expected_columns(header: _Header, path: str) -> dict[str, tuple[np.dtype[Any], int]]:
    """dtype and length of every column that a file with this header must hold."""
    expected = {name: (np.dtype(dtype), header.ops) for name, dtype in OP_COLUMNS.items()}
    expected |= {name: (np.dtype(dtype), header.edges) for name, dtype in EDGE_COLUMNS.items()}
    expected["pred_ptr"] = (np.dtype(np.int64), header.ops + 1)
    if header.sync:
        expected["sync"] = (np.dtype(np.uint8), header.ops)
    if len(header.attrs) > _MAX_ATTRS:
        raise GraphError(f"{path}: {len(header.attrs)} attributes, expected at most {_MAX_ATTRS}")
    for name, stated in header.attrs.items():
        dtype = _plain_dtype(stated)
        if dtype is None:
            raise GraphError(f"{path}: attribute {name!r} has type {stated!r}, expected plain numbers")
        expected[f"attrs.{name}"] = (dtype, header.ops)
    return expected


def _plain_dtype(stated: str) -> np.dtype[Any] | None:
    """The dtype of plain numbers that `stated` names ("<i8"), or None."""
    if len(stated) == 3 and stated[0] in "<>|=" and stated[1] in "iufb" and stated[2] in "1248":
        try:
            return np.dtype(stated)
        except TypeError:
            return None
    return None


def _array(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, dtype: np.dtype[Any], length: int | None, path: str
) -> NDArray[Any]:
    """One column, after its stated size has been compared with what is expected of it."""
    limit = MAX_HEADER_BYTES if length is None else length * dtype.itemsize
    if info.file_size > limit + _NPY_HEADER_BYTES:
        raise GraphError(f"{path}: {info.filename} states {info.file_size:,} bytes, expected at most {limit:,}")
    # The other methods of the zip format unpack without a limit.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise GraphError(f"{path}: {info.filename} is packed by an unusual method; expected stored or deflated")
    content = archive.read(info)
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise GraphError(f"{path}: {info.filename} has .npy version {version}, expected 1.0")
    shape, _, stated = np.lib.format.read_array_header_1_0(stream, max_header_size=_NPY_HEADER_BYTES)
    held = len(content) - stream.tell()
    if stated != dtype or len(shape) != 1 or shape[0] * dtype.itemsize != held or length not in (None, shape[0]):
        raise GraphError(f"{path}: {info.filename} is {stated}{list(shape)}, expected {dtype}[{length}]")
    return np.frombuffer(content, dtype, offset=stream.tell())
