"""Progress: long work says on standard error what it is doing, once it has taken two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

PATIENCE_S: Final = 2.0


@contextmanager
def working(what: str) -> Generator[None]:
    """Within the block: after two seconds tell `what` is going on; on a terminal with the seconds counting up."""
    finished = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        if finished.wait(PATIENCE_S):
            return
        if not sys.stderr.isatty():
            print(f"{what} ...", file=sys.stderr, flush=True)
            return
        while not finished.wait(0.5):
            print(f"\r{what} ... {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        finished.set()
        teller.join()
