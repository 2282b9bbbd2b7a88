"""Planning: passes by name over a captured job, and the plan that comes out. Part of the composition root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from makespan.bucket_plan import BucketPlan, read_bucket_plan
from makespan.cluster import Cluster
from makespan.cluster_file import load_cluster
from makespan.errors import MakespanError, PassError
from makespan.graph import Graph
from makespan.iteration import iteration_ns
from makespan.pipeline import run_passes
from makespan.plan import Decision, Plan
from makespan.predictors.alpha_beta import AlphaBeta
from makespan.predictors.links import Links
from makespan.predictors.measured_curve import MeasuredCurve
from makespan.protocols import CommunicationModel, Context, CostModel, Pass, Progress, no_progress
from makespan.resolve import did_you_mean, offering_names, resolve
from makespan.schedule import Schedule
from makespan.simulator.analysis.communication import communication_table
from makespan.simulator.replay import replay
from makespan.text import cut

PASSES: Final = "makespan.optimizers"
ORDER: Final = "contended"
FUSION: Final = "tensor-fusion"


__all__ = ["Optimized", "load_cluster", "optimize", "parse_settings", "pass_names"]


@dataclass(frozen=True, slots=True, eq=False)
class Optimized:
    """What passes made of a job: schedules before and after, and the plan.

    `captured_ns` is the iteration as captured, replayed. `baseline_ns` is what the changed one is held against: where
    the passes rest on a communication model, the job's own buckets under that same model. `costs_from` says in a
    sentence where the costs of communication come from.
    """

    captured: Schedule
    changed: Schedule
    plan: Plan
    captured_ns: int
    baseline_ns: int
    iteration_ns: int
    costs_from: str
    named_ns: Mapping[str, int] = field(default_factory=dict[str, int])
    lower_bound_ns: int | None = None

    @property
    def change_pct(self) -> float:
        """Change of the iteration time, in per cent of the baseline."""
        return 100.0 * (self.iteration_ns - self.baseline_ns) / max(self.baseline_ns, 1)

    @property
    def gap(self) -> float | None:
        """(iteration - bound) / bound: at most so much better can any plan be; None where no bound is known."""
        if not self.lower_bound_ns:
            return None
        return (self.iteration_ns - self.lower_bound_ns) / self.lower_bound_ns

    @property
    def bucket_plan(self) -> BucketPlan | None:
        """The gradient buckets that were decided on, if they were."""
        payloads = self.plan.payloads(FUSION)
        return read_bucket_plan(payloads[-1]) if payloads else None


def optimize(
    graph: Graph,
    passes: Sequence[str | tuple[str, Pass]] = (FUSION,),
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    communication: CommunicationModel | str | Path | None = None,
    costs: CostModel | None = None,
    cluster: Cluster | None = None,
    seed: int = 0,
    model: str = "captured job",
    progress: Progress = no_progress,
) -> Optimized:
    """Let `passes` (names, or names with passes) change `graph` in turn, for a shorter iteration.

    `settings` are constructor arguments by pass. `communication` is a model or the path of a table that
    `probe_communication` wrote; without it the links of `cluster` tell what communication costs, and without that the
    job's own transfers. Raises MakespanError where a name is unknown, settings don't fit, or a pass can't be applied.

    >>> ms.optimize(graph, communication="network.json").bucket_plan.code_line()
    """
    chosen, costs_from = _communication(graph, communication, cluster)
    named = [_named_pass(each, settings or {}) for each in passes]
    try:
        made = run_passes(graph, named, Context(replay, cluster, costs, chosen, seed, progress))
    except PassError as error:
        if chosen is not None:
            raise
        raise PassError(f"{error} ({costs_from})") from error
    captured, changed = replay(graph, ORDER), replay(made.graph, ORDER)
    search = _search(made.decisions)
    captured_ns = iteration_ns(captured)
    named_ns: dict[str, int] = dict(search.get("named_ns", {}))
    baseline_ns = named_ns.get("as captured", named_ns.get("ddp default", captured_ns))
    plan = Plan(
        model=model,
        cluster="as captured" if cluster is None else f"{len(cluster.ranks)} ranks",
        decisions=made.decisions,
        predicted_ns={"captured": captured_ns, "baseline": baseline_ns, "iteration": iteration_ns(changed)},
        seed=seed,
    )
    return Optimized(
        captured, changed, plan, captured_ns, baseline_ns, iteration_ns(changed), costs_from, named_ns,
        search.get("lower_bound_ns"),
    )  # fmt: skip


def parse_settings(texts: Sequence[str], passes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """From "PASS.NAME=VALUE" texts, values as TOML spells them, to constructor arguments of some of `passes`.

    Raises MakespanError for another form, and for a pass that is not among them.

    >>> parse_settings(["gradient-accumulation.micro_batches=4"], ["gradient-accumulation"])
    {'gradient-accumulation': {'micro_batches': 4}}
    """
    import tomllib

    names = [_plain(name) for name in passes]
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in texts:
        left, equals, value = text.partition("=")
        name, dot, key = left.strip().partition(".")
        if not (equals and dot and name and key.isidentifier()):
            raise MakespanError(f"setting {cut(text)!r}: expected PASS.NAME=VALUE, such as tensor-partition.parts=4")
        if _plain(name) not in found:
            raise MakespanError(f"setting for {name!r}, which is not among the passes{did_you_mean(name, names)}")
        try:
            found[_plain(name)][key] = tomllib.loads(f"value = {value}")["value"]
        except (tomllib.TOMLDecodeError, ValueError):
            found[_plain(name)][key] = value.strip()
    return {name: given for name, given in found.items() if given}


def _named_pass(given: str | tuple[str, Pass], settings: Mapping[str, Mapping[str, Any]]) -> tuple[str, Pass]:
    if not isinstance(given, str):
        return given
    name = _plain(given)
    offered = resolve(PASSES, name)
    try:
        made = offered(**settings.get(name, {})) if isinstance(offered, type) else offered
    except TypeError as error:
        raise PassError(f"pass {name}: its settings don't fit ({error})") from None
    return name, made


def _plain(name: str) -> str:
    return name.strip().replace("_", "-")


def pass_names() -> list[str]:
    """Names of the passes that there are."""
    return offering_names(PASSES)


def _communication(
    graph: Graph, given: CommunicationModel | str | Path | None, cluster: Cluster | None
) -> tuple[CommunicationModel | None, str]:
    """The model to use, and where it comes from."""
    if isinstance(given, str | Path):
        return MeasuredCurve.load(given), f"communication as measured in {Path(given).name}"
    if given is not None:
        return given, "communication by the model given"
    if cluster is not None:
        return Links(), "communication by the cluster's links, which tell what a network could do"
    try:
        table = communication_table(graph, "the captured job")
    except MakespanError:
        return None, "no communication model"
    sizes = {entry.size_bytes for entry in table.measured if entry.operation == "allreduce"}
    if len(sizes) < 2:
        return None, "no communication model: all captured all-reduces have one size"
    return AlphaBeta.fit(table), (
        f"communication fitted to the job's own transfers, {len(sizes)} sizes; measure the network with "
        "makespan.probe_communication for more than a first answer"
    )


def _search(decisions: Sequence[Decision]) -> dict[str, Any]:
    """How the last bucket plan was found."""
    found = [decision.payload.get("search", {}) for decision in decisions if decision.pass_name == FUSION]
    return found[-1] if found else {}
