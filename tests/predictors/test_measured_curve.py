"""Measured curves: exact where measured, robust, never falling, and silent beyond their range."""

from pathlib import Path

import numpy as np
import pytest
from communication_tables import SIZES, made_table
from hypothesis import given
from hypothesis import strategies as st

from makespan.communication_table import CommunicationTable, Measured, save_table
from makespan.errors import PredictionError
from makespan.predictors.curves import monotone_curve
from makespan.predictors.measured_curve import MeasuredCurve
from makespan.predictors.measurements import MIN_SHARE

TIMES = st.lists(st.integers(0, 10**12), min_size=1, max_size=5)
REPEATS = st.dictionaries(st.integers(0, 1 << 32), TIMES, min_size=1, max_size=12)


def table_of(*rows: Measured) -> CommunicationTable:
    return CommunicationTable(network="made up", measured=list(rows))


def one_collective(repeats: dict[int, list[int]]) -> MeasuredCurve:
    return MeasuredCurve(
        table_of(*(Measured("allreduce", 2, "float32", size, times) for size, times in repeats.items()))
    )


def transfer(model: MeasuredCurve, *sizes: int) -> list[int]:
    return model.transfer_ns("allreduce", np.array(sizes, np.int64), [0, 1], None).tolist()


@given(REPEATS, st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_never_falls_and_stays_between_the_times_that_were_measured(
    repeats: dict[int, list[int]], places: list[float]
) -> None:
    model = one_collective(repeats)
    largest = max(repeats)
    asked = np.sort(np.rint(np.array(places) * largest)).astype(np.int64)
    found = transfer(model, *asked.tolist())
    assert found == sorted(found)
    everything = [time for times in repeats.values() for time in times]
    assert min(everything) <= found[0] and found[-1] <= max(everything)


@given(REPEATS)
def test_exact_where_the_medians_rise(repeats: dict[int, list[int]]) -> None:
    medians = {size: np.median(times) for size, times in repeats.items()}
    ordered = [medians[size] for size in sorted(medians)]
    found = transfer(one_collective(repeats), *sorted(medians))
    if ordered == sorted(ordered):
        assert np.all(np.abs(np.array(found) - ordered) <= 0.5)


@given(REPEATS, st.integers(1, 1000))
def test_times_scale(repeats: dict[int, list[int]], factor: int) -> None:
    slower = {size: [factor * time for time in times] for size, times in repeats.items()}
    one, other = transfer(one_collective(repeats), *repeats), transfer(one_collective(slower), *repeats)
    assert np.all(np.abs(np.array(other) - factor * np.array(one, np.float64)) <= factor)


@given(REPEATS)
def test_the_curve_is_the_nearest_monotone_one(repeats: dict[int, list[int]]) -> None:
    """In absolute error no other monotone curve on the measured times is nearer to all repeats."""
    curve = monotone_curve(repeats)
    sizes = sorted(repeats)

    def cost_of(size: int, time: float) -> float:
        return sum(abs(one - time) for one in repeats[size])

    levels = sorted({time for times in repeats.values() for time in times})
    # Dynamic programme: best sum up to here with the last level at most each of `levels`.
    best = [0.0] * len(levels)
    for size in sizes:
        here = [best[place] + cost_of(size, level) for place, level in enumerate(levels)]
        best = [min(here[: place + 1]) for place in range(len(levels))]
    ours = sum(cost_of(size, time) for size, time in zip(sizes, curve.time_ns, strict=True))
    assert ours <= best[-1] * (1 + 1e-12) + 1e-6


def test_one_outlier_among_the_sizes_changes_little() -> None:
    times = {1 << place: [1000 * (1 << place)] for place in range(4, 12)}
    times[64] = [60_000_000]
    found = transfer(one_collective(times), 32, 512, 1024, 2048)
    assert found[0] == 32_000 and found[-1] == 2_048_000
    assert 128_000 <= found[1] <= 1_024_000, "pooled with its neighbours, at their median"


def test_flat_below_straight_between_and_the_last_slope_above() -> None:
    model = one_collective({1000: [5_000], 2000: [6_000], 4000: [10_000]})
    assert transfer(model, 0, 999, 1000, 1500, 3000, 4000) == [5_000, 5_000, 5_000, 5_500, 8_000, 10_000]
    assert transfer(model, 8_000, 16_000) == [18_000, 34_000]
    with pytest.raises(PredictionError, match=r"allreduce among 2 ranks of 16\.0 kB .*0 to 16000 bytes"):
        transfer(model, 16_001)


def test_the_last_slope_is_not_that_of_two_sizes_a_hair_apart() -> None:
    model = one_collective({1000: [1_000], 2000: [2_000], 3999: [3_900], 4000: [4_000]})
    assert 7_500 < transfer(model, 8000)[0] < 8_500


def test_one_size_alone_has_no_slope() -> None:
    model = one_collective({1000: [7_000]})
    assert transfer(model, 0, 1000) == [7_000, 7_000]
    with pytest.raises(PredictionError, match="0 to 1000 bytes"):
        transfer(model, 1001)


def test_rows_of_one_size_are_repeats_of_one_measurement() -> None:
    rows = [Measured("allreduce", 2, "float32", 64, [time]) for time in (10, 30, 20)]
    assert transfer(MeasuredCurve(table_of(*rows)), 64) == [20]


def test_what_was_not_measured_is_refused() -> None:
    model = MeasuredCurve(made_table())
    for wrong, sentence in (
        (("allreduce", np.array([4]), [0, 1, 2], None), "allreduce among 3 ranks was not measured in float32"),
        (("allreduse", np.array([4]), [0, 1], None), "did you mean 'allreduce'"),
        (("send", np.array([4]), [0, 1, 2], None), "expected two"),
        (("allreduce", np.array([4, -4]), [0, 1], None), "-4 bytes"),
    ):
        with pytest.raises(PredictionError, match=sentence):
            model.transfer_ns(*wrong)


def test_beside_computing() -> None:
    model = MeasuredCurve(made_table())
    sizes = np.array([0, SIZES[1], 5_000, 4 * SIZES[-1]])
    stretch, share = model.contention("alltoall", sizes, [0, 1, 2, 3], None)
    assert np.allclose(stretch, 1.5) and np.allclose(share, 0.6)


def test_ratios_stay_in_bounds_and_are_held_outside_the_sizes_they_were_measured_at() -> None:
    rows = [
        Measured("allreduce", 2, "float32", 100, [1_000]),
        Measured("allreduce", 2, "float32", 200, [2_000], [1_500], [1 - 500 / 1_500]),
        Measured("allreduce", 2, "float32", 300, [3_000], [6_000], [1 - 700 / 6_000]),
        Measured("allreduce", 2, "float32", 400, [4_000]),
        Measured("broadcast", 2, "float32", 100, [0], [0], [1.0]),
    ]
    model = MeasuredCurve(table_of(*rows))
    sizes = np.array([100, 200, 250, 300, 400])
    stretch, share = model.contention("allreduce", sizes, [0, 1], None)
    assert np.allclose(stretch, [1.0, 1.0, 3_750 / 2_500, 2.0, 2.0])
    # Each message takes 100 ns of the computing, and 2 ns more for each of its bytes.
    assert np.allclose(1 - share, [500 / 1_500, 500 / 1_500, 600 / 3_750, 700 / 6_000, 700 / 6_000])
    assert model.contention("broadcast", sizes[:1], [0, 1], None)[0] == [1.0]


def test_no_less_than_nothing_is_left() -> None:
    model = MeasuredCurve(table_of(Measured("allreduce", 2, "float32", 200, [2_000], [2_500], [0.0])))
    assert model.contention("allreduce", np.array([1, 200]), [0, 1], None)[1].tolist() == [MIN_SHARE, MIN_SHARE]


def test_one_size_off_the_others_hardly_counts() -> None:
    """Shares are differences of two noisy times; optimizers would find the one that noise made best."""
    shares = [0.6, 0.6, 0.6, 0.9, 0.6, 0.6, 0.6, 0.6]
    rows = [
        Measured("allreduce", 2, "float32", 1000 << place, [1000 << place], [1000 << place], [share])
        for place, share in enumerate(shares)
    ]
    sizes = np.array([1000 << place for place in range(len(shares))])
    found = MeasuredCurve(table_of(*rows)).contention("allreduce", sizes, [0, 1], None)[1]
    assert np.all(np.abs(found - 0.6) < 0.06)


def test_a_type_of_its_own() -> None:
    table = table_of(
        Measured("allreduce", 2, "float16", 64, [10]),
        Measured("allreduce", 2, "float32", 64, [20]),
        Measured("allreduce", 2, "int8", 64, [30]),
        Measured("copy", 1, "int8", 64, [5]),
    )
    assert MeasuredCurve(table).dtype == "int8", "of most rows"
    model = MeasuredCurve(table).for_dtype("float16")
    assert (model.dtype, transfer(model, 64)) == ("float16", [10])
    assert model.host_ns("copy", np.array([64])).tolist() == [5], "bytes are bytes"
    with pytest.raises(PredictionError, match="did you mean 'float16'"):
        model.for_dtype("bfloat16")
    assert MeasuredCurve(table_of(*table.measured[:2])).dtype == "float32", "among equals"


def test_host_work() -> None:
    model = MeasuredCurve(made_table())
    assert model.host_ns("launch", np.array([0, 1 << 30])).tolist() == [20_000, 20_000], "a call, whatever its size"
    assert model.host_ns("copy", np.array([1 << 14])).tolist() == [1_000 + (1 << 11)]
    with pytest.raises(PredictionError, match="copy of"):
        model.host_ns("copy", np.array([1 << 30]))
    with pytest.raises(PredictionError, match="'cast'"):
        model.host_ns("cast", np.array([64]))
    only_copies = MeasuredCurve(table_of(Measured("copy", 1, "float32", 64, [5])))
    assert only_copies.host_ns("launch", np.array([64])).tolist() == [0]
    with pytest.raises(PredictionError, match="tells nothing of host work 'copy'"):
        MeasuredCurve(made_table(host=False)).host_ns("copy", np.array([64]))


def test_times_beyond_the_replay_are_refused() -> None:
    with pytest.raises(PredictionError, match="would take more than"):
        transfer(one_collective({1: [1], 2: [(1 << 62) - 1]}), 8)


def test_no_table(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(PredictionError, match="no communication table"):
        MeasuredCurve.load(tmp_path / "no.json")
    with pytest.raises(PredictionError, match="holds no measurement"):
        MeasuredCurve(table_of())
    save_table(made_table(), tmp_path / "yes.json")
    assert "made up" in MeasuredCurve.load(tmp_path / "yes.json").validity
