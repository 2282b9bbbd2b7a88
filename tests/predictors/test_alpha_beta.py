"""Alpha-beta: the textbook's closed forms, fits that find what made a table, and changed links."""

import math

import numpy as np
import pytest
from communication_tables import made_table
from hypothesis import given
from hypothesis import strategies as st

from makespan.communication_table import COLLECTIVES, CommunicationTable, Measured
from makespan.errors import PredictionError
from makespan.predictors.algorithms import ALGORITHMS, closed_form
from makespan.predictors.alpha_beta import AffineCost, AlphaBeta

RING = AlphaBeta({collective: AffineCost(1_000, 2.0) for collective in COLLECTIVES})


def transfer(model: AlphaBeta, collective: str, size: int, count: int) -> int:
    return int(model.transfer_ns(collective, np.array([size]), range(count), None)[0])


@pytest.mark.parametrize(
    ("collective", "count", "expected"),
    [
        ("allreduce", 4, 6 * (1_000 + 2 * 250)),
        ("allreduce", 2, 2 * (1_000 + 2 * 500)),
        ("allgather", 4, 3 * (1_000 + 2 * 1_000)),
        ("reducescatter", 4, 3 * (1_000 + 2 * 250)),
        ("alltoall", 4, 1_000 + 2 * 750),
        ("broadcast", 4, 3 * 1_000 + 2 * 1_000),
        ("send", 2, 1_000 + 2 * 1_000),
        ("allreduce", 1, 0),
    ],
)
def test_ring(collective: str, count: int, expected: int) -> None:
    assert transfer(RING, collective, 1_000, count) == expected


def test_tree_and_direct() -> None:
    tree = AlphaBeta(RING.costs, "tree")
    assert [transfer(tree, "broadcast", 1_000, count) for count in (2, 4, 5, 8)] == [3_000, 6_000, 9_000, 9_000]
    assert transfer(tree, "allreduce", 1_000, 8) == 18_000
    with pytest.raises(PredictionError, match="tree doesn't carry out allgather"):
        transfer(tree, "allgather", 1_000, 8)
    direct = AlphaBeta(RING.costs, "all-to-all")
    assert transfer(direct, "allreduce", 1_000, 4) == 2 * (1_000 + 2 * 750)
    assert transfer(direct, "broadcast", 1_000, 4) == 1_000 + 2 * 3_000
    assert transfer(direct, "allgather", 1_000, 4) == 1_000 + 2 * 3_000
    with pytest.raises(PredictionError, match="did you mean 'tree'"):
        AlphaBeta(RING.costs, "trees")


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    latency=st.floats(0, 1e6),
    per_byte=st.floats(1e-3, 100),
    call=st.floats(1e4, 1e6),
    counts=st.sampled_from([(2, 4), (2, 4, 8), (3, 5)]),
)
def test_a_fit_finds_what_made_the_table(
    algorithm: str, latency: float, per_byte: float, call: float, counts: tuple[int, ...]
) -> None:
    def law(collective: str, count: int, size: int) -> float:
        rounds, sent = closed_form(algorithm, collective, count)
        return call + rounds * latency + sent * per_byte * size

    model = AlphaBeta.fit(made_table(counts=counts, law=law, collectives=("allreduce",)), algorithm=algorithm)
    for count in counts:
        for size in (1 << 12, 1 << 20, 1 << 24):
            expected = law("allreduce", count, size)
            assert abs(transfer(model, "allreduce", size, count) - expected) <= 1e-3 * expected
    if algorithm == "ring":
        expected = law("allreduce", 64, 1 << 20)
        assert abs(transfer(model, "allreduce", 1 << 20, 64) - expected) <= 1e-2 * expected, "many more ranks"


@given(st.integers(2, 64), st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.sampled_from(COLLECTIVES))
def test_more_bytes_and_more_ranks_take_longer(count: int, one: int, other: int, collective: str) -> None:
    few = 2 if collective == "send" else count
    assert transfer(RING, collective, min(one, other), few) <= transfer(RING, collective, max(one, other), few)
    if collective != "send":
        assert transfer(RING, collective, one, count) <= transfer(RING, collective, one, count + 1)


@given(st.floats(1.0, 16.0), st.integers(0, 1 << 30))
def test_bandwidth_and_latency_scale_their_own_terms(factor: float, size: int) -> None:
    faster = RING.what_if(bandwidth=factor * 1e9 / 2.0)
    assert abs(transfer(faster, "allreduce", size, 4) - (6_000 + 1.5 * 2.0 * size / factor)) <= 1
    later = RING.what_if(latency=1_000 * factor)
    assert abs(transfer(later, "allreduce", size, 4) - (6_000 * factor + 1.5 * 2.0 * size)) <= 1


def test_a_changed_model_keeps_the_rest() -> None:
    model = AlphaBeta.fit(made_table())
    changed = model.what_if(bandwidth=1.25e8, latency=0)
    sizes = np.array([1 << 20])
    assert transfer(changed, "send", 1 << 20, 2) == round(8 * (1 << 20) + model.costs["send"].call_ns)
    assert changed.host_ns("copy", sizes) == model.host_ns("copy", sizes)
    assert changed.contention("send", sizes, [0, 1], None)[0] == model.contention("send", sizes, [0, 1], None)[0]
    assert transfer(model.what_if(), "send", 1 << 20, 2) == transfer(model, "send", 1 << 20, 2)
    assert "fitted" in model.validity and "changed" in changed.validity and "fitted" not in changed.validity
    for wrong in ({"bandwidth": 0.0}, {"bandwidth": math.inf}, {"latency": -1.0}, {"latency": math.nan}):
        with pytest.raises(PredictionError, match="expected"):
            model.what_if(**wrong)


def test_a_call_is_told_from_rounds_only_by_several_numbers_of_ranks() -> None:
    one = AlphaBeta.fit(made_table(counts=[4], collectives=["allreduce", "alltoall"]))
    assert one.costs["allreduce"].call_ns == 0 and one.costs["allreduce"].latency_ns > 0

    def law(collective: str, count: int, size: int) -> float:
        rounds, sent = closed_form("ring", collective, count)
        return 9_000 + 100 * rounds + sent * size

    several = AlphaBeta.fit(made_table(law=law))
    assert several.costs["allreduce"].call_ns == pytest.approx(9_000, abs=1)
    assert several.costs["allreduce"].latency_ns == pytest.approx(100, abs=1)
    assert several.costs["alltoall"].call_ns == 0, "one round, whatever the number of ranks"


def test_errors_are_relative_so_short_messages_count() -> None:
    """A law with a kink: squares of nanoseconds would fit the largest message alone."""
    table = made_table(law=lambda _, count, size: 20_000 + (size if size < 1 << 20 else 1.2 * size))
    model = AlphaBeta.fit(table)
    assert abs(transfer(model, "send", 1 << 10, 2) / 21_024 - 1) < 0.2


def test_contention_and_host_work_come_from_the_table() -> None:
    model = AlphaBeta.fit(made_table())
    sizes = np.array([0, 1 << 20, 1 << 23])
    stretch, share = model.contention("allreduce", sizes, range(16), None)
    assert np.allclose(stretch, 1.5) and np.allclose(share, 0.6)
    assert model.host_ns("launch", np.array([1 << 40])).tolist() == [20_000], "measured at 0 bytes: of any size"
    assert np.allclose(model.host_ns("copy", sizes), 1_000 + sizes / 8, rtol=1e-3)
    one_size = CommunicationTable(network="n", measured=[Measured("copy", 1, "float32", 64, [5])])
    assert AlphaBeta.fit(one_size).host_ns("copy", np.array([64])).tolist() == [5]
    with pytest.raises(PredictionError, match="0 to 64 bytes"):
        AlphaBeta.fit(one_size).host_ns("copy", np.array([65]))
    with pytest.raises(PredictionError, match="tells nothing of host work"):
        RING.host_ns("launch", sizes)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(PredictionError, match="no cost of allreduce is known in float32; there is copy, launch"):
        transfer(AlphaBeta.fit(made_table(sizes=[64])), "allreduce", 64, 4)
    with pytest.raises(PredictionError, match="tree doesn't carry out"):
        AlphaBeta.fit(made_table(), algorithm="tree")
    with pytest.raises(PredictionError, match="no cost of alltoall is known in float32; there is allreduce"):
        transfer(AlphaBeta({"allreduce": AffineCost(1, 1)}), "alltoall", 4, 4)
    with pytest.raises(PredictionError, match="out of range"):
        transfer(AlphaBeta.fit(made_table()), "allreduce", 1 << 25, 4)
    for wrong in ((-1, 1), (1, math.nan), (1, math.inf)):
        with pytest.raises(PredictionError, match="expected none below 0"):
            AffineCost(*wrong)
    with pytest.raises(PredictionError, match="share left"):
        AffineCost(1, 1, share_left=0)
