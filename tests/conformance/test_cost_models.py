"""Every model that a module of predictors offers keeps its contract; and the checks notice what is wrong."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from communication_tables import made_table
from contracts import check_communication_model, check_cost_model, check_module, made_from_table
from numpy.typing import NDArray

from makespan.cluster import Cluster, DeviceType
from makespan.communication_table import save_table
from makespan.errors import PredictionError
from makespan.graph import Graph
from makespan.resolve import find_module, member_names, offered

FOLDER = "makespan.predictors"


@pytest.mark.parametrize("name", member_names(FOLDER))
def test_members(name: str) -> None:
    module = find_module(FOLDER, name)
    check_module(module)
    if hasattr(offered(module), "latency_ns"):
        check_cost_model(offered(module))
    if hasattr(offered(module), "transfer_ns"):
        check_communication_model(offered(module))


@pytest.mark.parametrize("name", member_names(FOLDER))
def test_a_model_of_a_table_is_the_same_from_its_file(name: str, tmp_path: Path) -> None:
    model = offered(find_module(FOLDER, name))
    if hasattr(model, "transfer_ns") and hasattr(model, "load"):
        save_table(made_table(), tmp_path / "table.json")
        loaded, made = model.load(tmp_path / "table.json"), made_from_table(model)
        assert loaded.validity == made.validity
        asked = ("allreduce", np.array([100, 5_000, 1 << 20]), [0, 1], None)
        assert np.array_equal(loaded.transfer_ns(*asked), made.transfer_ns(*asked))


class Measured:
    """Says again what was measured, for ops of even number."""

    validity = "ops of even number, on the device of the trace"

    def covers(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.bool_]:
        return ops % 2 == 0

    def latency_ns(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.int64]:
        if not np.all(self.covers(graph, ops, device)):
            raise PredictionError(f"op {ops[0]} is odd")
        return graph.duration_ns[ops]


class Careless(Measured):
    """Prices whatever it is asked."""

    def latency_ns(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.int64]:
        return graph.duration_ns[ops]


class Fractional(Measured):
    """Gives fractions of nanoseconds."""

    def latency_ns(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.int64]:
        return super().latency_ns(graph, ops, device) / 2  # type: ignore[return-value]


class Boundless(Measured):
    """States no range."""

    validity = ""


class Moody(Measured):
    """Never says the same twice."""

    def latency_ns(self, graph: Graph, ops: NDArray[np.int32], device: DeviceType) -> NDArray[np.int64]:
        return super().latency_ns(graph, ops, device) + np.random.default_rng().integers(0, 10**6, len(ops))


def test_a_good_model_passes() -> None:
    check_cost_model(Measured)
    check_cost_model(Measured())


@pytest.mark.parametrize("bad", [Careless, Fractional, Boundless, Moody])
def test_bad_models_are_noticed(bad: type) -> None:
    with pytest.raises(AssertionError):
        check_cost_model(bad)


class Plain:
    """All-reduces: 5 µs and a nanosecond a byte, with half of computing left beside them."""

    validity = "allreduce of any size"

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        if collective != "allreduce" or not ranks or len(set(ranks)) < len(ranks) or np.any(size_bytes < 0):
            raise PredictionError("only all-reduces")
        return np.minimum(5_000 + size_bytes, 1 << 61)

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        stretch = np.ones(self.transfer_ns(collective, size_bytes, ranks, cluster).shape)
        return stretch, stretch / 2

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        if work != "launch" or np.any(size_bytes < 0):
            raise PredictionError("only launches")
        return np.full(size_bytes.shape, 900)


class Cheaper(Plain):
    """Larger messages are faster."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        return np.maximum(10**9 - super().transfer_ns(collective, size_bytes, ranks, cluster), 0)


class Relative(Plain):
    """What one message takes depends on those asked about with it."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        times = super().transfer_ns(collective, size_bytes, ranks, cluster)
        return times - times.min() if times.size else times


class Sliced(Plain):
    """Gives fractions of nanoseconds."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        return super().transfer_ns(collective, size_bytes, ranks, cluster) / 2  # type: ignore[return-value]


class Willing(Plain):
    """Answers for collectives that it has never heard of."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        return super().transfer_ns("allreduce", size_bytes, ranks, cluster)


class Unbounded(Plain):
    """States no range."""

    validity = " "


class Undecided(Plain):
    """Never says the same twice."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        times = super().transfer_ns(collective, size_bytes, ranks, cluster)
        return times + np.random.default_rng().integers(10**9)


class Sorting(Plain):
    """Brings the caller's ranks in order."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        ranks.sort()  # type: ignore[attr-defined]
        return super().transfer_ns(collective, size_bytes, ranks, cluster)


class Overwriting(Plain):
    """Computes in the caller's array."""

    def transfer_ns(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> NDArray[np.int64]:
        times = super().transfer_ns(collective, size_bytes, ranks, cluster)
        size_bytes[:] = times
        return size_bytes


class Hastening(Plain):
    """Transfers gain from computing beside them."""

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        stretch, share = super().contention(collective, size_bytes, ranks, cluster)
        return stretch * 0.9, share


class Stalling(Plain):
    """Nothing of computing is left beside a transfer."""

    def contention(
        self, collective: str, size_bytes: NDArray[np.int64], ranks: Sequence[int], cluster: Cluster | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        stretch, share = super().contention(collective, size_bytes, ranks, cluster)
        return stretch, share * 0


class Idle(Plain):
    """Any work of the host takes no time."""

    def host_ns(self, work: str, size_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.zeros(size_bytes.shape, np.int64)


def test_a_good_communication_model_passes() -> None:
    check_communication_model(Plain)
    check_communication_model(Plain())


@pytest.mark.parametrize(
    "bad",
    [Cheaper, Relative, Sliced, Willing, Unbounded, Undecided, Sorting, Overwriting, Hastening, Stalling, Idle],
)
def test_bad_communication_models_are_noticed(bad: type) -> None:
    # The sizes that are asked about can't be written: numpy's ValueError says so.
    with pytest.raises((AssertionError, ValueError)):
        check_communication_model(bad)
