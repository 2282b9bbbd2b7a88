"""New files: what is written takes the place of an older file only once it is whole."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def new_file(path: str | Path) -> Generator[BinaryIO]:
    """A file to write to that is at `path` once the block has ended; if it fails, what was there stays.

    It is written under a name of its own beside `path`, keeps the permissions of the file that it replaces, and
    replaces what a link leads to, not the link. Devices and pipes, which can't be replaced, are written directly.
    Raises OSError where that can't be done.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as file:
            yield file
        return
    if mode is not None and not os.access(path, os.W_OK):
        # A folder that may be written to would let us replace a file that may not.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    target = Path(os.path.realpath(path))
    part = target.parent / f".makespan-{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as file:
            yield file
        if mode is not None:
            part.chmod(stat.S_IMODE(mode))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
