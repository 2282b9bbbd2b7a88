"""Selectors: which ops a what-if is about, as text: `gpu`, `rank:3,compute`, `name:aten::mm|bmm`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from makespan.errors import SelectorError
from makespan.graph import COMMUNICATION, Graph, OpKind, StreamKind
from makespan.resolve import did_you_mean
from makespan.text import brief, cut, one_line, sound

TEXT_LIMIT: Final = 1_000
"""Longest selector and longest regular expression that is read, in characters."""

_KINDS: Final = {kind.name.lower(): kind for kind in OpKind}


def parse_scale(text: str) -> tuple[str, float]:
    """Selector and factor of `SELECTOR=FACTOR`; the last `=` counts, so that a regular expression may hold others.

    >>> parse_scale("name:a=b=0.5")
    ('name:a=b', 0.5)
    """
    selector, equals, number = text.rpartition("=")
    try:
        factor = float(number) if equals else math.nan
    except ValueError:
        factor = math.nan
    if not selector or not 0 <= factor < math.inf:
        raise SelectorError(
            f"scale {brief(text)}: expected SELECTOR=FACTOR with a factor of 0 or more, such as gpu=0.5"
        )
    return selector, factor


def parse_move(text: str) -> tuple[str, str]:
    """Selector and stream of `SELECTOR=STREAM`; the last `=` counts.

    >>> parse_move("comm=side stream")
    ('comm', 'side stream')
    """
    selector, equals, stream = text.rpartition("=")
    if not equals or not selector.strip() or not stream.strip():
        raise SelectorError(f"move {brief(text)}: expected SELECTOR=STREAM, such as comm=20")
    if len(stream) > TEXT_LIMIT or not stream.isprintable():
        raise SelectorError(f"move {brief(text)}: a stream's name is at most {TEXT_LIMIT} printable characters")
    return selector, stream.strip()


def select(graph: Graph, text: str) -> NDArray[np.bool_]:
    """(n,) bool: the ops that all parts of selector `text` name.

    Parts, joined by `,` (a comma splits only before a part's beginning): `cpu` host ops and think time, `gpu`
    work on device streams, `comm` collectives, sends and receives, `compute` kernels (without device streams:
    host ops), `all`; `rank:NUMBER`, `stream:NAME` (a stream's name or its number on the device), `kind:NAME`,
    `step:NAME` (a step's name, or the number it ends with), `name:REGEX` (found anywhere in an op's name, RE2
    syntax, which matches in linear time), `under:REGEX` (the same of the outermost event around a host op, or of
    the innermost user range around it or around the launch of device work). Raises SelectorError where the text
    is malformed or names no op.
    """
    if len(text) > TEXT_LIMIT:
        raise SelectorError(f"a selector of {len(text)} characters: expected at most {TEXT_LIMIT}")
    if sound(text) != text:
        raise SelectorError(f"selector {brief(text)} holds bytes that are no text; give it in UTF-8")
    chosen = np.ones(len(graph), np.bool_)
    for part in _split(text):
        key, colon, value = part.partition(":")
        found = _PARTS[key](graph, value) if colon else _WORDS[key](graph)
        if not np.any(found):
            raise SelectorError(f"selector {part!r} selects nothing: {_what_exists(graph, key)}")
        chosen &= found
    if not np.any(chosen):
        raise SelectorError(f"selector {text!r} selects nothing: no op fits all of its parts at once")
    return chosen


def _split(text: str) -> list[str]:
    """The parts of a selector, each with a known beginning."""
    parts = [part.strip() for part in _COMMA.split(text)]
    for part in parts:
        key, colon, value = part.partition(":")
        if (colon and key in _PARTS and value) or (not colon and key in _WORDS):
            continue
        if colon and key in _PARTS:
            raise SelectorError(f"selector {text!r}: nothing follows {part!r}")
        known = [*_WORDS, *(f"{name}:" for name in _PARTS)]
        raise SelectorError(f"selector {part!r} is unknown{did_you_mean(key + colon, known)}")
    return parts


def _cpu(graph: Graph) -> NDArray[np.bool_]:
    return graph.on_streams(StreamKind.HOST) & ~_comm(graph)


def _gpu(graph: Graph) -> NDArray[np.bool_]:
    return graph.on_streams(StreamKind.DEVICE)


def _comm(graph: Graph) -> NDArray[np.bool_]:
    return np.isin(graph.kind, COMMUNICATION)


def _compute(graph: Graph) -> NDArray[np.bool_]:
    kernels = graph.kind == OpKind.COMPUTE
    return kernels if np.any(_gpu(graph)) else kernels | (graph.kind == OpKind.HOST)


def _all(graph: Graph) -> NDArray[np.bool_]:
    return np.ones(len(graph), np.bool_)


def _rank(graph: Graph, value: str) -> NDArray[np.bool_]:
    if not value.isdecimal():
        raise SelectorError(f"selector 'rank:{value}': expected a number, such as rank:0")
    return graph.rank == int(value)


def _stream(graph: Graph, value: str) -> NDArray[np.bool_]:
    # Work that overlaps on a stream was put on further streams of the same name.
    wanted = re.compile(rf"(stream )?{re.escape(value)}( \(overlap \d+\))?", re.IGNORECASE)
    fits = np.fromiter((wanted.fullmatch(item.name) is not None for item in graph.streams), np.bool_)
    return fits[graph.stream]


def _kind(graph: Graph, value: str) -> NDArray[np.bool_]:
    kind = _KINDS.get(value.lower())
    if kind is None:
        raise SelectorError(f"selector 'kind:{value}' is unknown{did_you_mean(value.lower(), _KINDS)}")
    return graph.kind == kind


def _step(graph: Graph, value: str) -> NDArray[np.bool_]:
    names = graph.step_names
    fits = [name == value for name in names]
    if value.isdecimal() and not any(fits):
        number = re.compile(rf"(?:.*\D)?0*{value}")
        fits = [number.fullmatch(name) is not None for name in names]
    return np.array([*fits, False], np.bool_)[graph.step]


def _name(graph: Graph, value: str) -> NDArray[np.bool_]:
    return _names_with(graph, value)[graph.name]


def _under(graph: Graph, value: str) -> NDArray[np.bool_]:
    fits = np.append(_names_with(graph, value), False)
    around = [graph.attrs[name] for name in ("outer", "user_range") if name in graph.attrs]
    if not around:
        raise SelectorError(f"selector 'under:{value}': this graph doesn't tell what its ops ran inside")
    return np.logical_or.reduce([fits[names] for names in around])


def _names_with(graph: Graph, value: str) -> NDArray[np.bool_]:
    """Which of the graph's names the expression `value` is found in."""
    # RE2, which never backtracks: the pattern may come from anywhere.
    import pyarrow as arrow
    from pyarrow import compute

    try:
        names = arrow.array([sound(name) for name in graph.names], arrow.string())
        fits = compute.call_function("match_substring_regex", [names], compute.MatchSubstringOptions(value))
    except arrow.ArrowException as error:
        raise SelectorError(f"{value!r} isn't a regular expression of RE2: {one_line(str(error))}") from None
    return fits.to_numpy(zero_copy_only=False)


_WORDS: Final[dict[str, Callable[[Graph], Any]]] = {
    "cpu": _cpu, "gpu": _gpu, "comm": _comm, "compute": _compute, "all": _all,
}  # fmt: skip
_PARTS: Final[dict[str, Callable[[Graph, str], Any]]] = {
    "rank": _rank, "stream": _stream, "kind": _kind, "name": _name, "step": _step, "under": _under,
}  # fmt: skip
_COMMA: Final = re.compile(rf",(?=\s*(?:(?:{'|'.join(_WORDS)})\s*(?:,|$)|(?:{'|'.join(_PARTS)}):))")


def _what_exists(graph: Graph, key: str) -> str:
    """What a part could have named in this graph."""
    if key == "rank":
        return "the ranks are " + _listed(str(rank) for rank in np.unique(graph.rank))
    if key == "stream":
        return "the streams are " + _listed(stream.name for stream in graph.streams)
    if key == "step":
        return "the steps are " + _listed(graph.step_names)
    kinds = _listed(OpKind(kind).name.lower() for kind in np.unique(graph.kind))
    return f"the graph has {len(graph)} ops of the kinds {kinds}"


def _listed(names: Iterable[str]) -> str:
    """The first names of many."""
    distinct = [cut(name) for name in dict.fromkeys(names)]
    more = f" and {len(distinct) - 12} more" if len(distinct) > 12 else ""
    return (", ".join(distinct[:12]) or "none") + more
