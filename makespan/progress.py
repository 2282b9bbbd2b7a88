"""Progress: long work says on standard error what it is doing, once it has taken two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from makespan.text import literal

PATIENCE_S: Final = 2.0


@contextmanager
def working(what: str) -> Generator[None]:
    """Within the block: after two seconds tell `what` is going on; on a terminal with the seconds counting up."""
    finished = threading.Event()
    began = time.monotonic()
    shown = literal(what)

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
                print(f"\r{shown} ... {time.monotonic() - began:.0f} s", end="", file=stream, flush=True)
            print("\r\033[K", end="", file=stream, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        finished.set()
        teller.join()
