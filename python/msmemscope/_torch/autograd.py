"""Tells when the forward and the backward pass begin, and hands labels on to those who run the latter.

PyTorch runs backward passes on threads of its own, which work for several callers in turn. It gives them what the
caller keeps in its thread-local state, so the labels travel in that: each operator has those of the pass it belongs to.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import Any, Callable

import torch
import torch.autograd.graph

from .. import _internal
from ..describe import open_labels
from ..hijacker import manager
from . import phases
from .module_calls import Observation

#: Under which name the labels travel.
_LABELS = "msmemscope labels"
_STATE = tuple(getattr(torch._C, name, None) for name in ("_stash_obj_in_tls", "_get_obj_in_tls", "_is_key_in_tls"))

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
    forward_begins()


def forward_begins() -> None:
    """A module is called on this thread."""
    if not getattr(_phase, "is_forward", False) and torch.is_grad_enabled():
        _phase.is_forward = True
        _internal.autograd(phases.FORWARD)


def forward_failed() -> None:
    """The call of a model has failed on this thread: what it has begun is over."""
    if getattr(_phase, "is_forward", False):
        _phase.is_forward = False
        _internal.autograd(phases.OTHER)
    manager.close_regions()


def _backward_functions() -> list[tuple[Any, str]]:
    """The function through which all backward passes go, in all places that hold it."""
    name = "_engine_run_backward"
    holders = (torch.autograd, torch.autograd.graph, getattr(torch.autograd, "functional", None))
    return [(holder, name) for holder in holders if hasattr(holder, name)]


def _hand_on(labels: list[int]) -> bool:
    """Give labels to the threads that run the next backward pass of this thread; whether this PyTorch can do it."""
    stash, get, has = _STATE
    if not (stash and get and has) or not _internal.hand_on_labels(_handed_on):
        return False
    if not _takes_reference(stash):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(labels))
    stash(_LABELS, labels)
    return True


@functools.cache
def _takes_reference(stash: Callable[[str, Any], None]) -> bool:
    """Whether PyTorch takes a reference to what is handed on: releases before 2.5 only give one back, later."""
    trial: list[int] = []
    references = sys.getrefcount(trial)
    stash(_LABELS, trial)
    takes_reference = sys.getrefcount(trial) > references
    if not takes_reference:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(trial))
    return takes_reference


def _handed_on() -> list[int]:
    """The labels of the pass that this thread works for."""
    _, get, has = _STATE
    return list(get(_LABELS)) if get and has and has(_LABELS) else []


def _replace(owner: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        _phase.is_forward = False
        _internal.autograd(phases.BACKWARD)
        labels, inherited = open_labels(), _handed_on()
        is_handed_on = bool(labels) and _hand_on(list(dict.fromkeys((*inherited, *labels))))
        try:
            return original(*args, **kwargs)
        finally:
            if is_handed_on:
                _hand_on(inherited)
            _internal.autograd(phases.OTHER)

    setattr(owner, name, backward)
    _replaced.append((owner, name, original, backward))
