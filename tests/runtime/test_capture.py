"""Capture of real training loops over gloo: what is recorded, that it replays, and that mistakes are told."""

from pathlib import Path

import pytest
import torch
from gloo_jobs import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import makespan as ms
from makespan.capture_file import WAIT, Capture, parse_capture
from makespan.errors import TraceError
from makespan.iteration import step_lengths_ns
from makespan.optimizers.bucketing.gradients import find_backwards
from makespan.simulator.replay import replay

STEPS = 4


def small_model() -> nn.Module:
    """Five layers, one with buffers that DDP broadcasts."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)
    )


def train(model: nn.Module, steps: int, accumulate: int = 1) -> None:
    """Train on random numbers."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(32, 64)
    for _ in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            if isinstance(model, DistributedDataParallel) and part < accumulate - 1:
                with model.no_sync():
                    model(inputs).square().mean().backward()
            else:
                model(inputs).square().mean().backward()
        optimizer.step()


def train_captured(rank: int, folder: str, accumulate: int) -> None:
    """One rank of the job that the tests look at."""
    model = DistributedDataParallel(small_model(), bucket_cap_mb=0.1)
    with ms.capture(folder, steps=STEPS, warm_up=2, plain=2, profiled=1):
        train(model, 12, accumulate)


@pytest.fixture(scope="module", params=[1, 2], ids=["plain", "accumulating"])
def captured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a capture of two ranks."""
    folder = tmp_path_factory.mktemp("capture")
    run_ranks(train_captured, 2, str(folder), request.param)
    return folder


def captures(folder: Path) -> list[Capture]:
    """Both ranks' files."""
    return [parse_capture(path.read_bytes(), str(path)) for path in sorted(folder.glob("*.capture.json"))]


def test_every_rank_tells_of_steps_gradients_buckets_and_waits(captured: Path) -> None:
    for rank, capture in enumerate(captures(captured)):
        assert (capture.rank, capture.world_size) == (rank, 2)
        count = len(capture.parameters)
        names = [name for name, _ in small_model().named_parameters()]
        assert [parameter.name for parameter in capture.parameters] == names
        assert sorted(place for bucket in capture.buckets for place in bucket) == list(range(count))
        assert len(capture.buckets) > 1
        assert (len(capture.steps), len(capture.plain_step_ns), len(capture.profiled_step_ns)) == (STEPS, 2, 1)
        sizes = [sum(capture.parameters[place].bytes for place in bucket) for bucket in capture.buckets]
        for step in capture.steps:
            ready = [gradient.parameter for gradient in step.gradients]
            assert sorted(ready[-count:]) == list(range(count))
            reduced = [collective for collective in step.collectives if collective.bucket >= 0]
            assert [collective.bytes for collective in reduced] == sizes
            assert [collective.bucket for collective in reduced] == list(range(len(sizes)))
            broadcasts = [collective for collective in step.collectives if "broadcast" in collective.name]
            assert broadcasts and {collective.bytes for collective in broadcasts} == {2 * 256 * 4, 8}
            waits = [span for span in step.spans if span.name == WAIT]
            assert waits[-1].start_ns >= step.gradients[-1].at_ns
            # Gradients are reduced once they are ready, and awaited before the optimizer uses them.
            last_ready = {gradient.parameter: gradient.at_ns for gradient in step.gradients}
            for collective in reduced:
                assert collective.start_ns >= max(last_ready[place] for place in capture.buckets[collective.bucket])
            optimizer = next(span for span in step.spans if span.name == "optimizer")
            assert optimizer.start_ns >= waits[-1].end_ns


def test_one_hosts_ranks_read_one_clock(captured: Path) -> None:
    first, second = captures(captured)
    assert first.clock == second.clock
    assert not first.clock_readings
    for reading in second.clock_readings:
        assert abs(reading.local_ns - reading.reference_ns) <= reading.round_trip_ns


def test_a_capture_replays_as_it_was(captured: Path) -> None:
    graph = ms.build(ms.load(captured))
    assert {step.rank for step in graph.steps} == {0, 1}
    replayed = step_lengths_ns(replay(graph))
    for number in range(STEPS):
        measured = max(capture.steps[number].end_ns - capture.steps[number].start_ns for capture in captures(captured))
        assert replayed[f"step {number}"] == pytest.approx(measured, rel=2e-3)
    backwards = find_backwards(graph)
    assert len(backwards) == 2 * STEPS
    for backward in backwards:
        assert sorted(set(backward.bucket_of.tolist())) == list(range(len(backward.reductions)))


def test_the_full_profile_lies_beside_it(captured: Path) -> None:
    for rank in range(2):
        profile = ms.load(captured / f"rank{rank}.profile.json.gz")
        assert profile.ranks[0].format == "PyTorch Kineto"
        assert any("addmm" in name for name in profile.ranks[0].events.names)


def test_a_single_process_is_captured_too(tmp_path: Path) -> None:
    with ms.capture(tmp_path, steps=2, warm_up=1, plain=0) as recording:
        train(small_model(), 5)
        assert recording.phase == "done"
    graph = ms.build(ms.load(tmp_path))
    assert len(step_lengths_ns(replay(graph))) == 2
    assert not list(tmp_path.glob("*.profile*"))


def test_steps_end_where_the_loop_says(tmp_path: Path) -> None:
    model = small_model()
    with ms.capture(tmp_path, steps=2, warm_up=1, plain=0, boundaries="call") as recording:
        for _ in range(3):
            train(model, 2)
            recording.step()
    capture = parse_capture((tmp_path / "rank0.capture.json").read_bytes(), "it")
    assert [sum(span.name == "optimizer" for span in step.spans) for step in capture.steps] == [2, 2]


def test_mistakes_are_told(tmp_path: Path) -> None:
    told = r"after 3 step\(s\) and none was watched; let it run for at least 7"
    with pytest.raises(TraceError, match=told), ms.capture(tmp_path):
        train(small_model(), 3)
    with pytest.raises(TraceError, match="at least 1 step"), ms.capture(tmp_path, steps=0):
        pass
    told = "another profiler"
    with pytest.raises(TraceError, match=told), torch.profiler.profile(), ms.capture(tmp_path, warm_up=1, plain=0):
        train(small_model(), 3)
    # What the loop itself raises is what its caller sees, and no hook stays behind.
    with pytest.raises(ZeroDivisionError), ms.capture(tmp_path, warm_up=1, plain=0):
        train(small_model(), 2)
        raise ZeroDivisionError
    train(small_model(), 2)
    assert not list(tmp_path.iterdir())
