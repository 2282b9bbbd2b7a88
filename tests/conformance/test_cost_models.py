"""Every cost model that a module of predictors offers keeps the contract; and the checks notice what is wrong."""

import numpy as np
import pytest
from contracts import check_cost_model, check_module
from numpy.typing import NDArray

from makespan.cluster import DeviceType
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
