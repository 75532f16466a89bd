"""Calls back when a module has been imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Sequence
from typing import Any, Callable

from . import _messages

_callbacks: dict[str, list[Callable[[], None]]] = {}
_lock = threading.RLock()
_searching = threading.local()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds awaited modules like everybody else, but notes when they are executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _callbacks or getattr(_searching, "name", None) == fullname:
            return None
        previous = getattr(_searching, "name", None)
        _searching.name = fullname
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError, AttributeError):
            return None
        finally:
            _searching.name = previous
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        _announce(spec.loader, fullname)
        return spec


def _announce(loader: Any, name: str) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        try:
            execute(module)
        finally:
            del loader.exec_module
        _imported(name)

    loader.exec_module = exec_module


def _imported(name: str) -> None:
    with _lock:
        callbacks = _callbacks.pop(name, [])
        if not _callbacks and _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
    for callback in callbacks:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the module is the job's: it is imported whatever we cannot do
            _messages.warning(f"{name} is not followed: {type(error).__name__}: {error}")


_finder = _Finder()


class _WatchedSpec(importlib.machinery.ModuleSpec):
    """The description of a module whose import is under way; the import system notes in it when that ends."""

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing", False))

    @_initializing.setter
    def _initializing(self, is_under_way: bool) -> None:
        self.__dict__["_initializing"] = is_under_way
        if not is_under_way:
            self.__class__ = importlib.machinery.ModuleSpec  # type: ignore[assignment]
            if self.name in sys.modules:  # it is taken away again if the import failed
                _imported(self.name)


def _is_under_way(name: str) -> bool:
    """Whether a module that is there already is still being executed."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def is_imported(name: str) -> bool:
    """Whether a module is there, complete."""
    return name in sys.modules and not _is_under_way(name)


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call ``callback`` after the module ``name`` has been imported; at once if it has been.

    While its import is under way, that is when it ends. The same callback for the same module is called once.
    """
    if is_imported(name):
        callback()
        return
    with _lock:
        callbacks = _callbacks.setdefault(name, [])
        if callback not in callbacks:
            callbacks.append(callback)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if type(spec) is importlib.machinery.ModuleSpec:
            spec.__class__ = _WatchedSpec
    if is_imported(name):  # another thread has ended its import meanwhile
        if type(spec) is _WatchedSpec:
            spec.__class__ = importlib.machinery.ModuleSpec  # type: ignore[assignment]
        _imported(name)


def forget(name: str, callback: Callable[[], None]) -> None:
    """Take a callback back."""
    with _lock:
        callbacks = _callbacks.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            _callbacks.pop(name, None)
        if not _callbacks and _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
