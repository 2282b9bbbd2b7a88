"""What the categories, names and argument texts of PyTorch profiles mean, as tables."""

from __future__ import annotations

import re
from typing import Final

from makespan.trace import EventKind

CATEGORY_KIND: Final = {
    "cpu_op": EventKind.CPU_OP,
    "operator": EventKind.CPU_OP,
    "user_annotation": EventKind.ANNOTATION,
    "python_function": EventKind.PYTHON,
    "runtime": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "concurrent_kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "hpu_op": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET,
    "collective_comm": EventKind.COLLECTIVE,
    "gpu_user_annotation": EventKind.DEVICE_ANNOTATION,
    "cuda_sync": EventKind.SYNC_RECORD,
    "xpu_sync": EventKind.SYNC_RECORD,
    "cuda_event": EventKind.SYNC_RECORD,
    "overhead": EventKind.OVERHEAD,
    "cpu_instant_event": EventKind.INSTANT,
    "trace": EventKind.ANNOTATION,  # the extent of the recording
    "cuda_profiler_range": EventKind.OTHER,
    "mtia_insight": EventKind.OTHER,
}
"""Kind by lower-case category: the spelling of 2021 (Operator, Kernel, Runtime) and today's."""

_RUNTIME_CATEGORY: Final = re.compile(r"(^|_)(runtime|driver)$")
_STEP: Final = re.compile(r"ProfilerStep ?[#*]?\s*\d*$")
_HOST_COMMUNICATION: Final = re.compile(r"(?:gloo|mpi):(\w+)")
_DEVICE_COMMUNICATION: Final = re.compile(r"(?:nccl|rccl|msccl|hccl|xccl|oneccl)\w*kernel|^oneccl|^rccl", re.IGNORECASE)
_COLLECTIVES: Final = (
    "allreduce", "reducescatter", "allgather", "alltoall", "sendrecv", "broadcast", "barrier", "gather",
    "scatter", "reduce", "send", "recv",
)  # fmt: skip
_ALIASES: Final = {"receive": "recv", "isend": "send", "irecv": "recv", "a2a": "alltoall", "bcast": "broadcast"}

ELEMENT_BYTES: Final = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "short": 2, "int16": 2, "half": 2, "float16": 2,
    "bfloat16": 2, "int": 4, "int32": 4, "float": 4, "float32": 4, "long": 8, "int64": 8, "double": 8, "float64": 8,
    "complexfloat": 8, "complexdouble": 16, "long int": 8, "short int": 2, "unsigned char": 1, "signed char": 1,
}  # fmt: skip
"""Bytes of one element, by the lower-case names of torch's scalar types and of C++'s."""


def kind_of_category(category: str) -> EventKind | None:
    """The kind of a category, None where the table has none."""
    lower = category.lower()
    kind = CATEGORY_KIND.get(lower)
    return EventKind.RUNTIME if kind is None and _RUNTIME_CATEGORY.search(lower) else kind


def is_step(name: str) -> bool:
    """Whether a range marks one step of the profiler's schedule.

    >>> is_step("ProfilerStep#12"), is_step("ProfilerStep helper")
    (True, False)
    """
    return name.startswith("ProfilerStep") and _STEP.match(name) is not None


def is_wait(name: str) -> bool:
    """Whether a range says that its thread waits: captures put such ranges where the profiler records no wait.

    >>> is_wait("makespan::wait ddp gradients"), is_wait("wait")
    (True, False)
    """
    return name.startswith("makespan::wait")


def host_collective(name: str) -> str:
    """The collective that a host span itself carries out, such as "gloo:all_reduce"; empty for anything else."""
    found = _HOST_COMMUNICATION.match(name)
    return canonical_collective(found[1]) if found else ""


def device_collective(name: str) -> str:
    """The collective that a device kernel carries out, as far as its name says; empty for a compute kernel.

    >>> device_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), device_collective("gemm")
    ('allreduce', '')
    """
    return canonical_collective(name) if _DEVICE_COMMUNICATION.search(name) else ""


def canonical_collective(text: str) -> str:
    """One spelling for a collective's name, so that those of different versions compare equal.

    >>> canonical_collective("_allgather_base"), canonical_collective("all_reduce_coalesced")
    ('allgather', 'allreduce')
    """
    letters = re.sub(r"[^a-z0-9]", "", text.lower())
    for collective in _COLLECTIVES:
        if collective in letters:
            return collective
    for alias, collective in _ALIASES.items():
        if alias in letters:
            return collective
    return "collective"


def communication_kind(collective: str) -> EventKind:
    """SEND and RECV for one-sided transfers, COLLECTIVE for the rest."""
    return {"send": EventKind.SEND, "recv": EventKind.RECV}.get(collective, EventKind.COLLECTIVE)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a collective's dtype; 0 where it is not known."""
    lower = dtype.lower().removeprefix("c10::").removeprefix("torch.")
    return 1 if lower.startswith("float8") else ELEMENT_BYTES.get(lower, 0)
