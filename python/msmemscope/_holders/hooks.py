"""What a hook of the job puts things into: the containers that its code names.

A hook seldom holds tensors itself. It appends them to a list of a closure, of the object whose method it is, or of its
module. Nothing is called or compared; functions are read through the interpreter's own types.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any

from .. import _internal
from .natively import is_kind, is_module, static_attribute

_CONTAINERS = (list, dict, set, collections.deque)
#: What is never a place of its own: it belongs to everybody.
_SHARED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


def reached_by(hook: Any) -> Iterator[Any]:
    """Containers that the code of a hook names, directly or as attributes of what it names."""
    function, held = _function(hook)
    if function is None:
        return
    named = _names(function.__code__)
    for thing in (*held, *_captured(function), *_globals(function, named)):
        if is_kind(thing, *_CONTAINERS):
            yield thing
        # Modules of PyTorch have all their parts among their attributes, whatever a hook does.
        elif not is_kind(thing, *_SHARED) and not is_module(thing):
            attributes = _internal.attributes_of(thing)
            for name, value in dict.items(attributes) if type(attributes) is dict else ():
                if type(name) is str and name in named and is_kind(value, *_CONTAINERS):
                    yield value


def _function(hook: Any) -> tuple[types.FunctionType | None, list[Any]]:
    """The function that runs when a hook is called, and what it is given besides its arguments."""
    held: list[Any] = []
    while type(hook) is functools.partial:
        held.extend((*hook.args, *hook.keywords.values()))
        hook = hook.func
    if type(hook) is types.MethodType:
        held.append(hook.__self__)
        hook = hook.__func__
    elif type(hook) is not types.FunctionType:
        held.append(hook)
        hook = static_attribute(type(hook), "__call__")
    return (hook, held) if type(hook) is types.FunctionType else (None, held)


def _names(code: types.CodeType) -> set[str]:
    """Names of attributes and globals that some code uses, with the functions inside it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            names |= _names(constant)
    return names


def _captured(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _globals(function: types.FunctionType, named: set[str]) -> Iterator[Any]:
    contents = function.__globals__
    yield from (dict.__getitem__(contents, name) for name in named if dict.__contains__(contents, name))
