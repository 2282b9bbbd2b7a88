"""Selectors name the ops they say, and malformed or empty ones are told apart in one sentence."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules import graphs

from makespan.errors import SelectorError
from makespan.graph import NONE, Edges, Graph, OpKind, Stream, StreamKind, assemble
from makespan.simulator.analysis.selectors import parse_scale, select


def small_graph() -> Graph:
    streams = [
        Stream(0, "main", StreamKind.HOST), Stream(0, "stream 7", StreamKind.DEVICE, 0),
        Stream(0, "stream 7 (overlap 1)", StreamKind.DEVICE, 0), Stream(0, "stream 17", StreamKind.DEVICE, 0),
        Stream(3, "main", StreamKind.HOST), Stream(3, "gloo", StreamKind.HOST),
    ]  # fmt: skip
    names = ["think time", "gemm_a,rank:3", "copy", "nccl", "aten::mm", "gloo:all_reduce", "gemm=b"]
    return assemble(
        kind=[
            OpKind.THINK, OpKind.COMPUTE, OpKind.MEMCPY, OpKind.COLLECTIVE,
            OpKind.HOST, OpKind.COLLECTIVE, OpKind.COMPUTE,
        ],
        stream=[0, 1, 2, 3, 4, 5, 1],
        duration_ns=1,
        streams=streams,
        name=range(7),
        names=names,
        edges=Edges.concatenate([]),
        step=[0, 0, 1, 1, NONE, 2, 2],
        step_names=["ProfilerStep#2", "ProfilerStep#12", "eval"],
    )[0]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("cpu", [0, 4]),
        ("gpu", [1, 2, 3, 6]),
        ("comm", [3, 5]),
        ("compute", [1, 6]),
        ("all", [0, 1, 2, 3, 4, 5, 6]),
        ("rank:3", [4, 5]),
        ("rank:3,comm", [5]),
        ("comm , rank:3", [5]),
        ("stream:7", [1, 2, 6]),
        ("stream:stream 7", [1, 2, 6]),
        ("stream:17", [3]),
        ("stream:gloo", [5]),
        ("kind:memcpy", [2]),
        ("kind:MEMCPY", [2]),
        ("name:gemm", [1, 6]),
        ("name:^gemm=", [6]),
        ("name:gemm_a,r", [1]),
        ("name:a,(rank|x):3", [1]),
        ("name:gemm|copy,gpu,step:2", [1]),
        ("name:aten::mm", [4]),
        ("step:2", [0, 1]),
        ("step:12", [2, 3]),
        ("step:eval", [5, 6]),
        ("step:ProfilerStep#12,gpu", [2, 3]),
    ],
)
def test_what_each_selector_names(text: str, ops: list[int]) -> None:
    assert np.flatnonzero(select(small_graph(), text)).tolist() == ops


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is unknown; expected one of all, comm"),
        ("gpus", r"did you mean 'gpu'\?"),
        ("comm,", r"'comm,' is unknown.*did you mean 'comm'\?"),
        ("rnk:3", r"did you mean 'rank:'\?"),
        ("gpu:1", "'gpu:1' is unknown"),
        ("rank:", "nothing follows 'rank:'"),
        ("rank", r"'rank' is unknown; did you mean 'rank:'\?"),
        ("rank:x", "expected a number"),
        ("rank:1", "the ranks are 0, 3"),
        ("rank:99999999999999999999", "the ranks are 0, 3"),
        ("stream:8", "the streams are main, stream 7"),
        ("kind:memcopy", r"did you mean 'memcpy'\?"),
        ("kind:barrier", "7 ops of the kinds host, think, compute, memcpy, collective"),
        ("step:3", "the steps are ProfilerStep#2, ProfilerStep#12, eval"),
        ("name:absent", "selects nothing"),
        ("name:(", "regular expression"),
        ("name:(?=gemm)", "regular expression"),
        ("rank:3,gpu", "no op fits all of its parts"),
        ("name:" + "a" * 2000, "at most 1000"),
    ],
)  # fmt: skip
def test_what_a_wrong_selector_is_told(text: str, told: str) -> None:
    with pytest.raises(SelectorError, match=told) as caught:
        select(small_graph(), text)
    assert "\n" not in str(caught.value)


def test_compute_means_host_ops_where_there_is_no_device() -> None:
    graph, _ = assemble(
        kind=[OpKind.HOST, OpKind.THINK, OpKind.COLLECTIVE], stream=0, duration_ns=1, name=0, names=["op"],
        streams=[Stream(0, "main", StreamKind.HOST)], edges=Edges.concatenate([]),
    )  # fmt: skip
    assert np.flatnonzero(select(graph, "compute")).tolist() == [0]
    assert np.flatnonzero(select(graph, "cpu")).tolist() == [0, 1]


def test_a_pattern_made_to_backtrack_takes_no_longer_than_others() -> None:
    graph = small_graph().replace(names=tuple("a" * 5_000 + f"{number}!" for number in range(7)))
    began = time.perf_counter()
    with pytest.raises(SelectorError, match="selects nothing"):
        select(graph, "name:^(a+)+(.*.*.*)*$x")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("gpu=0.5", ("gpu", 0.5)),
        ("name:a=b=2", ("name:a=b", 2.0)),
        ("all=0", ("all", 0.0)),
        ("cpu=1e-3", ("cpu", 1e-3)),
    ],
)
def test_selector_and_factor(text: str, pair: tuple[str, float]) -> None:
    assert parse_scale(text) == pair


@pytest.mark.parametrize("text", ["", "gpu", "gpu=", "=2", "gpu=-1", "gpu=inf", "gpu=nan", "gpu=fast"])
def test_a_scale_of_a_wrong_form_is_refused(text: str) -> None:
    with pytest.raises(SelectorError, match="expected SELECTOR=FACTOR"):
        parse_scale(text)


PARTS = ["cpu", "gpu", "comm", "rank:0", "kind:host", "step:1", "name:a"]


@given(graphs(), st.lists(st.sampled_from(PARTS), min_size=1, max_size=3))
def test_joined_parts_name_what_each_of_them_names(graph: Graph, parts: list[str]) -> None:
    def one(text: str) -> np.ndarray:
        try:
            return select(graph, text)
        except SelectorError:
            return np.zeros(len(graph), np.bool_)

    expected = np.logical_and.reduce([one(part) for part in parts])
    assert np.array_equal(one(",".join(parts)), expected)


@given(st.text(max_size=30))
def test_any_text_gives_ops_or_one_sentence(text: str) -> None:
    try:
        assert np.any(select(small_graph(), text))
    except SelectorError as error:
        assert "selector" in str(error)
