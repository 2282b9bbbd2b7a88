"""Compiled functions: numba's compiler with its cache on disk, and without where there is no place for one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(error_model: Literal["python", "numpy"] = "python") -> Callable[[F], F]:
    """Compile the function below when it is first called; later processes find it in the cache.

    `error_model` "numpy": a division by zero gives what numpy gives, and costs no check.

    >>> @compiled()
    ... def double(value):
    ...     return 2 * value
    """

    def compile_function(function: F) -> F:
        try:
            dispatcher: Any = njit(cache=True, error_model=error_model)(function)
        except RuntimeError:
            # Neither the folder of the code nor the user's own can be written to.
            dispatcher = njit(error_model=error_model)(function)
        if hasattr(dispatcher, "_cache"):  # else numba is told not to compile at all
            _tolerate_damage(dispatcher._cache)
        return dispatcher

    return compile_function


def _tolerate_damage(cache: Any) -> None:
    """Let a damaged cache, or one on a full disk, be no reason not to compile and run."""
    load, save = cache.load_overload, cache.save_overload

    def try_load(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception:
            # What was cut off when a machine stopped is begun anew.
            with suppress(Exception):
                cache.flush()
            return None

    def try_save(*arguments: Any) -> None:
        with suppress(Exception):
            save(*arguments)

    cache.load_overload, cache.save_overload = try_load, try_save
