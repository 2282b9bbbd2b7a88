"""Contracts of extensions, as checks that the conformance suite runs on every member of a folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from communication_tables import made_table
from strategies import random_graph

from makespan.cluster import DeviceType
from makespan.cluster_file import load_cluster
from makespan.communication_table import COLLECTIVES, HOST_WORK
from makespan.errors import MakespanError, PredictionError
from makespan.graph import Graph
from makespan.protocols import Context, Rewrite
from makespan.simulator.replay import replay


def expect_parameters(function: Callable[..., Any], *wanted: str) -> None:
    """The function takes just these, by position and by name."""
    found = [name for name in inspect.signature(function).parameters if name != "self"]
    assert tuple(found) == wanted, f"{function.__qualname__} takes {found}, expected {wanted}"


def check_module(module: ModuleType) -> None:
    """A member's file begins with the sentence that says its idea."""
    first = (module.__doc__ or "").splitlines()[:1]
    assert first and first[0].strip(), f"{module.__name__} has no docstring, or its first line is empty"
    path = inspect.getsourcefile(module)
    assert path is not None
    with open(path, encoding="utf-8") as file:
        assert file.readline().startswith('"""'), f"{module.__name__} doesn't begin with its docstring"


def made(offered: Any) -> Any:
    """What a member offers, ready to use: a class is made with its default settings."""
    return offered() if inspect.isclass(offered) else offered


def check_pass(offered: Any) -> None:
    """Called with a graph and a context: a legal rewrite, twice the same, the graph untouched; or a MakespanError."""
    assert inspect.getdoc(offered), "a pass says in its docstring what it does"
    expect_parameters(offered.__call__ if inspect.isclass(offered) else offered, "graph", "context")
    context = Context(replay=replay, seed=7)
    for seed in range(5):
        graph = random_graph(seed)
        before = {name: column.copy() for name, column in graph.columns().items()}
        try:
            rewrite, again = made(offered)(graph, context), made(offered)(graph, context)
        except MakespanError as error:
            assert str(error).strip()
            continue
        finally:
            assert all(np.array_equal(column, before[name]) for name, column in graph.columns().items())
        _check_rewrite(rewrite, graph)
        assert rewrite.decisions == again.decisions, "one seed, one decision"
        assert np.array_equal(rewrite.graph.duration_ns, again.graph.duration_ns)


def _check_rewrite(rewrite: Rewrite, graph: Graph) -> None:
    assert isinstance(rewrite, Rewrite)
    rewrite.graph.verify()
    rewrite.provenance.verify()
    assert (len(rewrite.provenance), rewrite.provenance.old_count) == (len(rewrite.graph), len(graph))
    if not rewrite.decisions:
        assert rewrite.graph is graph, "a pass that decides nothing gives the graph back"


def check_cost_model(offered: Any) -> None:
    """Says its range, tells which ops it covers, prices those in whole nanoseconds and refuses the others."""
    assert inspect.getdoc(offered), "a cost model says in its docstring what it rests on"
    model = made(offered)
    assert isinstance(model.validity, str) and model.validity.strip()
    for method in (model.covers, model.latency_ns):
        expect_parameters(method, "graph", "ops", "device")
    graph = random_graph(0)
    device = DeviceType("any", "gpu", 80 * 10**9, 2e12, {"fp32": 2e13}, 1.4e9, 108)
    ops = np.arange(len(graph), dtype=np.int32)
    covered = model.covers(graph, ops, device)
    assert (covered.shape, covered.dtype) == (ops.shape, np.bool_)
    priced = model.latency_ns(graph, ops[covered], device)
    assert (priced.shape, priced.dtype) == ((np.count_nonzero(covered),), np.int64)
    assert np.all(priced >= 0)
    assert np.array_equal(priced, model.latency_ns(graph, ops[covered], device))
    if not np.all(covered):
        try:
            model.latency_ns(graph, ops[~covered], device)
        except PredictionError as error:
            assert str(error).strip()
        else:
            raise AssertionError("priced an op outside its range")


def made_from_table(offered: Any) -> Any:
    """A communication model ready to use, on the sample table where it rests on one."""
    if not inspect.isclass(offered):
        return offered
    if hasattr(offered, "fit"):
        return offered.fit(made_table())  # pyright: ignore[reportAttributeAccessIssue]
    return offered(made_table()) if "table" in inspect.signature(offered).parameters else offered()


def check_communication_model(offered: Any) -> None:
    """Says its range, answers inside it in whole nanoseconds that never fall with size, and refuses the rest."""
    assert inspect.getdoc(offered), "a communication model says in its docstring what it rests on"
    model = made_from_table(offered)
    assert isinstance(model.validity, str) and model.validity.strip()
    for method in (model.transfer_ns, model.contention):
        expect_parameters(method, "collective", "size_bytes", "ranks", "cluster")
    expect_parameters(model.host_ns, "work", "size_bytes")
    cluster = load_cluster("dgx-a100")
    sizes = np.array([1 << 20, 0, 4096, 1 << 24, 1, 4097, 777_777, 4096], np.int64)
    sizes.flags.writeable = False
    answered = 0
    for collective in COLLECTIVES:
        for ranks in ([5, 3], [0, 1, 2, 3], list(range(16))):
            told = list(ranks)
            try:
                answers = [_transfer_and_contention(model, collective, sizes, ranks, cluster) for _ in range(2)]
            except PredictionError as error:
                assert str(error).strip()
                continue
            answered += 1
            assert ranks == told, "the ranks are the caller's"
            for one, other in zip(*answers, strict=True):
                assert np.array_equal(one, other), "asked again, answered alike"
            for place in range(len(sizes)):
                alone = _transfer_and_contention(model, collective, sizes[place : place + 1], ranks, cluster)
                assert all(a[0] == b[place] for a, b in zip(alone, answers[0], strict=True)), "each size by itself"
    assert answered, "a model answers something"
    for wrong in ({"collective": "nonsense"}, {"size_bytes": np.array([-1])}, {"ranks": []}, {"ranks": [1, 1]}):
        request = {"collective": "allreduce", "size_bytes": np.array([4096]), "ranks": [0, 1], "cluster": cluster}
        _expect_refusal(lambda request=request | wrong: model.transfer_ns(**request), f"a transfer with {wrong}")
        _expect_refusal(lambda request=request | wrong: model.contention(**request), f"contention with {wrong}")
    # What is far too much, or asked without a cluster, is answered or refused, and nothing else.
    for asked, where in ((np.array([1, 1 << 62]), cluster), (np.array([1, 2]), None)):
        try:
            _check_times(model.transfer_ns("allreduce", asked, [0, 1], where), asked)
        except PredictionError as error:
            assert str(error).strip()
    _check_host_work(model, sizes)


def _transfer_and_contention(model: Any, collective: str, sizes: Any, ranks: list[int], cluster: Any) -> list[Any]:
    times = model.transfer_ns(collective, sizes, ranks, cluster)
    _check_times(times, sizes)
    stretch, share = model.contention(collective, sizes, ranks, cluster)
    for ratio in (stretch, share):
        assert (ratio.shape, ratio.dtype) == (sizes.shape, np.float64)
    assert np.all(np.isfinite(stretch)) and np.all(stretch >= 1), "beside computing nothing is faster"
    assert np.all(share > 0) and np.all(share <= 1), "some computing goes on"
    assert model.transfer_ns(collective, sizes[:0], ranks, cluster).shape == (0,)
    return [times, stretch, share]


def _check_times(times: Any, sizes: Any) -> None:
    assert (times.shape, times.dtype) == (sizes.shape, np.int64), "whole nanoseconds, one for each size"
    assert np.all(times >= 0)
    assert np.all(np.diff(times[np.argsort(sizes, kind="stable")]) >= 0), "a larger message is never faster"


def _check_host_work(model: Any, sizes: Any) -> None:
    for work in HOST_WORK:
        try:
            times = model.host_ns(work, sizes)
        except PredictionError as error:
            assert str(error).strip()
            continue
        _check_times(times, sizes)
        assert np.array_equal(times, model.host_ns(work, sizes))
    _expect_refusal(lambda: model.host_ns("nonsense", sizes), "unknown host work")
    _expect_refusal(lambda: model.host_ns("launch", np.array([-1])), "host work on less than nothing")


def _expect_refusal(ask: Callable[[], Any], what: str) -> None:
    try:
        ask()
    except PredictionError as error:
        assert str(error).strip()
    else:
        raise AssertionError(f"answered {what}")
