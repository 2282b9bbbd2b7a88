"""Job: what each rank of a data-parallel training step computes, and how its gradients are exchanged.

The description that dPRO draws from its traces (Hu et al., MLSys 2022, section 4): operators of the forward and the
backward pass, the gradients that come out of them, the updates that wait for those, and the groups in which gradients
are fused. Everything is plain data; `TrainingJob` checks that it fits together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from makespan.errors import GraphError
from makespan.resolve import did_you_mean


@dataclass(frozen=True, slots=True)
class Operator:
    """One op of a pass. `after` names the operators of its rank that it needs, by default the one listed before it.

    `gradients`: bytes of each gradient that is complete only when this operator is over; several operators may
    feed one gradient.
    """

    name: str
    duration_ns: int
    gradients: Mapping[str, int] = field(default_factory=dict[str, int])
    after: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """An op of the optimizer, which needs the gradients named, exchanged."""

    name: str
    duration_ns: int
    gradients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankWork:
    """What one rank computes in a step, in the order in which it is issued."""

    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    updates: tuple[Update, ...] = ()

    def operators(self) -> Iterator[Operator]:
        """All operators, in order."""
        return chain(self.forward, self.backward)

    def gradient_bytes(self) -> dict[str, int]:
        """Bytes of each gradient, in the order in which they first appear."""
        return {name: size for operator in self.operators() for name, size in operator.gradients.items()}


@dataclass(frozen=True, slots=True)
class GradientExchange:
    """How gradients become the same on all ranks.

    `backend`: "none" (updates follow the operators), "parameter-server", or another algorithm of
    `simulator/collectives` such as "ring". `groups`: the gradients that are fused into one message, groups in the
    order in which they take the fusion buffer; those not named are groups of their own and follow. `slice_bytes`,
    `servers` and `sum_bytes_per_s` are as in `expansion.expand`.

    `ready_lag_ns` passes between an operator's end and its gradient's being known as ready; `queue_ns` is what a group
    costs the ranks once it is ready everywhere; copying it into the fusion buffer and out of it takes
    `copy_lag_ns` + bytes / `copy_bytes_per_s` (0: no time for the bytes). At most `buffers` groups of a rank are
    between queue and copy out at once (0: any number).
    """

    backend: str = "ring"
    groups: tuple[tuple[str, ...], ...] = ()
    slice_bytes: int = 0
    servers: tuple[int, ...] = ()
    sum_bytes_per_s: float = 0.0
    ready_lag_ns: int = 0
    queue_ns: int = 0
    copy_lag_ns: int = 0
    copy_bytes_per_s: float = 0.0
    buffers: int = 1

    def copy_ns(self, size_bytes: int) -> int:
        """How long a copy of `size_bytes` into or out of the fusion buffer takes."""
        return self.copy_lag_ns + (round(size_bytes * 1e9 / self.copy_bytes_per_s) if self.copy_bytes_per_s else 0)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """`steps` equal steps of ranks 0 to N - 1, `ranks[r]` being the work of rank r.

    Raises GraphError where a name stands for two things or for none, where ranks have unlike gradients, or where a
    time, size or rate is negative.
    """

    ranks: tuple[RankWork, ...]
    exchange: GradientExchange = field(default_factory=GradientExchange)
    steps: int = 1

    @staticmethod
    def of_equal_ranks(
        work: RankWork, count: int, exchange: GradientExchange | None = None, steps: int = 1
    ) -> TrainingJob:
        """The job of `count` ranks that all do the same work."""
        return TrainingJob((work,) * count, exchange or GradientExchange(), steps)

    def __post_init__(self) -> None:
        if not self.ranks or self.steps < 1:
            raise GraphError(f"a job of {len(self.ranks)} ranks and {self.steps} steps: expected at least one of each")
        sizes = self.ranks[0].gradient_bytes()
        for rank, work in enumerate(self.ranks):
            _check_work(rank, work)
            if self.exchange.backend != "none" and work.gradient_bytes() != sizes:
                unlike = sorted(set(work.gradient_bytes().items()) ^ set(sizes.items()))[0][0]
                raise GraphError(f"gradient {unlike!r} differs between rank 0 and rank {rank}: give all the same")
        exchange = self.exchange
        for name in ("slice_bytes", "sum_bytes_per_s", "ready_lag_ns", "queue_ns", "copy_lag_ns", "copy_bytes_per_s",
                     "buffers"):  # fmt: skip
            if not 0 <= getattr(exchange, name) < float("inf"):
                raise GraphError(f"{name} is {getattr(exchange, name)}, expected 0 or more")
        grouped = Counter(chain.from_iterable(exchange.groups))
        for name, count in grouped.items():
            if name not in sizes:
                raise GraphError(f"a group names the gradient {name!r}, which no operator makes{_near(name, sizes)}")
            if count > 1:
                raise GraphError(f"gradient {name!r} is in {count} groups, expected one")

    def groups(self) -> list[tuple[tuple[str, ...], int]]:
        """The gradients and the bytes of each fused group, in order, those of their own included."""
        sizes = self.ranks[0].gradient_bytes()
        named = set(chain.from_iterable(self.exchange.groups))
        alone = tuple((name,) for name in sizes if name not in named)
        groups = [group for group in self.exchange.groups if group]
        return [(group, sum(sizes[name] for name in group)) for group in (*groups, *alone)]


def _check_work(rank: int, work: RankWork) -> None:
    met: set[str] = set()
    sizes: dict[str, int] = {}
    for operator in work.operators():
        for name in operator.after or ():
            if name not in met:
                raise GraphError(
                    f"rank {rank}: operator {operator.name!r} comes after {name!r}, which no operator before it is "
                    f"called{_near(name, met)}"
                )
        if operator.name in met:
            raise GraphError(f"rank {rank}: two operators are called {operator.name!r}; give each a name of its own")
        met.add(operator.name)
        if operator.duration_ns < 0:
            raise GraphError(f"rank {rank}: {operator.name!r} takes {operator.duration_ns} ns, expected 0 or more")
        for name, size_bytes in operator.gradients.items():
            if size_bytes < 0 or sizes.setdefault(name, size_bytes) != size_bytes:
                raise GraphError(f"rank {rank}: gradient {name!r} has {size_bytes} bytes, expected one size, 0 or more")
    updates = {update.name for update in work.updates}
    if len(updates) < len(work.updates) or updates & met:
        raise GraphError(f"rank {rank}: an update has the name of another op; give each a name of its own")
    for update in work.updates:
        if update.duration_ns < 0:
            raise GraphError(f"rank {rank}: {update.name!r} takes {update.duration_ns} ns, expected 0 or more")
        for name in update.gradients:
            if name not in sizes:
                raise GraphError(
                    f"rank {rank}: update {update.name!r} needs the gradient {name!r}, which no operator makes"
                    f"{_near(name, sizes)}"
                )


def _near(name: str, known: Mapping[str, int] | set[str]) -> str:
    return did_you_mean(name, known)
