"""Errors: one parent, so that the command line can catch what users can mend, and nothing else."""

import inspect

from makespan import errors


def test_every_error_is_a_makespan_error_with_a_sentence_on_when() -> None:
    found = [item for _, item in inspect.getmembers(errors, inspect.isclass)]
    assert {item.__name__ for item in found} >= {
        "MakespanError", "TraceError", "GraphError", "SelectorError", "ClusterError", "PredictionError", "PassError",
        "PlanError",
    }  # fmt: skip
    for item in found:
        assert issubclass(item, errors.MakespanError)
        assert item.__doc__ and item.__doc__.splitlines()[0].strip()
        assert str(item("what, where")) == "what, where"
    assert not issubclass(errors.MakespanError, ValueError | OSError)
