"""Loading speed: a real profile, its events repeated to 225 MB, to the full event table; beside json and msgspec.

    python tests/bench/ingest_bench.py [--megabytes 225] [--repeats 3] [--trace FILE]

Each reader runs in processes of its own. CPU seconds are user and system time of the whole process, interpreter start
and imports included; memory is its peak resident size. Of several repeats the fastest and, in brackets, the median are
printed, since other load on the machine slows caches and memory. `json` and `msgspec` stop at Python objects.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"ph"')
ROOT = Path(__file__).resolve().parents[2]
COLLECTED = ROOT.parent / "shared/traces/real/hta/df_index_resolver__df_index_resolver.json.gz"
BUNDLED = ROOT / "datasets/traces"

READERS = {
    "json": "import json; events = json.load(open(path, 'rb'))['traceEvents']",
    "msgspec, typed": """
import msgspec
from typing import Any
class Args(msgspec.Struct, gc=False):
    correlation: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    stream: Any = None
    device: Any = None
class Event(msgspec.Struct, gc=False):
    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: Args | None = None
class File(msgspec.Struct):
    traceEvents: list[Event]
events = msgspec.json.decode(open(path, 'rb').read(), type=File).traceEvents
""",
    "makespan, table": "from makespan.simulator.load import load; events = load(path)",
}


def replicated_trace(path: Path, target_bytes: int, original: Path) -> int:
    """Write `original` to `path` with its events repeated until it holds about `target_bytes`; the bytes written.

    The original is a profile whose events lie in one array under "traceEvents" and hold no array after it. Copies
    are exact, so times and correlation ids repeat.
    """
    content = gzip.decompress(original.read_bytes()) if original.suffix == ".gz" else original.read_bytes()
    begin = content.index(b"[", content.index(b'"traceEvents"')) + 1
    end = content.rindex(b"]")
    events = content[begin:end].strip()
    with path.open("wb") as file:
        file.write(content[:begin] + events)
        while (room := target_bytes - file.tell()) > len(events):
            file.write(b"," + events)
        whole = [match.start() + 1 for match in BOUNDARY.finditer(events, 0, max(room, 0))]
        file.write(b"," + events[: whole[-1]] if whole else b"")
        file.write(content[end:])
        return file.tell()


def measure(reader: str, path: Path) -> tuple[float, float, int]:
    """CPU seconds, peak memory in MB and the number of events of one run in a process of its own."""
    code = f"path = {str(path)!r}\n{READERS[reader]}\nprint(len(events))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        told = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{reader} failed")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return usage.ru_utime + usage.ru_stime, peak_bytes / 1e6, int(told)


def main() -> None:
    """Build the file, run all readers, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=225)
    parser.add_argument("--repeats", type=int, default=3)
    bundled = sorted(BUNDLED.rglob("*.json.gz"))
    parser.add_argument("--trace", type=Path, default=COLLECTED if COLLECTED.exists() else bundled[0])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replicated.json"
        size = replicated_trace(path, options.megabytes * 1_000_000, options.trace)
        print(f"{options.trace.name}, repeated to {size / 1e6:.0f} MB")
        print(f"{'reader':18}{'events':>10}{'CPU s':>8}{'(median)':>10}{'MB/s':>7}{'peak MB':>9}")
        runs = {reader: [measure(reader, path) for _ in range(options.repeats)] for reader in READERS}
        for reader, results in runs.items():
            seconds = [result[0] for result in results]
            peak, events = max(result[1] for result in results), results[0][2]
            median = f"({statistics.median(seconds):.2f})"
            print(
                f"{reader:18}{events:>10}{min(seconds):>8.2f}{median:>10}{size / 1e6 / min(seconds):>7.0f}{peak:>9.0f}"
            )


if __name__ == "__main__":
    main()
