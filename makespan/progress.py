"""Progress: long work says on standard error what it is doing, once it has taken two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from makespan.text import literal

if TYPE_CHECKING:
    from makespan.protocols import Progress

PATIENCE_S: Final = 2.0
BAR_WIDTH: Final = 20


@contextmanager
def working(what: str) -> Generator[Progress]:
    """Within the block: after two seconds tell `what` is going on; on a terminal with the seconds counting up.

    The Progress that it gives adds how far the work is, as a bar.
    """
    finished = threading.Event()
    began = time.monotonic()
    shown = literal(what)
    latest = [""]

    def hear(done: int, total: int, text: str) -> None:
        filled = round(BAR_WIDTH * min(done / total, 1.0)) if total else 0
        bar = f" {'█' * filled}{'░' * (BAR_WIDTH - filled)} {done} of {total}" if total else ""
        latest[0] = f"{bar} {literal(text)}"

    def tell() -> None:
        stream = sys.stderr
        if finished.wait(PATIENCE_S) or stream is None:
            return
        # A full or closed standard error is no reason to stop, or to say so by a traceback.
        with suppress(OSError, ValueError):
            if not stream.isatty():
                print(f"{shown} ...", file=stream, flush=True)
                return
            while not finished.wait(0.5):
                line = f"{shown}{latest[0]} ... {time.monotonic() - began:.0f} s"
                print(f"\r\033[K{line[: get_terminal_size().columns - 1]}", end="", file=stream, flush=True)
            print("\r\033[K", end="", file=stream, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield hear
    finally:
        finished.set()
        teller.join()
