"""The command line: one verb a question, `--json` for machines, exit code 2 and one sentence for bad input."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from makespan.errors import MakespanError
from makespan.output import complain, give_up_output, prepare_output, print_json, printing
from makespan.progress import working
from makespan.text import literal

if TYPE_CHECKING:
    from makespan.graph import Graph
    from makespan.trace import Trace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Paths = Annotated[
    list[Path],
    typer.Argument(
        help="Trace files, archives or folders, of one rank or many; or a graph (.npz).", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse damaged traces instead of repairing them.")]
Order = Annotated[
    Literal["recorded", "ready", "contended", "dpro"],
    typer.Option(
        help="recorded: keep each stream's order; ready: start what is ready first; contended: as ready, while "
        "computation and communication slow each other down; dpro."
    ),
]


def main() -> None:
    """Entry point of `makespan`."""
    try:
        prepare_output()
        app()
    except MakespanError as error:
        complain(str(error))
        sys.exit(2)
    except MemoryError:
        complain("there is not enough memory for that; give it less at once, or run it on a machine with more")
        sys.exit(2)
    except OSError as error:
        # Printed help that can't leave, or a file that vanished while it was read.
        give_up_output()
        complain(f"{error.filename or 'input or output'}: {error.strerror or error}")
        sys.exit(2)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """How long does a training or serving step take, where does the time go, and what would change it?"""
    if version:
        from importlib.metadata import version as installed

        with printing():
            print(f"makespan {installed('makespan')}")
        raise typer.Exit


@app.command()
def replay(
    paths: Paths,
    order: Order = "recorded",
    timeline: Annotated[Path | None, typer.Option(help="Write the schedule for ui.perfetto.dev.")] = None,
    graph_file: Annotated[Path | None, typer.Option("--graph", help="Write the graph as .npz.")] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Replay a captured trace: iteration time, where it goes, critical path."""
    from makespan import api
    from makespan.report import print_replay
    from makespan.summary import replay_summary

    _expect_other_file(paths, timeline, graph_file)
    seconds: dict[str, float] = {}
    trace, graph = _load_and_build(paths, strict, seconds)
    with working("replaying"), _timed(seconds, "replay"):
        result = api.replay(graph, order)
    with working("analysing"), _timed(seconds, "analysis"):
        summary = replay_summary(result, trace, seconds)
    summary["seconds"] = {key: round(value, 3) for key, value in seconds.items()}
    if timeline is not None:
        with working(f"writing {timeline}"):
            result.to_chrome(timeline, trace)
    if graph_file is not None:
        with working(f"writing {graph_file}"):
            api.save_graph(graph, graph_file)
    with printing():
        if json:
            print_json(summary)
        else:
            print_replay(summary, _title(paths), _console())
            _tell_written(timeline, graph_file)


@app.command()
def whatif(
    paths: Paths,
    scale: Annotated[
        list[str] | None, typer.Option(help="SELECTOR=FACTOR, such as gpu=0.5: durations times the factor; repeatable.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(help="SELECTOR: these ops vanish; repeatable.")] = None,
    move: Annotated[
        list[str] | None, typer.Option(help="SELECTOR=STREAM: these ops run on another stream; repeatable.")
    ] = None,
    order: Order = "recorded",
    timeline: Annotated[Path | None, typer.Option(help="Write the changed schedule for ui.perfetto.dev.")] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Replay a trace with some ops scaled, removed or moved, beside the trace as it is.

    Selectors: cpu, gpu, comm, compute, all, rank:3, stream:7, kind:NAME, name:REGEX, under:REGEX, step:2; joined by a
    comma they must all hold.
    """
    from makespan import api
    from makespan.report import print_what_if
    from makespan.summary import what_if_summary

    _expect_other_file(paths, timeline)
    seconds: dict[str, float] = {}
    _, graph = _load_and_build(paths, strict, seconds)
    with working("replaying"), _timed(seconds, "replay"):
        result = api.whatif(graph, scale=scale or (), remove=remove or (), move=move or (), order=order)
    summary = what_if_summary(result, seconds)
    if timeline is not None:
        with working(f"writing {timeline}"):
            result.changed.to_chrome(timeline)
    with printing():
        if json:
            print_json(summary)
        else:
            print_what_if(summary, _title(paths), _console())
            _tell_written(timeline, None)


@app.command()
def compare(
    baseline: Annotated[Path, typer.Argument(help="A trace or graph.", show_default=False)],
    other: Annotated[Path, typer.Argument(help="The trace or graph to hold against it.", show_default=False)],
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Tell what differs between two traces: by step, by kind and by op."""
    from makespan import api
    from makespan.report import print_comparison
    from makespan.summary import comparison_summary

    seconds: dict[str, float] = {}
    _, first = _load_and_build([baseline], strict, seconds)
    _, second = _load_and_build([other], strict, seconds)
    with working("comparing"):
        summary = comparison_summary(api.compare(first, second), seconds)
    with printing():
        if json:
            print_json(summary)
        else:
            print_comparison(summary, f"{_title([baseline])} → {_title([other])}", _console())


@app.command()
def optimize(
    paths: Paths,
    passes: Annotated[str, typer.Option(help="Names of passes, joined by commas, in their order.")] = "tensor-fusion",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="PASS.NAME=VALUE, such as tensor-partition.parts=4; repeatable."),
    ] = None,
    communication: Annotated[
        Path | None, typer.Option(help="What makespan.probe_communication measured on the job's network (JSON).")
    ] = None,
    cluster: Annotated[Path | None, typer.Option(help="A cluster (TOML), whose links tell what messages cost.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Write the plan, for makespan export and makespan.lower.")] = None,
    seed: Annotated[int, typer.Option(help="Of all randomness in the search.")] = 0,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Find what makes a captured job faster, and print the line of code that does it."""
    from makespan import planning
    from makespan.report import print_optimized
    from makespan.summary import optimized_summary

    _expect_other_file([*paths, *(each for each in (communication, cluster) if each is not None)], plan)
    seconds: dict[str, float] = {}
    wanted = [name.strip() for name in passes.split(",") if name.strip()]
    given = planning.parse_settings(settings or [], wanted)
    hardware = None if cluster is None else planning.load_cluster(cluster)
    _, graph = _load_and_build(paths, strict, seconds)
    with working("optimizing") as progress, _timed(seconds, "optimize"):
        found = planning.optimize(
            graph, wanted, settings=given, communication=communication, cluster=hardware, seed=seed,
            model=_title(paths), progress=progress,
        )  # fmt: skip
    if plan is not None:
        found.plan.save(plan)
    summary = optimized_summary(found, seconds)
    with printing():
        if json:
            print_json(summary)
        else:
            print_optimized(summary, _title(paths), _console())
            if plan is not None:
                print(f"plan: {literal(str(plan))}")
            if summary["code_line"] is not None:
                print(summary["code_line"])


@app.command()
def show(paths: Paths, strict: Strict = False, json: Json = False) -> None:
    """Tell what a trace, graph, plan or cluster file holds."""
    from makespan.shown import print_shown, shown

    with working("reading"):
        told = shown(paths, strict)
    with printing():
        if json:
            print_json(told)
        else:
            print_shown(told, _console())


def _load_and_build(paths: list[Path], strict: bool, seconds: dict[str, float]) -> tuple[Trace | None, Graph]:
    """The trace in `paths` and its graph, or no trace and the graph where `paths` is a graph file."""
    from makespan import api

    if len(paths) == 1 and paths[0].suffix == ".npz":
        with working(f"loading {paths[0]}"), _timed(seconds, "load"):
            return None, api.load_graph(paths[0])
    with working("loading " + ", ".join(map(str, paths[:3]))), _timed(seconds, "load"):
        trace = api.load(*paths, strict=strict)
    with working("building the graph"), _timed(seconds, "build"):
        graph = api.build(trace, strict=strict)
    return trace, graph


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Generator[None]:
    began = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - began


def _expect_other_file(paths: list[Path], *written: Path | None) -> None:
    """Refuse to write over what is read, and to write two things to one file."""
    targets = [target for target in written if target is not None]
    if len({target.resolve() for target in targets}) < len(targets):
        raise MakespanError(f"{targets[0]}: is named for two outputs; give each a file of its own")
    for target in targets:
        for path in paths:
            if target.exists() and path.exists() and target.samefile(path):
                raise MakespanError(f"{target}: is the input itself; name another file to write to")
            if path.is_dir() and target.is_file() and target.resolve().is_relative_to(path.resolve()):
                raise MakespanError(f"{target}: lies in the input {path}, so is read; name another file to write to")


def _tell_written(timeline: Path | None, graph_file: Path | None) -> None:
    if timeline is not None:
        print(f"timeline: {literal(str(timeline))} (open it at ui.perfetto.dev)")
    if graph_file is not None:
        print(f"graph: {literal(str(graph_file))}")


def _title(paths: list[Path]) -> str:
    return ", ".join(path.name or str(path) for path in paths[:3]) + (" ..." if len(paths) > 3 else "")


def _console() -> Any:
    from rich.console import Console

    # Names from traces are shown as they are: no markup, no emoji codes.
    return Console(highlight=False, markup=False, emoji=False)
