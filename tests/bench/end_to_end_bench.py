"""From a file of 216 thousand events to the critical path, and from the shell to the help page.

Each figure is one fresh process, compilers' caches warm, CPU seconds of the fastest of several runs. Peers in the same
run: reading the file with the standard library's json alone, and an empty Python process.

    python tests/bench/end_to_end_bench.py [--repeats N] [TRACE]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces" / "real" / "hta"
LIMIT_CPU_S = 3.0
LIMIT_START_S = 0.5
PLAIN_JSON = "import gzip, json, sys; json.loads(gzip.open(sys.argv[1]).read())"


def fastest(command: list[str], repeats: int) -> tuple[float, float]:
    """(CPU seconds, wall seconds), each the smallest of `repeats` runs after one that warms the caches."""
    cpu, wall = [], []
    for _ in range(repeats + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.perf_counter() - began)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(cpu[1:]), min(wall[1:])


def main() -> None:
    """Print each figure beside its limit and its peer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    trace = given.trace or next(iter(sorted(SHARED.glob("df_index_resolver*"))), None)
    if trace is None:
        sys.exit("no trace: name one, or put the public traces under shared/traces/real beside the checkout")
    replay = [sys.executable, "-m", "makespan", "replay", str(trace), "--json"]
    told = json.loads(subprocess.run(replay, check=True, capture_output=True).stdout)
    ours, _ = fastest(replay, given.repeats)
    plain, _ = fastest([sys.executable, "-c", PLAIN_JSON, str(trace)], given.repeats)
    help_cpu, help_wall = fastest([sys.executable, "-m", "makespan", "--help"], given.repeats)
    empty_cpu, empty_wall = fastest([sys.executable, "-c", ""], given.repeats)
    print(f"file to critical path: {told['events']:,} events kept, {told['ops']:,} ops")
    print(f"  makespan replay --json   {ours:6.2f} CPU s   (limit {LIMIT_CPU_S} s; {ours / plain:.2f} x plain json)")
    print(f"  plain json, reading only {plain:6.2f} CPU s")
    print(f"makespan --help            {help_wall:6.2f} s, {help_cpu:.2f} CPU s   (limit {LIMIT_START_S} s)")
    print(f"  empty Python process     {empty_wall:6.2f} s, {empty_cpu:.2f} CPU s")


if __name__ == "__main__":
    main()
