"""Protocols: what the engines hand each other, so that none has to know another.

Whatever has these methods fits: there is nothing to inherit from and nothing to register. How a trace importer
looks is told in `makespan.simulator.importers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from makespan.cluster import Cluster, DeviceType
from makespan.graph import Graph
from makespan.plan import Decision
from makespan.provenance import Provenance
from makespan.schedule import Schedule


class CostModel(Protocol):
    """How long ops take on a device: measured, analytic or learned."""

    @property
    def validity(self) -> str:
        """One sentence on the ops, sizes and devices that the model is good for."""
        ...

    def covers(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.bool_]:
        """(k,) bool: which of the (k,) `ops` of `graph` lie in the validity range."""
        ...

    def latency_ns(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.int64]:
        """(k,) int64 predicted latencies, in nanoseconds, of the (k,) `ops` of `graph` on `device`.

        Facts of an op are its columns and attributes (`size_bytes`, `flops`, `shapes`, ...). Raises
        PredictionError, naming the first op, where `covers` is False.
        """
        ...


class CommunicationModel(Protocol):
    """How long a collective or a transfer takes among ranks, and what it takes from the computing beside it.

    `collective` is allreduce, allgather, reducescatter, alltoall, broadcast or send (from the first to the second
    of two ranks); `size_bytes` (k,) int64 is what one rank puts in. `cluster` is None where the user gave none: a
    model that was fitted on the network itself does without. All methods raise PredictionError outside the range.
    """

    @property
    def validity(self) -> str:
        """One sentence on the collectives, sizes and clusters that the model is good for."""
        ...

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds from the arrival of the last of `ranks` to the end, with nothing else to do."""
        ...

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(k,) stretch and (k,) share left, where a rank computes while it communicates.

        The transfer takes `stretch` (at least 1) times as long, and computing goes on at `share left` (0 to 1) of
        its speed. All ones where they are not known to hinder each other.
        """
        ...

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(k,) int64 nanoseconds of the calling thread's own `work` on a buffer of (k,) `size_bytes`.

        `work` is "launch" (gradients into the buffer, and the call that enqueues its reduction) or "copy" (the
        reduced gradients out of it).
        """
        ...


class Replayer(Protocol):
    """Runs a graph in simulated time."""

    def __call__(self, graph: Graph, order: str = "recorded") -> Schedule:
        """The schedule of `graph` under a named discipline ("recorded" or "ready").

        Raises GraphError, printing the ops, where they wait for each other.
        """
        ...


class Progress(Protocol):
    """Hears how far a long piece of work is."""

    def __call__(self, done: int, total: int, text: str) -> None:
        """`done` of `total` parts are finished (total 0: unknown); `text` says what is being done."""
        ...


def no_progress(done: int, total: int, text: str) -> None:
    """A Progress that tells nobody."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a pass may use: hardware, costs, a replayer, a seed for all its randomness, and who hears of progress.

    `cluster`, `costs` and `communication` are None where the user gave none; a pass that needs one says so.
    """

    replay: Replayer
    cluster: Cluster | None = None
    costs: CostModel | None = None
    communication: CommunicationModel | None = None
    seed: int = 0
    progress: Progress = no_progress


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """A changed graph, which old ops each of its ops stands for, and the decisions that a plan records."""

    graph: Graph
    provenance: Provenance
    decisions: tuple[Decision, ...] = field(default=())


class Pass(Protocol):
    """Decides on a change of a graph. What its settings are, its constructor says."""

    def __call__(self, graph: Graph, context: Context) -> Rewrite:
        """A legal graph from a legal graph, which itself stays as it is; the same for the same seed.

        Raises MakespanError where the pass can't be applied; a pass that finds nothing to do gives `graph`
        back under the identity, with no decisions.
        """
        ...


class Lowering(Protocol):
    """Makes one decision of a plan real on a torch model; it has the name of the pass that decided."""

    def __call__(self, payload: dict[str, Any], model: Any) -> Any:
        """The model to train or serve, changed or wrapped as `payload` says.

        Validates the payload first, and raises PlanError with the JSON path.
        """
        ...
