"""Follows references from all roots to all objects of a type."""

from __future__ import annotations

import gc
import sys
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from .. import _internal
from . import frames
from .paths import Paths, Roots

#: More objects than this are not looked at: each takes 40 bytes meanwhile.
MOST_OBJECTS = 5_000_000

#: The collector's own list, also if somebody replaces it later.
_all_objects = gc.get_objects

_Root = tuple[Any, "list[Any] | None"]


class Found(NamedTuple):
    """What a walk has found."""

    #: The ways, to put into words.
    paths: Paths
    #: Index of each object of the wanted type, nearest to its root first.
    targets: list[int]
    #: How many objects were looked at.
    looked_at: int
    #: Whether that was all there is to look at.
    is_complete: bool


def find(target: type, seconds: float, *, late: tuple[type, ...] = (), most_objects: int = MOST_OBJECTS) -> Found:
    """How all objects of a type and its subtypes are held; by objects of the types ``late`` only if by nothing else.

    The collector must not run meanwhile; see :class:`Undisturbed`.
    """
    running = frames.running()
    # What a global and an argument name is the global's: arguments go when their functions end.
    modules, skipped, first, rest = _modules()
    second: list[_Root] = []
    for frame in running:
        rank = second if frames.is_library(frame.f_code.co_filename) else first
        rank.append((frame, [value for _, value in frames.variables(frame)]))
    second.extend(rest)
    exceptions = _handled_exceptions()
    second.extend((error, None) for error in exceptions)
    nodes, looked_at, is_complete = _internal.find_paths(
        target, [first, second], skipped, list(late), _all_objects, most_objects, max(seconds, 0.0)
    )
    del first, second, rest, skipped
    paths = Paths(nodes, Roots(modules, _module_codes(running), {id(error) for error in exceptions}))
    subtype = type.__subclasscheck__
    targets = [index for index, (thing, _) in enumerate(nodes) if subtype(target, type(thing))]
    return Found(paths, targets, looked_at, is_complete)


def _modules() -> tuple[dict[int, tuple[str, str]], list[Any], list[_Root], list[_Root]]:
    """The dictionaries of all modules: name and file of each by identity, and the roots that they are.

    Gives what is not to be followed, too: modules are no part of each other, and ours are no part of the job. The
    user's own modules come apart from the others, the program first.
    """
    known: dict[int, tuple[str, str]] = {}
    skipped: list[Any] = []
    own: list[_Root] = []
    others: list[_Root] = []
    for name, module in sorted(list(sys.modules.items()), key=lambda item: item[0] != "__main__"):
        contents = _internal.attributes_of(module) if issubclass(type(module), ModuleType) else None
        skipped.append(module)
        if type(contents) is not dict or id(contents) in known:
            continue
        file = contents.get("__file__")
        file = file if type(file) is str else ""
        if frames.is_ours(file):
            skipped.append(contents)
            continue
        known[id(contents)] = (name, file)
        if name == "__main__" or (file and not frames.is_library(file)):
            own.append((contents, list(contents.values())))
        else:
            others.append((contents, None))
    return known, skipped, own, others


def _module_codes(running: list[FrameType]) -> dict[int, Any]:
    """Code of modules that are running, by identity of their dictionary."""
    return {id(frame.f_globals): frame.f_code for frame in running if frame.f_code.co_name == "<module>"}


def _handled_exceptions() -> list[BaseException]:
    """Exceptions that threads are handling; before 3.10 only this one's are known."""
    current: dict[int, Any] = getattr(sys, "_current_exceptions", dict)()
    values = [entry[1] if type(entry) is tuple else entry for entry in (*current.values(), sys.exc_info())]
    return [value for value in values if value is not None]


class Undisturbed:
    """Keeps the collector from running, so that no finalizer of the job runs inside a look."""

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *exception: object) -> None:
        if self._was_on:
            gc.enable()
