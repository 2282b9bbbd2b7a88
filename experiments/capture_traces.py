"""Capture the bundled traces with torch.profiler: a CNN step, a GPT step, two gloo DDP ranks, a straggler.

Every capture runs in fresh processes with one intra-op thread each. The same loop is timed without the
profiler first, so that the profiler's own cost is known. Each workload is captured several times, and the
capture whose steps differ least is kept. What was measured goes to `measured.json` and into the marked part
of each card. What runs is in `capture_workloads.py`. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed
import torch.multiprocessing
from capture_workloads import WORKLOADS, Step, Workload, do_nothing
from torch.profiler import ProfilerActivity, profile, schedule

SETTLING_STEPS: Final = 10
UNPROFILED_STEPS: Final = 30
WAIT_STEPS, WARMUP_STEPS, ACTIVE_STEPS = 1, 2, 6
BEGIN, END = "<!-- measured: written by experiments/capture_traces.py -->", "<!-- /measured -->"


def capture_rank(rank: int, name: str, folder: str) -> None:
    """What each process does: settle, time the loop without the profiler, then profile it."""
    workload = WORKLOADS[name]
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    if workload.world_size > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=workload.world_size
        )
    step = workload.prepare(rank)
    timed_steps(step, SETTLING_STEPS)
    unprofiled_ns = timed_steps(step, UNPROFILED_STEPS)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT_STEPS, warmup=WARMUP_STEPS, active=ACTIVE_STEPS, repeat=1),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        timed_steps(step, WAIT_STEPS + WARMUP_STEPS, after=profiler.step)
        profiled_ns = timed_steps(step, ACTIVE_STEPS, after=profiler.step)
    profiler.export_chrome_trace(f"{folder}/{rank}.json")
    times = {"unprofiled_step_ns": unprofiled_ns, "profiled_step_ns": profiled_ns}
    Path(folder, f"{rank}.times").write_text(json.dumps(times))
    if workload.world_size > 1:
        torch.distributed.destroy_process_group()


def timed_steps(step: Step, count: int, after: Step = do_nothing) -> list[int]:
    """Run `count` steps, each followed by `after`; the time of each step alone in ns."""
    lengths: list[int] = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        step()
        lengths.append(time.perf_counter_ns() - begin)
        after()
    return lengths


def capture(workload: Workload) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """One capture in fresh processes: the trace files by name, and what was measured on each rank."""
    files: dict[str, bytes] = {}
    ranks: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(capture_rank, (workload.name, folder), nprocs=workload.world_size)
        for rank in range(workload.world_size):
            name = "trace.json.gz" if workload.world_size == 1 else f"rank{rank}.json.gz"
            text = without_machine(Path(folder, f"{rank}.json").read_text(), name.removesuffix(".gz"))
            files[name] = gzip.compress(text.encode(), mtime=0)
            times = json.loads(Path(folder, f"{rank}.times").read_text())
            sizes = {"bytes": len(files[name]), "bytes_unpacked": len(text.encode())}
            ranks.append({"rank": rank, "file": name, **sizes, **times, **contents(text)})
    return files, ranks


def contents(text: str) -> dict[str, Any]:
    """What a trace file holds: its events by phase and category, and the lengths of its marked steps."""
    events = json.loads(text)["traceEvents"]
    marks = sorted((e["ts"], e["dur"]) for e in events if e["name"].startswith("ProfilerStep#"))
    kinds = Counter(f"{event['ph']} {event.get('cat', '')}".strip() for event in events)
    return {
        "recorded_step_ns": [round(duration * 1000) for _, duration in marks],
        "events": len(events),
        "events_by_kind": dict(sorted(kinds.items())),
    }


def without_machine(text: str, name: str) -> str:
    """The trace without the host's name, and with `name` where the path was that it was written to."""
    text = re.sub(r'\n\s*"host_name": "[^"\n]*",', "", text)
    return re.sub(r'"traceName": "[^"\n]*"', f'"traceName": "{name}"', text)


def spread(ranks: list[dict[str, Any]]) -> float:
    """(slowest − fastest) / median of the recorded steps, of the rank where that is largest."""
    lengths = [rank["recorded_step_ns"] for rank in ranks]
    return max((max(steps) - min(steps)) / statistics.median(steps) for steps in lengths)


def capture_best(workload: Workload, captures: int, folder: Path) -> dict[str, Any]:
    """Capture several times, write the steadiest one into `folder` and return what was measured."""
    taken: list[tuple[dict[str, bytes], list[dict[str, Any]]]] = []
    others: list[float] = []
    for number in range(captures):
        begin, before_s = time.perf_counter(), cpu_seconds_of_others()
        taken.append(capture(workload))
        share = (cpu_seconds_of_others() - before_s) / (time.perf_counter() - begin)
        others.append(max(0.0, round(share, 2)))  # clock ticks and own time are rounded apart
        print(f"{workload.name}: capture {number + 1} of {captures}", file=sys.stderr)
    spreads = [round(spread(ranks), 4) for _, ranks in taken]
    kept = spreads.index(min(spreads))
    files, ranks = taken[kept]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    measured = {
        "name": workload.name, "title": workload.title,
        "captured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__, "python": platform.python_version(), "system": platform.system(),
        "cpu": cpu_model(), "cores": os.cpu_count(), "threads_per_process": 1,
        "captures": captures, "kept": kept + 1,
        "step_spread_of_each": spreads, "cores_used_by_others": others,
        "ranks": ranks,
    }  # fmt: skip
    (folder / "measured.json").write_text(json.dumps(measured, indent=1) + "\n")
    return measured


def cpu_seconds_of_others() -> float:
    """Processor time so far of everything but this process and its ended children; time stolen counts."""
    first_line = Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, _idle, _waiting, *rest = map(int, first_line.split()[1:9])
    own = os.times()
    own_s = own.user + own.system + own.children_user + own.children_system
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - own_s


def cpu_model() -> str:
    """The processor's name as Linux tells it."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def median_ms(lengths_ns: list[int]) -> float:
    """Median in ms, two digits."""
    return round(statistics.median(lengths_ns) / 1e6, 2)


def card(measured: dict[str, Any]) -> str:
    """The measured part of a capture's card, as Markdown."""
    spreads = ", ".join(f"{value:.1%}" for value in measured["step_spread_of_each"])
    others = ", ".join(map(str, measured["cores_used_by_others"]))
    lines = [
        "| | |",
        "|---|---|",
        f"| captured | {measured['captured_at']} |",
        f"| machine | {measured['cores']} cores, /proc/cpuinfo: `{measured['cpu']}`, {measured['system']} |",
        f"| software | torch {measured['torch']}, Python {measured['python']} |",
        f"| intra-op threads | {measured['threads_per_process']} in each process |",
        f"| kept | capture {measured['kept']} of {measured['captures']}; spread of their steps "
        f"((slowest − fastest) / median): {spreads}; cores that others used meanwhile: {others} |",
        "",
        "| rank | file | size, unpacked | events | steps | step without profiler: median (fastest, slowest) "
        "| step with it | `ProfilerStep` | slower by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for rank in measured["ranks"]:
        plain, profiled = rank["unprofiled_step_ns"], rank["profiled_step_ns"]
        lines.append(
            f"| {rank['rank']} | `{rank['file']}` | {rank['bytes'] / 1e3:.0f} kB, "
            f"{rank['bytes_unpacked'] / 1e6:.1f} MB | {rank['events']:,} | {len(rank['recorded_step_ns'])} "
            f"| {median_ms(plain)} ms ({min(plain) / 1e6:.1f}, {max(plain) / 1e6:.1f}) "
            f"| {median_ms(profiled)} ms | {median_ms(rank['recorded_step_ns'])} ms | {overhead(rank):+.1%} |"
        )
    return "\n".join(lines)


def overhead(rank: dict[str, Any]) -> float:
    """How much longer the median step took under the profiler, as a fraction."""
    return statistics.median(rank["profiled_step_ns"]) / statistics.median(rank["unprofiled_step_ns"]) - 1


def table(everything: list[dict[str, Any]]) -> str:
    """All captures in one Markdown table."""
    lines = [
        "| folder | what | ranks | steps | events | size | step without profiler | recorded step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for measured in everything:
        ranks = measured["ranks"]
        plain = ", ".join(f"{median_ms(rank['unprofiled_step_ns'])} ms" for rank in ranks)
        recorded = ", ".join(f"{median_ms(rank['recorded_step_ns'])} ms" for rank in ranks)
        lines.append(
            f"| [`{measured['name']}`]({measured['name']}/README.md) | {measured['title']} | {len(ranks)} "
            f"| {len(ranks[0]['recorded_step_ns'])} | {sum(rank['events'] for rank in ranks):,} "
            f"| {sum(rank['bytes'] for rank in ranks) / 1e3:.0f} kB | {plain} | {recorded} |"
        )
    return "\n".join(lines)


def write_between_marks(path: Path, text: str) -> None:
    """Replace what stands between the marks in `path`; a page that isn't there yet is begun with a title."""
    page = path.read_text() if path.exists() else f"# {path.parent.name}\n\n{BEGIN}\n{END}\n"
    before, rest = page.split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def main() -> None:
    """Capture what the command line names, write traces and cards, print the profiler's cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=[*WORKLOADS], help="capture these alone")
    parser.add_argument("--captures", type=int, default=3, help="how many of each to choose from")
    bundled = Path(__file__).parents[1] / "datasets" / "traces"
    parser.add_argument("--into", type=Path, default=bundled, help="folder for the captures")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for workload in (WORKLOADS[name] for name in options.only):
        measured = capture_best(workload, options.captures, options.into / workload.name)
        write_between_marks(options.into / workload.name / "README.md", card(measured))
        rows += [
            {
                "claim": f"cost of the profiler, {workload.name}, rank {rank['rank']}",
                "published": None, "ours": f"{overhead(rank):+.1%}", "error": None,
                "how measured": f"median of {len(rank['profiled_step_ns'])} steps with and of "
                f"{len(rank['unprofiled_step_ns'])} without it, same process",
            }
            for rank in measured["ranks"]
        ]  # fmt: skip
    done = [json.loads(path.read_text()) for path in sorted(options.into.glob("*/measured.json"))]
    write_between_marks(options.into / "README.md", table(done))
    if options.json:
        print(json.dumps(rows, indent=1))
    for row in [] if options.json else rows:
        print(f"{row['claim']:60} {row['ours']:>8}   {row['how measured']}")


if __name__ == "__main__":
    main()
