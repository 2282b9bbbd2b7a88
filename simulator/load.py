"""Loading: any number of paths to one trace; formats are detected, ranks found, clocks put on one base."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from makespan.capture_file import CAPTURE_SUFFIX, PROFILE_SUFFIX
from makespan.errors import TraceError
from makespan.simulator import importers as importers_folder
from makespan.simulator.reading.link_et import link
from makespan.simulator.reading.ranks import assign_ranks, check_names
from makespan.simulator.reading.sources import BROKEN_OFF, Source, report, told
from makespan.simulator.reading.unpack import Found, find_sources
from makespan.trace import Diagnostics, RankTrace, Trace

EXECUTION_TRACE: Final = "execution_trace"
"""Under this key a rank's metadata holds the RankTrace of the execution trace that lay beside it."""


class Importer(Protocol):
    """What a module of `simulator.importers` offers; see there."""

    TITLE: str

    def recognise(self, source: Source) -> int:
        """0 no, 1 as a last resort, 2 certainly."""
        ...

    def read(self, source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]:
        """The events of each rank that the source holds."""
        ...


def load(
    paths: str | Path | Iterable[str | Path],
    *,
    strict: bool = False,
    ranks: Mapping[str, int] | None = None,
    format: str | None = None,
) -> Trace:
    """The trace in `paths`: files, compressed files, archives or directories, of one rank or many.

    Each file's format is detected, unless `format` names an importer (its module's name, or `package.module` for
    one from outside). A rank is what its file says, else what `ranks` gives for the file's name, else what the
    file names tell, else the place in line; the last two are noted in the diagnostics. An execution trace without
    times that has the rank of a timed trace becomes that one's `metadata["execution_trace"]`. Ranks on one clock
    get one clock base. `strict` raises TraceError for damage that would otherwise be repaired and counted, and for a
    path without a trace beside others. Raises TraceError where a path does not exist, a named file is in no known
    format, no path holds a trace, or two files claim one rank.
    """
    chosen = [paths] if isinstance(paths, str | Path) else list(paths)
    if not chosen:
        raise TraceError("no path was given, expected at least one trace file or directory")
    known = _named_importer(format) if format is not None else find_importers()
    notes = Diagnostics()
    parts: list[RankTrace] = []
    empty: list[str | Path] = []
    for path in chosen:
        before = len(parts)
        for found in _without_profiles(find_sources(path, notes, strict), notes):
            importer = _importer_for(found, known, found.named or format is not None, notes, strict)
            if importer is not None:
                diagnostics = Diagnostics()
                parts.extend(importer.read(found.source, diagnostics, strict))
        if len(parts) == before:
            empty.append(path)
    if empty and (strict or not parts):
        raise _no_trace(empty, notes, known)
    for path in empty:
        notes.add("skipped: archive or folder without a trace", str(path))
    check_names(parts, ranks or {})
    timed = assign_ranks([part for part in parts if part.timed], ranks or {}, notes)
    untimed = assign_ranks([part for part in parts if not part.timed], ranks or {}, notes)
    joined = on_one_base(_beside(timed, untimed, notes))
    joined[0].diagnostics.merge(notes)
    return Trace(tuple(sorted(joined, key=lambda part: part.rank)))


def find_importers() -> dict[str, Importer]:
    """All importers of the folder, by the names that `format` takes."""
    return {name: _as_importer(module) for name, module in _importer_modules().items()}


def _importer_modules() -> dict[str, str]:
    folder = importers_folder
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return {name.replace("_", "-"): f"{folder.__name__}.{name}" for name in names}


def on_one_base(parts: Iterable[RankTrace]) -> list[RankTrace]:
    """The parts with one clock base for all that share a known clock, so that their times compare directly."""
    parts = list(parts)
    lowest: dict[str, int] = {}
    for part in parts:
        if part.clock != "unknown":
            lowest[part.clock] = min(part.clock_base_ns, lowest.get(part.clock, part.clock_base_ns))
    moved: list[RankTrace] = []
    for part in parts:
        shift_ns = part.clock_base_ns - lowest.get(part.clock, part.clock_base_ns)
        if shift_ns:
            events = replace(part.events, start_ns=part.events.start_ns + shift_ns)
            part = replace(part, events=events, clock_base_ns=part.clock_base_ns - shift_ns)
        moved.append(part)
    return moved


def _named_importer(name: str) -> dict[str, Importer]:
    if "." in name:
        return {name: _as_importer(name)}
    known = _importer_modules()
    module = known.get(name.replace("_", "-"))
    if module is None:
        raise TraceError(f"format {name!r} is not known, expected one of {', '.join(known)} or package.module")
    return {name: _as_importer(module)}


def _as_importer(module_name: str) -> Importer:
    try:
        module: Any = import_module(module_name)
    except ImportError as error:
        raise TraceError(f"importer {module_name!r} can't be imported: {error}") from None
    for name in ("TITLE", "recognise", "read"):
        if not hasattr(module, name):
            raise TraceError(f"module {module_name!r} is no importer: it has no {name}")
    return cast(Importer, module)


def _importer_for(
    found: Found, known: Mapping[str, Importer], required: bool, notes: Diagnostics, strict: bool
) -> Importer | None:
    """The one importer that claims the source; None, noted, where none does and the source isn't `required`."""
    source = found.source
    if len(known) == 1 and required:
        return next(iter(known.values()))
    claims = {name: importer.recognise(source) for name, importer in known.items()}
    best = max(claims.values(), default=0)
    claimants = [name for name, claim in claims.items() if claim == best and best > 0]
    if len(claimants) == 1:
        return known[claimants[0]]
    begins = (
        f"it begins with {source.head[:40].decode('utf-8', 'backslashreplace')!r}" if source.head else "it is empty"
    )
    if found.damage:
        begins += f", and can't be unpacked to its end: {found.damage}"
    if claimants:
        titles = " and ".join(known[name].TITLE for name in claimants)
        raise TraceError(
            f"{source.name}: could be {titles} ({begins}); say which with format={' or '.join(map(repr, claimants))}"
        )
    if required:
        raise TraceError(f"{source.name}: in no known format ({begins}); known formats: {_titles(known)}")
    if found.damage:
        report(notes, strict, BROKEN_OFF, f"{source.name}: {found.damage}")
    notes.add("skipped: file in no known format", source.name)
    return None


def _beside(timed: list[RankTrace], untimed: list[RankTrace], notes: Diagnostics) -> Iterator[RankTrace]:
    """Timed traces, linked with the execution trace of their rank where ids allow, and those that remain.

    An execution trace beside a timed one, linked or not, stays at hand as metadata.
    """
    waiting = list(untimed)
    for part in timed:
        own = next((other for other in waiting if other.rank == part.rank), None)
        if own is not None:
            waiting.remove(own)
            try:
                part = link(own, part)
                notes.add("execution trace linked with the timed trace of its rank", own.source)
            except TraceError:
                notes.add("execution trace kept beside the timed trace of its rank, not linked", own.source)
            part = replace(part, metadata={**part.metadata, EXECUTION_TRACE: own})
        yield part
    yield from waiting


def _without_profiles(found: Iterable[Found], notes: Diagnostics) -> Iterator[Found]:
    """What was found, less the full profiles that lie beside captures of the same ranks."""
    for each in found:
        path = each.source.name
        captured = Path(path.removesuffix(PROFILE_SUFFIX) + CAPTURE_SUFFIX)
        if path.endswith(PROFILE_SUFFIX) and not each.named and captured.is_file():
            notes.add("full profile left aside for the capture beside it; name its file to load it", path)
        else:
            yield each


def _titles(known: Mapping[str, Importer]) -> str:
    return ", ".join(importer.TITLE for importer in known.values())


def _no_trace(paths: Iterable[str | Path], notes: Diagnostics, known: Mapping[str, Importer]) -> TraceError:
    return TraceError(f"{', '.join(map(str, paths))}: holds no trace; {told(notes)}known formats: {_titles(known)}")
