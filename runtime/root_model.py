"""Root model: which module a training loop trains, found by looking on while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from makespan.capture_file import FORWARD


class RootModel:
    """Sees which modules are called from outside of any other; the largest of them is what the loop trains."""

    def __init__(self) -> None:
        self._seen: list[nn.Module] = []
        self._hook: Any = register_module_forward_pre_hook(self._called)

    @property
    def model(self) -> nn.Module | None:
        """The called module with the most trained parameters, the first of equals; None if none had any.

        A wrapper is called before what it wraps, and has as many parameters.
        """
        best, most = None, 0
        for module in self._seen:
            count = sum(parameter.requires_grad for parameter in module.parameters())
            if count > most:
                best, most = module, count
        return best

    def stop(self) -> None:
        """Look no longer; what was seen is kept."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _called(self, module: nn.Module, inputs: Any) -> None:
        if not any(module is seen for seen in self._seen):
            self._seen.append(module)


def watch_forward(model: nn.Module, add_span: Callable[[str, int, int], None]) -> list[Any]:
    """Hooks on `model` that report each of its forward calls as a span; returns their handles."""
    began: list[int] = []

    def before(module: nn.Module, inputs: Any) -> None:
        began.append(time.perf_counter_ns())

    def after(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if began:
            add_span(FORWARD, began.pop(), time.perf_counter_ns())

    return [model.register_forward_pre_hook(before), model.register_forward_hook(after)]
