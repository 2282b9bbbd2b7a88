"""The bundled traces, read as plain JSON: complete, small, free of the machine's traces, and what their cards say."""

import gzip
import json
import platform
import re
import statistics
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

TRACES = Path(str(files("makespan") / "datasets" / "traces"))
FOLDERS = sorted(path.name for path in TRACES.iterdir() if path.is_dir())
FILES = sorted(path.relative_to(TRACES).as_posix() for path in TRACES.glob("*/*.json.gz"))
DDP = ("ddp_gloo_2ranks", "ddp_gloo_2ranks_straggler")


@cache
def text_of(name: str) -> str:
    return gzip.decompress((TRACES / name).read_bytes()).decode()


@cache
def document(name: str) -> dict[str, Any]:
    return json.loads(text_of(name))


def spans(file: str, name: str) -> list[dict[str, Any]]:
    """The complete events of that name (or that begin with it, where it ends in `#`) in order of time."""
    matches = name.__eq__ if not name.endswith("#") else lambda other: other.startswith(name)
    found = [event for event in document(file)["traceEvents"] if event["ph"] == "X" and matches(event["name"])]
    return sorted(found, key=lambda event: event["ts"])


def inside(outer: dict[str, Any], inner: list[dict[str, Any]]) -> list[dict[str, Any]]:
    end = outer["ts"] + outer["dur"]
    return [event for event in inner if outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= end]


def median_us(events: list[dict[str, Any]]) -> float:
    return statistics.median(event["dur"] for event in events)


def measured(folder: str) -> dict[str, Any]:
    return json.loads((TRACES / folder / "measured.json").read_text())


def test_the_four_captures_are_there() -> None:
    assert set(FOLDERS) == {"cnn_step", *DDP, "transformer_step"}
    assert set(FILES) == {
        "cnn_step/trace.json.gz",
        *(f"{folder}/rank{rank}.json.gz" for folder in DDP for rank in (0, 1)),
        "transformer_step/trace.json.gz",
    }


def test_traces_are_small() -> None:
    sizes = [(TRACES / name).stat().st_size for name in FILES]
    assert max(sizes) <= 600_000
    assert sum(sizes) <= 3_000_000


@pytest.mark.parametrize("name", FILES)
def test_nothing_tells_of_the_machine(name: str) -> None:
    text = text_of(name)
    assert "host_name" not in text
    assert document(name)["traceName"] == Path(name).stem
    # A path begins behind a quote, a blank or a bracket; operators' names hold no slash.
    assert re.findall(r'["\s(\[]~?/[\w.-]+', text) == []
    host = platform.node()
    assert re.findall(rf'"{re.escape(host)}[".]', text) == [] or not host


def test_gzip_headers_hold_no_name_and_no_time() -> None:
    for name in FILES:
        head = (TRACES / name).read_bytes()[:8]
        assert head[3] & 0b1000 == 0, "a file name is stored"
        assert head[4:] == bytes(4), "a time is stored"


@pytest.mark.parametrize("name", FILES)
def test_steps_are_marked_one_after_the_other(name: str) -> None:
    steps = spans(name, "ProfilerStep#")
    assert [step["name"] for step in steps] == [f"ProfilerStep#{number}" for number in range(3, 9)]
    for step, following in pairwise(steps):
        assert step["ts"] + step["dur"] <= following["ts"]
    for phase in ("data loading", "forward", "backward", "optimizer"):
        assert [len(inside(step, spans(name, phase))) for step in steps] == [1] * 6, phase


@pytest.mark.parametrize("name", FILES)
def test_shapes_and_memory_are_recorded(name: str) -> None:
    events = document(name)["traceEvents"]
    shaped = [event for event in events if any(event.get("args", {}).get("Input Dims", ()))]
    memory = [event for event in events if event["name"] == "[memory]"]
    assert len(shaped) > 1000
    assert len(memory) > 1000
    assert {event["args"]["Bytes"] > 0 for event in memory} == {True, False}
    assert not any(event.get("cat") == "python_function" for event in events)


@pytest.mark.parametrize("folder", FOLDERS)
def test_card_says_what_was_measured(folder: str) -> None:
    card = (TRACES / folder / "README.md").read_text()
    index = (TRACES / "README.md").read_text()
    numbers = measured(folder)
    assert numbers["name"] == folder
    assert "licence (MIT)" in card
    assert numbers["cpu"] in card
    assert numbers["torch"] in card
    assert f"({folder}/README.md)" in index
    spread = []
    for rank in numbers["ranks"]:
        name = f"{folder}/{rank['file']}"
        recorded = [round(step["dur"] * 1000) for step in spans(name, "ProfilerStep#")]
        spread.append((max(recorded) - min(recorded)) / statistics.median(recorded))
        assert rank["recorded_step_ns"] == recorded
        assert rank["bytes"] == (TRACES / name).stat().st_size
        assert rank["bytes_unpacked"] == len(text_of(name).encode())
        assert rank["events"] == sum(rank["events_by_kind"].values()) == len(document(name)["traceEvents"])
        # profiler.step() comes on top of the step itself, and is short.
        for alone_ns, marked_ns in zip(rank["profiled_step_ns"], recorded, strict=True):
            assert 0 < marked_ns - alone_ns < 1_000_000
        assert len(rank["unprofiled_step_ns"]) == 30
        assert f"| {statistics.median(rank['unprofiled_step_ns']) / 1e6:.2f}".rstrip("0") in card
    kept = numbers["step_spread_of_each"][numbers["kept"] - 1]
    assert kept == min(numbers["step_spread_of_each"]) == pytest.approx(max(spread), abs=1e-4)


@pytest.mark.parametrize("folder", DDP)
@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_say_who_they_are(folder: str, rank: int) -> None:
    told = document(f"{folder}/rank{rank}.json.gz")["distributedInfo"]
    assert (told["backend"], told["rank"], told["world_size"]) == ("gloo", rank, 2)


@pytest.mark.parametrize("folder", DDP)
def test_all_reduces_pair_up(folder: str) -> None:
    """Five a step; each call has its span, in order; and none ends on either rank before both have begun."""
    by_rank = []
    for rank in (0, 1):
        name = f"{folder}/rank{rank}.json.gz"
        calls, done = spans(name, "c10d::allreduce_"), spans(name, "gloo:all_reduce")
        assert len(calls) == len(done) == 30
        asked = [call["args"]["Input Dims"][0][0] for call in calls]
        assert asked == [span["args"]["Input Dims"][0] for span in done]
        assert all(call["ts"] <= span["ts"] for call, span in zip(calls, done, strict=True))
        by_rank.append((asked, done))
    (sizes, ours), (sizes_there, theirs) = by_rank
    assert sizes == sizes_there
    for here, there in zip(ours, theirs, strict=True):
        assert min(span["ts"] + span["dur"] for span in (here, there)) > max(here["ts"], there["ts"])


@pytest.mark.parametrize("folder", DDP)
@pytest.mark.parametrize("rank", [0, 1])
def test_wait_ranges_end_with_the_last_all_reduce(folder: str, rank: int) -> None:
    """One in each backward phase; a gloo thread that is pre-empted may close its span late, as the card says."""
    name = f"{folder}/rank{rank}.json.gz"
    done = spans(name, "gloo:all_reduce")
    for backward in spans(name, "backward"):
        (wait,) = inside(backward, spans(name, "makespan::wait ddp gradients"))
        end = wait["ts"] + wait["dur"]
        last = max(span["ts"] + span["dur"] for span in done if span["ts"] < end)
        assert wait["ts"] < last
        assert abs(end - last) < 6_000


def test_straggler_computes_longer_and_the_other_rank_waits_longer() -> None:
    clean, slowed = ([f"{folder}/rank{rank}.json.gz" for rank in (0, 1)] for folder in DDP)
    forward = [[median_us(spans(name, "forward")) for name in names] for names in (clean, slowed)]
    waiting = [[median_us(spans(name, "makespan::wait ddp gradients")) for name in names] for names in (clean, slowed)]
    assert forward[1][1] > 1.5 * forward[0][1], "rank 1 does more in its forward pass"
    assert forward[1][0] < 1.5 * forward[0][0], "rank 0 does not"
    assert waiting[1][0] > 2 * waiting[0][0], "rank 0 waits for rank 1"
    assert waiting[1][0] > 2 * waiting[1][1], "rank 1 doesn't wait for rank 0"
    for name, extra in ((clean[1], 0), (slowed[0], 0), (slowed[1], 6)):
        assert len(spans(name, "extra work")) == extra
    added = median_us(spans(slowed[1], "extra work"))
    assert added == pytest.approx(forward[1][1] - forward[0][1], rel=0.2), "it is the extra work that takes longer"
