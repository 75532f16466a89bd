"""Puts ways of references into words: ``local 'history' of main (train.py:11) > list of 800``.

Foreign objects are only asked through the interpreter's own types, as in ``list.__len__(thing)``, and compared by
identity. Plumbing between two names (dictionaries of attributes, tuples of closures, cells) is left out.
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .. import _internal
from . import frames
from .hooks import reached_by
from .natively import is_kind, is_module, name_of_type, order_of_type, static_attribute, type_contents, type_name

#: Parents of nodes that have none, as the native half numbers them.
ROOT, HELD_NATIVELY, GARBAGE = -1, -2, -3

#: Longest text of a path, and of a key in it.
LONGEST_TEXT = 400
LONGEST_KEY = 40
#: The key of an entry is named in dictionaries with at most this many entries, of which this many are alike; others are
#: counted.
MOST_NAMED_ENTRIES = 16
MOST_NAMED_ALIKE = 4

NATIVE_CODE = "native code"
TEMPORARY = "a value of running code that is in no variable"

_lru_cache = type(functools.lru_cache(lambda: None))
#: How the attributes of generators are called that have their frames and code objects.
_GENERATOR_PREFIXES = {types.GeneratorType: "gi", types.CoroutineType: "cr", types.AsyncGeneratorType: "ag"}
_COUNTED = (list, tuple, set, frozenset, collections.deque)

#: Hooks of modules by the attribute that has them.
_HOOKS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_full_backward_hooks": "backward hook",
    "_state_dict_hooks": "state_dict hook",
}
#: Attributes of modules whose entries are like attributes of the module itself.
_PARAMETERS = "_parameters"
_MEMBERS = (_PARAMETERS, "_buffers", "_modules")
_COUNT = re.compile(r" of \d+$")
#: What a way through a hook has in its text.
_HOOK_WORD = " hook on "


class Roots(NamedTuple):
    """What is known about roots, by identity."""

    #: Name and file of modules, by their dictionaries.
    modules: dict[int, tuple[str, str]]
    #: Code of modules that are still running, by their dictionaries.
    codes: dict[int, Any]
    #: Exceptions that are being handled.
    exceptions: set[int]


class _Place(NamedTuple):
    """How an object is called so far, and what it is to the one before it."""

    segments: tuple[str, ...]
    #: Who has this object as part of its plumbing, if it is plumbing: attributes, closure, entries of a module.
    owner: Any = None
    role: str = ""
    #: The module that the innermost segment would start with: type of the outermost, and the path from it.
    model: str = ""
    path: tuple[str, ...] = ()


class Paths:
    """The ways to all objects that were found."""

    def __init__(self, nodes: list[tuple[Any, int]], roots: Roots) -> None:
        self._nodes = nodes
        self._roots = roots
        self._places: dict[int, _Place] = {}
        self._keys: dict[int, dict[int, Any]] = {}
        self._lines: dict[int, dict[str, int]] = {}
        self._directory = _working_directory()
        self._hooked: dict[int, str] | None = None
        self._known: set[int] | None = None

    def thing(self, index: int) -> Any:
        """The object of a node."""
        return self._nodes[index][0]

    def is_held_natively(self, index: int) -> bool:
        """Whether no root is known that leads to a node."""
        while index >= 0:
            index = self._nodes[index][1]
        return index == HELD_NATIVELY

    def text(self, index: int) -> str:
        """The way to a node in words, and the hook that put it there, if one may have."""
        text = " > ".join(_without_repetitions(self._place(index).segments))
        return shortened(text if _HOOK_WORD in text else text + self._via(index))

    def _via(self, index: int) -> str:
        if self._hooked is None:
            self._hooked = self._find_hooked()
        while index >= 0 and self._hooked:
            thing, index = self._nodes[index]
            if id(thing) in self._hooked:
                return f" via {self._hooked[id(thing)]}"
        return ""

    def _find_hooked(self) -> dict[int, str]:
        """What the hooks of modules use, by identity, and how these hooks are called."""
        places: dict[int, dict[str, str]] = {}
        for module, path in self._modules():
            attributes = _internal.attributes_of(module) or {}
            for name, word in _HOOKS.items():
                hooks: Any = dict.get(attributes, name)
                for hook in dict.values(hooks) if is_kind(hooks, dict) else ():
                    for thing in reached_by(hook):
                        places.setdefault(id(thing), {}).setdefault(path, word)
        return {key: _hooks_text(hooked) for key, hooked in places.items()}

    def _modules(self) -> Iterator[tuple[Any, str]]:
        """Modules of PyTorch that hold tensors or are part of one that does, each with its path."""
        are_modules: dict[int, bool] = {}
        for index, (thing, _) in enumerate(self._nodes):
            kind = type(thing)
            if id(kind) not in are_modules:
                are_modules[id(kind)] = is_module(thing)
            if not are_modules[id(kind)]:
                continue
            place = self._place(index)
            yield thing, ".".join(place.path) or type_name(thing)
            parts: Any = dict.get(_internal.attributes_of(thing) or {}, "_modules")
            for name, part in dict.items(parts) if is_kind(parts, dict) else ():
                if type(name) is str and part is not None and not self._has_node(part):
                    yield part, ".".join((*place.path, name))

    def _has_node(self, thing: Any) -> bool:
        if self._known is None:
            self._known = {id(node) for node, _ in self._nodes}
        return id(thing) in self._known

    def _place(self, index: int) -> _Place:
        waiting = []
        while index not in self._places:
            waiting.append(index)
            index = self._nodes[index][1]
            if index < 0:
                break
        for index in reversed(waiting):
            thing, parent = self._nodes[index]
            self._places[index] = (
                self._root(thing, parent)
                if parent < 0
                else self._next(self._nodes[parent][0], self._places[parent], thing)
            )
        return self._places[index]

    # Roots.

    def _root(self, thing: Any, parent: int) -> _Place:
        if parent == HELD_NATIVELY:
            # Running code has values that are in no variable yet, such as a list that is being made.
            return _Place((TEMPORARY if is_kind(thing, *_COUNTED, dict) else NATIVE_CODE,))
        if parent == GARBAGE:
            return _Place((f"reference cycle of {type_name(thing)} that gc.collect() would free",))
        if id(thing) in self._roots.modules:
            return _Place((), thing, "globals")
        if id(thing) in self._roots.exceptions:
            return _Place((f"{type_name(thing)} being handled",))
        return _Place((), thing, "frame") if type(thing) is types.FrameType else _Place((type_name(thing),))

    def _file(self, file: str) -> str:
        if self._directory and file.startswith(self._directory):
            return file[len(self._directory) :]
        for mark in ("/site-packages/", "/dist-packages/"):
            if mark in file:
                return file.rpartition(mark)[2]
        return file

    def _line(self, code: Any, name: str) -> int:
        if id(code) not in self._lines:
            self._lines[id(code)] = frames.assigned_lines(code)
        return self._lines[id(code)].get(name, code.co_firstlineno)

    def _function(self, code: Any) -> str:
        return str(getattr(code, "co_qualname", code.co_name))

    def _local(self, frame: Any, value: Any) -> str:
        code = frame.f_code
        for name, candidate in frames.variables(frame) if frames.can_read else ():
            if candidate is value:
                where = f"{self._file(code.co_filename)}:{self._line(code, name)}"
                return f"local '{name}' of {self._function(code)} ({where})"
        return f"{self._function(code)} ({self._file(code.co_filename)}:{code.co_firstlineno})"

    def _global(self, contents: Any, value: Any) -> str:
        name, file = self._roots.modules[id(contents)]
        key = self._key(contents, value)
        code = self._roots.codes.get(id(contents))
        place = self._file(file)
        if code is not None and type(key) is str:
            place = f"{self._file(code.co_filename)}:{self._line(code, key)}"
        of = "" if name == "__main__" else f" of {name}"
        return f"global {_quoted(key)}{of}" + (f" ({place})" if place else "")

    # Ways from one object to the next.

    def _next(self, holder: Any, place: _Place, thing: Any) -> _Place:
        by_role = {
            "frame": self._from_frame,
            "globals": self._from_globals,
            "attributes": self._from_attributes,
            "closure": self._from_closure,
            "members": self._from_members,
            "hooks": self._from_hooks,
            "silent": self._from_silent,
        }.get(place.role)
        return by_role(holder, place, thing) if by_role else self._from_value(holder, place, thing)

    def _from_frame(self, holder: Any, place: _Place, thing: Any) -> _Place:
        return self._value(place.segments + (self._local(holder, thing),), thing)

    def _from_globals(self, holder: Any, place: _Place, thing: Any) -> _Place:
        return self._value(place.segments + (self._global(holder, thing),), thing)

    def _from_attributes(self, holder: Any, place: _Place, thing: Any) -> _Place:
        return self._attribute(place, place.owner, self._key(holder, thing), thing)

    def _from_closure(self, holder: Any, place: _Place, thing: Any) -> _Place:
        function = place.owner
        code = function.__code__
        variable = next(
            (
                name
                for name, cell in zip(code.co_freevars, function.__closure__ or ())
                if cell is thing or cell is holder
            ),
            "",
        )
        text = f"closure of {function.__qualname__} ({self._file(code.co_filename)}:{code.co_firstlineno})"
        return self._value(place.segments + (f"{text}, '{variable}'" if variable else text,), thing)

    def _from_members(self, holder: Any, place: _Place, thing: Any) -> _Place:
        """An entry of a module: a parameter, a buffer or another module."""
        key = self._key(holder, thing)
        path = (*place.path, key if type(key) is str else "?")
        if is_module(thing):
            return _Place(place.segments, None, "", place.model, path)
        if place.owner == _PARAMETERS:
            # The blocks of one line, which makes a model's parameters, are held in one way.
            return _Place((*place.segments, f"parameters of {place.model}"))
        return _Place((*place.segments, ".".join((place.model, *path))))

    def _from_hooks(self, holder: Any, place: _Place, thing: Any) -> _Place:
        return self._value(place.segments, thing)

    def _from_silent(self, holder: Any, place: _Place, thing: Any) -> _Place:
        return self._value(place.segments, thing)

    def _value(self, segments: tuple[str, ...], thing: Any) -> _Place:
        """An object that has got its name; cells are not worth one of their own."""
        return _Place(segments, thing, "silent") if type(thing) is types.CellType else _Place(segments)

    def _attribute(self, place: _Place, owner: Any, key: Any, thing: Any) -> _Place:
        """An attribute of an object, which modules have in several places."""
        name = key if type(key) is str else "?"
        is_class = is_kind(owner, type)
        if not is_class and is_module(owner):
            model = place.model or type_name(owner)
            if name in _MEMBERS:
                return _Place(place.segments, name, "members", model, place.path)
            if name in _HOOKS:
                where = ".".join(place.path) or model
                return _Place((*place.segments, f"{_HOOKS[name]} on {where}"), owner, "hooks")
            return self._value((*place.segments, ".".join((model, *place.path, name))), thing)
        kind = f"class {name_of_type(owner)}" if is_class else type_name(owner)
        return self._value((*place.segments, f"{kind}.{name}"), thing)

    def _from_value(self, holder: Any, place: _Place, thing: Any) -> _Place:
        segments = place.segments
        kind = type(holder)
        if kind is types.FunctionType:
            return self._from_function(holder, segments, thing)
        if kind is types.MethodType:
            name = f"method {holder.__func__.__qualname__}" if type(holder.__func__) is types.FunctionType else "method"
            return self._value((*segments, name), thing)
        if kind is _lru_cache:
            return self._from_cache(holder, segments, thing)
        if any(kind is generator for generator in _GENERATOR_PREFIXES):
            return self._from_generator(holder, segments, thing)
        if kind is types.FrameType:
            return self._value((*segments, self._local(holder, thing)), thing)
        if kind is types.TracebackType:
            return _Place(segments)
        if type(thing) is types.TracebackType and is_kind(holder, BaseException):
            return _Place((*segments, f"traceback of {type_name(holder)}"))
        if is_kind(holder, type) and type(thing) is dict:
            return _Place(segments, holder, "attributes")
        if is_kind(holder, dict) and self._has(holder, thing):
            return self._value(self._entry(holder, segments, thing), thing)
        if is_kind(holder, *_COUNTED) and type(thing) is not dict:
            return self._value((*segments, f"{type_name(holder)} of {_count(holder)}"), thing)
        if (slot := _slot(holder, thing)) is not None:
            return self._attribute(place, holder, slot, thing)
        attributes = _internal.attributes_of(holder)
        if attributes is not None and attributes is thing:
            return _Place(segments, holder, "attributes", place.model, place.path)
        if attributes is not None and self._has(attributes, thing):
            return self._attribute(place, holder, self._key(attributes, thing), thing)
        if is_kind(holder, *_COUNTED):
            return self._value((*segments, f"{type_name(holder)} of {_count(holder)}"), thing)
        return self._value((*segments, type_name(holder)) if segments[-1:] != (type_name(holder),) else segments, thing)

    def _from_function(self, function: Any, segments: tuple[str, ...], thing: Any) -> _Place:
        if function.__closure__ is thing:
            return _Place(segments, function, "closure")
        where = (
            f"{function.__qualname__} ({self._file(function.__code__.co_filename)}:{function.__code__.co_firstlineno})"
        )
        if function.__defaults__ is thing or function.__kwdefaults__ is thing:
            return _Place((*segments, f"default argument of {where}"), thing, "silent")
        if function.__globals__ is thing:
            return _Place((*segments, f"globals of {where}"))
        if type(thing) is dict:
            return _Place(segments, function, "attributes")
        return self._value((*segments, f"function {where}"), thing)

    def _from_cache(self, cache: Any, segments: tuple[str, ...], thing: Any) -> _Place:
        function = (_internal.attributes_of(cache) or {}).get("__wrapped__")
        if type(function) is types.FunctionType:
            code = function.__code__
            name = f"{function.__qualname__} ({self._file(code.co_filename)}:{code.co_firstlineno})"
        else:
            name = "a function"
        role = "silent" if is_kind(thing, dict, tuple) else ""
        return _Place((*segments, f"functools cache of {name}"), thing if role else None, role)

    def _from_generator(self, generator: Any, segments: tuple[str, ...], thing: Any) -> _Place:
        prefix = _GENERATOR_PREFIXES[type(generator)]
        frame = static_attribute(type(generator), f"{prefix}_frame").__get__(generator)
        code = static_attribute(type(generator), f"{prefix}_code").__get__(generator)
        kind = {"gi": "generator", "cr": "coroutine", "ag": "asynchronous generator"}[prefix]
        if frame is None:
            return _Place((*segments, f"{kind} {self._function(code)}"))
        if frame is thing:
            return _Place((*segments, kind))
        return self._value((*segments, kind, self._local(frame, thing)), thing)

    # Containers.

    def _key(self, holder: Any, value: Any) -> Any:
        """The key of a dictionary under which a value is found, by identity."""
        return self._keys_of(holder).get(id(value))

    def _has(self, holder: Any, value: Any) -> bool:
        return id(value) in self._keys_of(holder)

    def _keys_of(self, holder: Any) -> dict[int, Any]:
        keys = self._keys.get(id(holder))
        if keys is None:
            keys = self._keys[id(holder)] = {id(entry): key for key, entry in dict.items(holder)}
        return keys

    def _entry(self, holder: Any, segments: tuple[str, ...], thing: Any) -> tuple[str, ...]:
        count = dict.__len__(holder)
        key = self._key(holder, thing)
        is_named = (
            count <= MOST_NAMED_ENTRIES
            and (type(key) is str or type(key) is int)
            and sum(type(entry) is type(thing) for entry in dict.values(holder)) <= MOST_NAMED_ALIKE
        )
        if is_named and segments:
            if _COUNT.search(segments[-1]):
                return (*segments, f"[{_quoted(key)}]")
            return (*segments[:-1], f"{segments[-1]}[{_quoted(key)}]")
        return (*segments, f"{type_name(holder)} of {count}")


def _without_repetitions(segments: tuple[str, ...]) -> Iterator[str]:
    """Links of a chain are one, however many there are."""
    for segment, same in itertools.groupby(segments):
        yield segment if len(list(same)) == 1 else f"{segment}, repeatedly"


def _hooks_text(places: dict[str, str]) -> str:
    """Hooks on modules, told by the path of each."""
    path, word = next(iter(places.items()))
    more = f" and {len(places) - 1} more module{'s' * (len(places) > 2)}" if len(places) > 1 else ""
    return f"{word} on {path}{more}"


def _count(holder: Any) -> int:
    kind = next(kind for kind in _COUNTED if is_kind(holder, kind))
    return int(kind.__len__(holder))


def _slot(holder: Any, value: Any) -> str | None:
    """The slot of an object that has a value."""
    for base in order_of_type(type(holder)):
        for name, descriptor in type_contents(base).items():
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    if descriptor.__get__(holder) is value:
                        return str(name)
                except AttributeError:
                    continue
    return None


def _quoted(key: Any) -> str:
    if type(key) is int:
        return str(key)
    if type(key) is not str:
        return "?"
    return f"'{key}'" if len(key) <= LONGEST_KEY else f"'{key[:LONGEST_KEY]}...'"


def _working_directory() -> str:
    try:
        return os.getcwd().rstrip(os.sep) + os.sep
    except OSError:
        return ""


def shortened(text: str) -> str:
    """A text without its middle if it is too long: both ends of a path matter."""
    # Lone surrogates cannot be written down.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= LONGEST_TEXT:
        return text
    parts: Iterable[str] = (text[: LONGEST_TEXT // 2], text[-LONGEST_TEXT // 2 :])
    return " ... ".join(parts)
