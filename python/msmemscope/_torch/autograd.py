"""Tells when the forward and the backward pass begin."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable

import torch
import torch.autograd.graph

from .. import _internal
from .module_calls import Observation

_phase = threading.local()
_handles: list[Any] = []
_replaced: list[tuple[Any, str, Any, Any]] = []


def follow(is_wanted: bool) -> None:
    """Observe the passes, or stop doing so."""
    if is_wanted and not _handles:
        _handles.append(Observation(_module_called))
        for owner, name in _backward_functions():
            _replace(owner, name)
    elif not is_wanted and _handles:
        _handles.pop().remove()
        while _replaced:
            owner, name, original, replacement = _replaced.pop()
            if getattr(owner, name, None) is replacement:
                setattr(owner, name, original)


def _module_called(module: Any, arguments: Any) -> None:
    """The first module called after a backward pass, or at all, begins the forward pass."""
    if not getattr(_phase, "is_forward", False) and torch.is_grad_enabled():
        _phase.is_forward = True
        _internal.autograd(False)


def _backward_functions() -> list[tuple[Any, str]]:
    """The function through which all backward passes go, in all places that hold it."""
    name = "_engine_run_backward"
    holders = (torch.autograd, torch.autograd.graph, getattr(torch.autograd, "functional", None))
    return [(holder, name) for holder in holders if hasattr(holder, name)]


def _replace(owner: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        _phase.is_forward = False
        _internal.autograd(True)
        return original(*args, **kwargs)

    setattr(owner, name, backward)
    _replaced.append((owner, name, original, backward))
