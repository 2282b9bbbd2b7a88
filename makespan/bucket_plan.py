"""Bucket plan: which gradients are reduced together, as the tensor-fusion pass decides and the lowering carries out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from makespan.errors import PlanError

BYTES_PER_MIB: Final = 1 << 20


class BucketPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gradient buckets in the order of their reduction.

    `buckets`: the parameters of each, by name, in the order in which their gradients become ready; `sizes`: bytes
    of each bucket. `search`: how the plan was found, for people to read.
    """

    buckets: list[list[str]]
    sizes: list[int]
    search: dict[str, Any] = {}

    def payload(self) -> dict[str, Any]:
        """As a plan's decision holds it."""
        return {
            "buckets": [list(bucket) for bucket in self.buckets],
            "sizes": list(self.sizes),
            "search": dict(self.search),
        }

    def caps_mib(self) -> list[float]:
        """Caps in MiB that make DDP form these buckets: it closes a bucket once its bytes reach the cap."""
        return [size / BYTES_PER_MIB for size in self.sizes]

    def code_line(self) -> str:
        """What users paste into their call of DistributedDataParallel."""
        return f"bucket_cap_mb_list={self.caps_mib()!r}"


def read_bucket_plan(payload: dict[str, Any]) -> BucketPlan:
    """The bucket plan in a decision's payload; raises PlanError with the JSON path."""
    try:
        plan = msgspec.convert(payload, BucketPlan)
    except msgspec.ValidationError as error:
        raise PlanError(
            f"tensor-fusion: {error}; expected buckets (lists of parameter names) and their sizes"
        ) from None
    if len(plan.buckets) != len(plan.sizes) or not plan.buckets:
        raise PlanError(
            f"tensor-fusion: {len(plan.buckets)} buckets at $.buckets and {len(plan.sizes)} sizes at $.sizes, expected "
            "as many, and at least one"
        )
    seen: set[str] = set()
    for place, (bucket, size) in enumerate(zip(plan.buckets, plan.sizes, strict=True)):
        if not bucket or size <= 0:
            raise PlanError(f"tensor-fusion: bucket at $.buckets[{place}] is empty; expected a parameter and its bytes")
        for name in bucket:
            if name in seen:
                raise PlanError(f"tensor-fusion: parameter {name!r} at $.buckets[{place}] is in two places")
            seen.add(name)
    return plan
