"""Contracts of extensions, as checks that the conformance suite runs on every member of a folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from strategies import random_graph

from makespan.cluster import DeviceType
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
