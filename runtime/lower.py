"""Lower: carry out a plan's decisions on a torch model."""

from __future__ import annotations

from typing import Any

from makespan.errors import PlanError
from makespan.plan import Plan
from makespan.resolve import did_you_mean, offering_names, resolve

LOWERINGS = "makespan.runtime.lowerings"


def lower(plan: Plan, model: Any) -> Any:
    """`model`, changed or wrapped by each decision of `plan` in turn, ready to train in this process group.

    Raises PlanError, naming the decision, where one has no lowering or doesn't fit the model; nothing is skipped.
    """
    known = offering_names(LOWERINGS)
    for place, decision in enumerate(plan.decisions):
        if decision.pass_name not in known:
            hint = did_you_mean(decision.pass_name, known)
            raise PlanError(f"$.decisions[{place}]: nothing carries out {decision.pass_name!r}{hint}")
    for decision in plan.decisions:
        model = resolve(LOWERINGS, decision.pass_name, outside=False)(decision.payload, model)
    return model
