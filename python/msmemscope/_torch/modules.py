"""Tells which module is being called, by its path in the model, such as ``blocks.3.mlp``.

The first module called on a thread is the model; the paths of all others follow from it. Each call of a model is also
a turn of a loop: the one that inference goes by.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .. import _internal
from .._holders.schedule import MODULE, looks
from . import autograd, ranks
from .harmless import harmless
from .loops import MODULE_CALL, Numbers
from .module_calls import Observation, error_being_handled, is_outermost_call


class _Calls(threading.local):
    """Modules being called on this thread, outermost first: their identity and their name."""

    def __init__(self) -> None:
        self.open: list[tuple[int, int]] = []
        #: The exception that was being handled when the outermost was called.
        self.handled_before = 0


_calls = _Calls()
_models = Numbers()
_names: dict[int, tuple[weakref.ref[Any], int]] = {}
_observations: list[Observation] = []


def follow(is_wanted: bool) -> None:
    """Observe calls of modules, or stop doing so."""
    if is_wanted and not _observations:
        _observations.append(Observation(_called, _returned))
    elif not is_wanted and _observations:
        _observations.pop().remove()


@harmless("calls of modules")
def _called(module: Any, arguments: Any) -> None:
    open_calls = _calls.open
    if open_calls and open_calls[0][0] == id(module) and is_outermost_call():
        # Its last call was left by an interrupt, or in a release that says nothing of failures either.
        for _, name in reversed(open_calls):
            _internal.module_call(False, name)
        open_calls.clear()
        autograd.forward_failed()
        autograd.forward_begins()
    if not open_calls:
        _calls.handled_before = error_being_handled()
        _internal.loop_turn(MODULE_CALL, _models.of(module))
        looks.turned(MODULE)
        ranks.learn()
        _learn(module)
    name = _name(module)
    open_calls.append((id(module), name))
    _internal.module_call(True, name)


@harmless("calls of modules")
def _returned(module: Any, arguments: Any, result: Any) -> None:
    open_calls = _calls.open
    while open_calls:
        identity, name = open_calls.pop()
        _internal.module_call(False, name)
        if identity == id(module):
            break
    # The hook is called without a result while the exception is on its way out.
    if not open_calls and result is None and error_being_handled() not in (0, _calls.handled_before):
        autograd.forward_failed()


def _name(module: Any) -> int:
    reference, name = _names.get(id(module), (None, 0))
    if reference is not None and reference() is module:
        return name
    return _set_name(module, type(module).__name__)


def _set_name(module: Any, name: str) -> int:
    text = _internal.intern(name)
    _names[id(module)] = (weakref.ref(module), text)
    return text


def _learn(model: Any) -> None:
    """Paths of all modules of a model, unless they are known. Looks only at what PyTorch itself keeps."""
    known = _names.get(id(model))
    if known is not None and known[0]() is model:
        return
    _set_name(model, type(model).__name__)
    waiting = [("", model)]
    seen = {id(model)}
    while waiting:
        path, module = waiting.pop()
        for name, child in module.__dict__.get("_modules", {}).items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                child_path = f"{path}.{name}" if path else name
                _set_name(child, child_path)
                waiting.append((child_path, child))
