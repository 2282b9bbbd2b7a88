"""Standard output as it may be: closed, full, read by nobody any more, or of an encoding that holds few letters."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from makespan.errors import MakespanError
from makespan.text import encode_json, one_line


def prepare_output() -> None:
    """Let standard output take any text: letters that its encoding doesn't have become question marks.

    Raises MakespanError where it is closed.
    """
    if sys.stdout is None:
        raise MakespanError("standard output is closed: there is nowhere to tell the answer; redirect it to a file")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextmanager
def printing() -> Generator[None]:
    """Around all that prints: what was printed has left when the block ends.

    Raises MakespanError where standard output can't take it, as on a full disk, and BrokenPipeError where its reader
    has gone.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_output()
        raise
    except OSError as error:
        give_up_output()
        raise MakespanError(f"standard output can't be written ({error.strerror or error})") from None


def print_json(value: Any) -> None:
    """Print `value`, of plain types, as JSON: in UTF-8, or in ASCII escapes where the output isn't UTF-8."""
    import msgspec

    content = encode_json(value)
    if codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8":
        print(msgspec.json.format(content, indent=2).decode())
    else:
        print(json.dumps(msgspec.json.decode(content), indent=2))


def complain(fault: str) -> None:
    """One sentence on standard error, if there is one."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"makespan: {one_line(fault)}", file=sys.stderr, flush=True)


def give_up_output() -> None:
    """Lead standard output nowhere: the interpreter would try again, at its end, to write what is left."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
