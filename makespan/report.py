"""Reports: summaries as tables and bars on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from makespan.text import literal
from makespan.units import NS_PER_MS, format_bytes, format_duration

BAR_WIDTH: Final = 24
STEPS_SHOWN: Final = 12
RANKS_SHOWN: Final = 4
NAME_WIDTH: Final = 64
OTHER_CELLS_WIDTH: Final = 40
"""What the columns beside a name need."""

_LABELS: Final[Mapping[str, str]] = {
    "compute": "compute",
    "overlapped_comm": "compute and communication at once",
    "exposed_comm": "communication, exposed",
    "think": "host time between ops",
}


def print_replay(summary: Mapping[str, Any], title: str, console: Console) -> None:
    """Everything `makespan replay` tells, longest things first."""
    ranks = summary["ranks"]
    events = "" if summary["events"] is None else f"{summary['events']:,} events, "
    console.print(
        Text(literal(title), style="bold"),
        f"{ranks} rank{'s' if ranks != 1 else ''}, {events}"
        f"{summary['ops']:,} ops, {summary['edges']:,} edges, {summary['order']} order",
        sep=": ",
    )
    console.print(_headline(summary))
    console.print()
    console.print(_steps(summary["steps"]))
    for part in _totals_by_rank(summary["breakdown"]):
        console.print(part)
    if ranks > RANKS_SHOWN:
        console.print(f"... {ranks - RANKS_SHOWN} more ranks; --json has them all")
    if any(row["count"] for row in summary["waiting"]):
        console.print(_waiting(summary["waiting"]))
    console.print(_critical_kinds(summary["critical_path"]))
    console.print(_critical_ops(summary["critical_path"], console.width - OTHER_CELLS_WIDTH))
    for row in summary["memory"]:
        console.print(
            f"Peak memory of rank {row['rank']} on {row['device']}: {format_bytes(row['peak_bytes'])}, "
            f"in {literal(row['step'] or 'no step')}, {literal(row['op'] or 'no op')}"
        )
    _print_footnotes(summary, console)


def print_what_if(summary: Mapping[str, Any], title: str, console: Console) -> None:
    """Before and after, step by step, and what the answer rests on."""
    console.print(Text(literal(title), style="bold"), f"{summary['order']} order", sep=", ")
    before, after = (_ms(summary[key]) for key in ("baseline_ms", "iteration_time_ms"))
    text = Text(f"iteration time {before} → ")
    text.append(after, style="bold green")
    text.append(f"   {_signed(summary['change_pct'])}")
    console.print(text, "", sep="\n")
    table = _titled("Steps", "step", "rank")
    for column in ("before", "after", "change", "defined by"):
        table.add_column(column, justify="left" if column == "defined by" else "right", no_wrap=True)
    for row in summary["steps"][:STEPS_SHOWN]:
        before, after = row["baseline_defined_by"], row["changed_defined_by"]
        table.add_row(
            literal(row["name"]), str(row["rank"]), _ms(row["baseline_ms"]), _ms(row["changed_ms"]),
            _signed(row["change_pct"]), before if before == after else f"{before} → {after}",
        )  # fmt: skip
    console.print(table)
    paths = summary["critical_path"]
    changed = {(row["part"], row["kind"]): row["ms"] for row in paths["after"]}
    kept = {(row["part"], row["kind"]): row["ms"] for row in paths["before"]}
    table = _titled("Critical path", "", "before", "after")
    for key in sorted({**kept, **changed}, key=lambda key: -max(kept.get(key, 0), changed.get(key, 0))):
        if max(kept.get(key, 0), changed.get(key, 0)) > 0:
            what = key[1] if key[0] == "duration" else f"{key[1]} {key[0]}"
            table.add_row(what, _ms(kept.get(key, 0.0)), _ms(changed.get(key, 0.0)))
    console.print(table)
    if summary["rests_on"]:
        table = _titled("The answer rests on what was concluded, not measured", "evidence", "edge", "from", "to")
        table.add_column("times", justify="right", no_wrap=True)
        table.add_column("wait", justify="right", no_wrap=True)
        for row in summary["rests_on"][:8]:
            ends = (_shortened(row[key], (console.width - OTHER_CELLS_WIDTH) // 2) for key in ("source", "target"))
            table.add_row(row["evidence"], row["edge_kind"], *ends, f"{row['count']:,}", _ms(row["ms"]))
        console.print(table)


def print_comparison(summary: Mapping[str, Any], title: str, console: Console) -> None:
    """What the second of two traces does differently."""
    console.print(Text(literal(title), style="bold"))
    console.print(
        f"iteration time {_ms(summary['baseline_ms'])} → {_ms(summary['iteration_time_ms'])}   "
        f"{_signed(summary['change_pct'])}\n"
    )
    for label, rows in (("By kind", summary["by_kind"]), ("By op, largest difference first", summary["by_op"][:20])):
        table = _titled(label, "")
        for column in ("times A", "total A", "times B", "total B", "B - A", ""):
            table.add_column(column, justify="right", no_wrap=True)
        for row in rows:
            what = f"{_shortened(row['name'], console.width - 66)} ({row['kind']})" if "name" in row else row["kind"]
            table.add_row(
                what, f"{row['baseline_count']:,}", format_duration(row["baseline_total_ns"]),
                f"{row['other_count']:,}", format_duration(row["other_total_ns"]),
                format_duration(row["difference_ns"]), _signed(row["change_pct"]),
            )  # fmt: skip
        console.print(table)


def print_diagnostics(diagnostics: Mapping[str, int], places: Mapping[str, Sequence[str]], console: Console) -> None:
    """What was repaired, set aside or skipped on the way in."""
    if not diagnostics:
        return
    table = Table("repaired, set aside or skipped", "count", "first places", title_justify="left", box=None)
    for reason, count in sorted(diagnostics.items(), key=lambda item: -item[1]):
        table.add_row(reason, f"{count:,}", literal(", ".join(places.get(reason, ()))))
    console.print(table)


def _headline(summary: Mapping[str, Any]) -> Text:
    text = Text("iteration time ")
    text.append(_ms(summary["iteration_time_ms"]), style="bold green")
    if summary["measured_iteration_time_ms"] is not None:
        measured = _ms(summary["measured_iteration_time_ms"])
        error = "-" if summary["error_pct"] is None else f"{summary['error_pct']:+.3f} %"
        text.append(f"   measured {measured}   error {error}")
    return text


def _steps(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _titled("Steps", "step", "rank")
    for column in ("measured", "replayed", "error", "device end", "defined by"):
        table.add_column(column, justify="left" if column == "defined by" else "right", no_wrap=True)
    for row in rows[:STEPS_SHOWN]:
        table.add_row(
            literal(row["name"]), str(row["rank"]), _ms(row["measured_ms"]), _ms(row["replayed_ms"]),
            "-" if row["error_pct"] is None else f"{row['error_pct']:+.3f} %", _ms(row["device_end_ms"]),
            row["defined_by"],
        )  # fmt: skip
    if len(rows) > STEPS_SHOWN:
        table.add_row(f"... {len(rows) - STEPS_SHOWN} more", *[""] * 6)
    return table


def print_optimized(summary: Mapping[str, Any], title: str, console: Console) -> None:
    """Before and after, the named plans beside the found one, and last the line of code to paste."""
    console.print(Text(literal(title), style="bold"))
    console.print(
        f"{_ms(summary['baseline_ms'])} → {_ms(summary['iteration_time_ms'])} ({_signed(summary['change_pct'])}); "
        f"{literal(summary['costs_from'])}"
    )
    if summary["gap"] is not None:
        console.print(
            f"No plan can be more than {100 * summary['gap']:.1f} % shorter than this (gap to a lower bound)."
        )
    if summary["named_ms"]:
        console.print()
        table = _titled("Buckets", "plan", "iteration", "")
        longest = max(*summary["named_ms"].values(), summary["iteration_time_ms"])
        for name, value in sorted(summary["named_ms"].items(), key=lambda item: -item[1]):
            table.add_row(name, _ms(value), "█" * round(BAR_WIDTH * value / longest))
        found = summary["iteration_time_ms"]
        table.add_row("found", _ms(found), "█" * round(BAR_WIDTH * found / longest), style="bold")
        console.print(table)
    for name in summary["decisions"]:
        console.print(f"decided: {literal(name)}")
    if not summary["decisions"]:
        console.print("Nothing was found that makes it shorter.")


def _totals_by_rank(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table for each rank: the sum over its steps, or the whole schedule where there are none."""
    tables: list[Table] = []
    for rank in list(dict.fromkeys(row["rank"] for row in rows))[:RANKS_SHOWN]:
        mine = [row for row in rows if row["rank"] == rank]
        steps = mine[1:] or mine[:1]
        whole = sum(row["window_ms"] for row in steps)
        total: dict[str, float] = {}
        for row in steps:
            for kind, spent in row["ms"].items():
                total[kind] = total.get(kind, 0.0) + spent
        title = f"Where the time of rank {rank} goes, {len(steps)} step{'s' if len(steps) != 1 else ''} together"
        table = _titled(title, "", "time", "share", "")
        for kind, spent in sorted(total.items(), key=lambda item: -item[1]):
            label = _LABELS.get(kind, kind.replace("_", " "))
            table.add_row(f"idle: {label}" if kind in mine[0]["idle"] else label, *_share(spent, whole))
        tables.append(table)
    return tables


def _waiting(rows: Sequence[Mapping[str, Any]]) -> str:
    """Who waits least and most for the other ranks, and what the transfers themselves take."""
    matched = [row for row in rows if row["count"]]
    least, most = (pick(matched, key=lambda row: row["waiting_ms"]) for pick in (min, max))
    transfers = [row["transfer_ms"] for row in matched]
    alone = sum(row["unmatched_count"] for row in rows)
    unmatched = f"; {alone:,} more are not matched with other ranks" if alone else ""
    return (
        f"Collectives: rank {least['rank']} waits {_ms(least['waiting_ms'])} for the others, rank {most['rank']} "
        f"{_ms(most['waiting_ms'])}; transfers take {_ms(min(transfers))} to {_ms(max(transfers))} on each, "
        f"{max(row['count'] for row in matched):,} collectives{unmatched}"
    )


def _critical_kinds(path: Mapping[str, Any]) -> Table:
    title = f"Critical path, {format_duration(path['length_ms'] * NS_PER_MS)}"
    table = _titled(title, "", "time", "share", "")
    for row in path["by_kind"]:
        if row["ms"] > 0:
            what = row["kind"] if row["part"] == "duration" else f"{row['kind']} {row['part']}"
            table.add_row(what, *_share(row["ms"], path["length_ms"]))
    return table


def _critical_ops(path: Mapping[str, Any], name_width: int) -> Table:
    table = _titled("Longest on the critical path", "op", "kind")
    for column in ("times", "time", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in path["top_ops"]:
        table.add_row(
            _shortened(row["name"], name_width),
            row["kind"],
            f"{row['count']:,}",
            _ms(row["ms"]),
            f"{row['share_pct']:.1f} %",
        )
    return table


def _print_footnotes(summary: Mapping[str, Any], console: Console) -> None:
    guessed: dict[str, float] = {}
    for row in summary["critical_path"]["by_evidence"]:
        guessed[row["evidence"]] = guessed.get(row["evidence"], 0.0) + row["ms"]
    length = max(summary["critical_path"]["length_ms"], 1e-9)
    residual, inferred = (100 * guessed.get(kind, 0.0) / length for kind in ("residual", "inferred"))
    console.print(
        f"\nOf the critical path {inferred:.2f} % rests on inferred lags, {residual:.2f} % on unexplained waits."
    )
    for label in ("notes", "skipped"):
        for reason, count in summary[label].items():
            console.print(f"  {count:,} × {literal(reason)}", style="dim")
    spent = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in summary["seconds"].items())
    console.print(spent, style="dim")


def _share(part_ms: float, whole_ms: float) -> tuple[str, str, str]:
    share = part_ms / whole_ms if whole_ms else 0.0
    return _ms(part_ms), f"{100 * share:.1f} %", "█" * round(BAR_WIDTH * share)


def _titled(title: str, *columns: str) -> Table:
    """A plain table whose cells are cut short, never wrapped, where the terminal is narrow."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, min_width=len(title))
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    return table


def _signed(change_pct: float | None) -> str:
    return "-" if change_pct is None else f"{change_pct:+.2f} %"


def _ms(value_ms: float | None) -> str:
    return "-" if value_ms is None else format_duration(value_ms * NS_PER_MS)


def _shortened(name: str, width: int) -> str:
    told = literal(name).removeprefix("void ")
    width = min(max(width, 12), NAME_WIDTH)
    return told if len(told) <= width else f"{told[: width - 1]}…"
