"""Lowering in real process groups: DDP forms the planned buckets and trains as it would without a plan."""

from itertools import chain
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gloo_jobs import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import makespan as ms
from makespan.bucket_plan import read_bucket_plan
from makespan.errors import PlanError
from makespan.plan import Decision, Plan
from makespan.runtime.lowerings.tensor_fusion import tells_apart

BUCKETS = [["4.bias", "4.weight"], ["2.bias"], ["2.weight", "0.bias", "0.weight"]]


def small_model() -> nn.Module:
    """Three layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))


def plan_of(buckets: list[list[str]]) -> Plan:
    """A plan with these buckets."""
    sizes = {name: 4 * each.numel() for name, each in small_model().named_parameters()}
    payload = {"buckets": buckets, "sizes": [sum(sizes[name] for name in bucket) for bucket in buckets]}
    return Plan(model="small", cluster="here", decisions=(Decision("tensor-fusion", payload),))


def train_both(rank: int, path: str) -> None:
    """Train under the plan and under DDP's default; both must end alike, on all ranks."""
    results: list[torch.Tensor] = []
    plan = Plan.load(path)
    for model in (ms.lower(plan, small_model()), DistributedDataParallel(small_model())):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 16, generator=generator)).square().mean().backward()
            optimizer.step()
        results.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
        if len(results) == 1:
            assert tells_apart(read_bucket_plan(plan.decisions[0].payload), model) == ""
            other = read_bucket_plan(
                plan_of([["4.bias"], ["4.weight", "2.bias", "2.weight", "0.bias", "0.weight"]]).decisions[0].payload
            )
            assert "DDP formed 3 buckets, the plan has 2" in tells_apart(other, model)
    assert torch.allclose(results[0], results[1])
    everywhere = [torch.empty_like(results[0]) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, results[0])
    assert all(torch.equal(one, results[0]) for one in everywhere)


def test_ddp_forms_the_planned_buckets_and_trains_the_same(tmp_path: Path) -> None:
    plan_of(BUCKETS).save(tmp_path / "plan.json")
    run_ranks(train_both, 2, str(tmp_path / "plan.json"))


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"buckets": [["4.bias"]], "sizes": [16]}, "only in the model"),
        ({"buckets": [[*chain(*BUCKETS), "9.bias"]], "sizes": [16]}, "'9.bias' is only in the plan"),
        ({"buckets": [["4.bias"], ["4.bias"]], "sizes": [16, 16]}, "two places"),
        ({"buckets": [["4.bias"]], "sizes": []}, r"\$\.sizes"),
        ({"buckets": "all"}, r"\$\.buckets"),
        ({"buckets": [["4.bias"]], "sizes": [16], "caps": 3}, "caps"),
    ],
)
def test_plans_for_another_model_are_refused(payload: dict[str, object], told: str) -> None:
    plan = Plan(model="small", cluster="here", decisions=(Decision("tensor-fusion", payload),))
    with pytest.raises(PlanError, match=told):
        ms.lower(plan, small_model())


def test_wrong_sizes_and_unknown_decisions_are_refused() -> None:
    plan = plan_of(BUCKETS)
    payload = {**plan.decisions[0].payload, "sizes": [1, 2, 3]}
    with pytest.raises(PlanError, match=r"sizes\[0\] is 1 bytes, but its parameters have 1040"):
        ms.lower(Plan(model="small", cluster="here", decisions=(Decision("tensor-fusion", payload),)), small_model())
    with pytest.raises(PlanError, match=r"\$\.decisions\[0\].*did you mean 'tensor-fusion'"):
        ms.lower(Plan(model="small", cluster="here", decisions=(Decision("tensor-fussion", {}),)), small_model())
