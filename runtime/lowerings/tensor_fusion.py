"""Tensor fusion, carried out: a model in DistributedDataParallel whose gradient buckets are those of the plan."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from makespan.bucket_plan import BucketPlan, read_bucket_plan
from makespan.errors import PlanError
from makespan.runtime.job_facts import bucket_layout, trained_parameters


def tensor_fusion(payload: dict[str, Any], model: nn.Module) -> DistributedDataParallel:
    """`model` wrapped so that DDP forms the buckets of `payload` from its second step on.

    DDP fills buckets in the order in which gradients became ready in its first step, and closes one once its bytes
    reach its cap; `tells_apart` says whether they came out as planned. Raises PlanError where the plan is for
    other parameters, or where this torch has no caps for single buckets.
    """
    plan = read_bucket_plan(payload)
    if isinstance(model, DistributedDataParallel):
        raise PlanError("tensor-fusion: the model is in DistributedDataParallel already; lower the bare model")
    if "bucket_cap_mb_list" not in inspect.signature(DistributedDataParallel).parameters:
        raise PlanError("tensor-fusion: this torch has no bucket_cap_mb_list; torch 2.13 or newer is needed")
    sizes = {name: each.numel() * each.element_size() for name, each in trained_parameters(model)}
    planned = {name for bucket in plan.buckets for name in bucket}
    if planned != set(sizes):
        strange = min(planned ^ set(sizes))
        where = "the plan" if strange in planned else "the model"
        raise PlanError(
            f"tensor-fusion: parameter {strange!r} is only in {where}; $.buckets must hold each of the model's "
            f"{len(sizes)} trained parameters once"
        )
    for place, (bucket, size) in enumerate(zip(plan.buckets, plan.sizes, strict=True)):
        held = sum(sizes[name] for name in bucket)
        if held != size:
            raise PlanError(
                f"tensor-fusion: $.sizes[{place}] is {size} bytes, but its parameters have {held} in this model; "
                "make the plan for this model"
            )
    # Torch's annotation says integers; caps are multiplied by 2**20 before they are rounded.
    caps: Any = plan.caps_mib()
    return DistributedDataParallel(model, bucket_cap_mb_list=caps)


def tells_apart(plan: BucketPlan, model: DistributedDataParallel) -> str:
    """How the buckets that DDP formed differ from `plan`, in words; empty where they don't, or can't be known yet."""
    names = [name for name, _ in trained_parameters(model)]
    formed = [sorted(names[place] for place in bucket) for bucket in bucket_layout(model)]
    planned = [sorted(bucket) for bucket in plan.buckets]
    if not formed or formed == planned:
        return ""
    if len(formed) != len(planned):
        return f"DDP formed {len(formed)} buckets, the plan has {len(planned)}"
    place = next(place for place, pair in enumerate(zip(formed, planned, strict=True)) if pair[0] != pair[1])
    return f"bucket {place} came out with {len(formed[place])} other parameters than the plan's {len(planned[place])}"
