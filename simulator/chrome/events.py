"""Which members of a Chrome event become columns, and what each phase letter becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from makespan.simulator.chrome.times import MISSING

NO_TEXT: Final = msgspec.Raw(b"")


def _integer(spelled: str) -> Any:
    return msgspec.field(default=MISSING, name=spelled)


def _text(spelled: str) -> Any:
    return msgspec.field(default=None, name=spelled)


def _json(spelled: str) -> Any:
    return msgspec.field(default=NO_TEXT, name=spelled)


class EventArgs(msgspec.Struct, gc=False, frozen=True):
    """The members of `args` that are kept, as profilers spell them; all others are skipped unread.

    Integers default to MISSING, text to None; what is kept as JSON text defaults to NO_TEXT.
    """

    correlation: Any = MISSING
    external_id: Any = _integer("External id")
    external_id_of_2021: Any = _integer("external id")
    stream: Any = MISSING
    device: Any = MISSING
    sequence: Any = _integer("Sequence number")
    forward_thread: Any = _integer("Fwd thread id")
    record_id: Any = _integer("Record function id")
    bytes: Any = MISSING
    size_bytes: Any = MISSING
    memory_bytes: Any = _integer("Bytes")
    total_allocated_bytes: Any = _integer("Total Allocated")
    memory_device: Any = _integer("Device Id")
    input_elements: Any = _integer("In msg nelems")
    output_elements: Any = _integer("Out msg nelems")
    group_size: Any = _integer("Group size")
    group_sequence: Any = _integer("Seq")
    root: Any = _integer("Rank")
    source_rank: Any = _integer("Src Rank")
    target_rank: Any = _integer("Dst Rank")
    wait_on_stream: Any = MISSING
    wait_on_correlation: Any = _integer("wait_on_cuda_event_record_corr_id")
    shapes: msgspec.Raw = _json("Input Dims")
    shapes_of_2021: msgspec.Raw = _json("Input dims")
    types: msgspec.Raw = _json("Input type")
    collective: Any = _text("Collective name")
    dtype: Any = None
    group_name: Any = _text("Process Group Name")
    group_number: Any = _text("Process Group ID")
    group_ranks: Any = _text("Process Group Ranks")
    module: Any = _text("Module Hierarchy")
    kind: Any = None
    name: Any = None


NO_ARGS: Final = EventArgs()


class ColumnEvent(msgspec.Struct, gc=False):
    """A Chrome event with the members that become columns."""

    ph: Any = ""
    name: Any = ""
    cat: Any = ""
    ts: Any = MISSING
    dur: Any = MISSING
    pid: Any = ""
    tid: Any = ""
    id: Any = MISSING
    args: EventArgs = NO_ARGS


class EventTimes(msgspec.Struct, gc=False):
    """The times of an event alone, as they are spelled."""

    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT


ROW, END, FLOW, METADATA, LEFT_OUT = range(1, 6)
PHASE_CLASS: Final = np.full(256, LEFT_OUT, np.uint8)
"""What becomes of an event, by the byte of its phase: complete, begin, async begin, instant and counter events are
rows, their ends close them, flow events are arrows, and metadata names threads and processes.
"""
for _phases, _class in (("XBbSiIRnPC", ROW), ("EeF", END), ("stf", FLOW), ("M", METADATA)):
    PHASE_CLASS[list(_phases.encode())] = _class
PAIRED: Final = np.isin(np.arange(256), list(b"BEbeSF"))
"""(256,) phases that begin or end a span."""


def phase_bytes(phases: Sequence[Any]) -> NDArray[np.uint8]:
    """(n,) the byte of each phase letter; zero, which is no phase, for anything else."""
    try:
        letters = "".join(phases).encode()
    except TypeError:
        letters = b""
    if len(letters) != len(phases) or set(map(len, phases)) != {1}:
        letters = bytes(ord(p) if isinstance(p, str) and len(p) == 1 and p.isascii() else 0 for p in phases)
    return np.frombuffer(letters, np.uint8)
