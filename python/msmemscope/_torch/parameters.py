"""Labels weights as soon as they are on a device: no optimizer has to have made a step.

Parameters are seen where modules register them, where modules are moved, and, for models that were built before
anybody looked, when a module is called for the first time.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable

import torch
from torch.nn.modules import module as torch_module

from ..frameworks._vllm_memory import tagged_modules
from .harmless import harmless
from .module_calls import Observation, is_compiling
from .weights import label_weights

_handles: list[Any] = []
_moving: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
_called_modules: weakref.WeakSet[Any] = weakref.WeakSet()


def follow(is_wanted: bool) -> None:
    """Observe modules, or stop doing so."""
    if is_wanted and not _handles:
        _handles.append(Observation(_called))
        # Older releases of PyTorch cannot tell.
        register = getattr(torch_module, "register_module_parameter_registration_hook", None)
        if register is not None:
            _handles.append(register(_registered))
        _observe_moves()
    elif not is_wanted and _handles:
        while _handles:
            _handles.pop().remove()
        _called_modules.clear()
        while _moving:
            original, replacement = _moving.pop()
            if torch.nn.Module._apply is replacement:
                torch.nn.Module._apply = original  # type: ignore[method-assign]


@harmless("weights of a module")
def _registered(module: Any, name: str, parameter: Any) -> None:
    # Nothing has memory while a compiler only looks at the program.
    if not is_compiling():
        label_weights((parameter,))


@harmless("weights of a module")
def _called(module: Any, arguments: Any) -> None:
    """The first call of a module tells about everything inside it."""
    if module in _called_modules:
        return
    _called_modules.update(module.modules())
    if module not in tagged_modules:
        label_weights(module.parameters())


@harmless("weights of a module")
def _moved(module: Any) -> None:
    label_weights(module._parameters.values())


def _observe_moves() -> None:
    """Moving a module gives its parameters other memory, module by module."""
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _moved(self)
        return result

    torch.nn.Module._apply = apply  # type: ignore[method-assign]
    _moving.append((original, apply))
