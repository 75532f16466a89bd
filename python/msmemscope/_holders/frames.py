"""Running functions and their variables, read without changing them."""

from __future__ import annotations

import dis
import os
import re
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from .. import _internal

_HAS_PROXY = sys.version_info >= (3, 13)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = ("/site-packages/", "/dist-packages/", f"/lib/python{sys.version_info[0]}.", "<frozen ")

#: Variables of functions: name and value, cells as they are where Python has them.
Variables = list[tuple[str, Any]]


def variables(frame: FrameType) -> Variables:
    """The variables of a function that runs, rests or has ended with an exception; none of a module or class."""
    code = frame.f_code
    if not code.co_flags & 0x1:  # CO_OPTIMIZED: else variables are in a dictionary that others know
        return []
    if _HAS_PROXY:
        return [(name, value) for name, value in frame.f_locals.items() if type(name) is str]
    names = _slot_names(code)
    slots = _internal.frame_slots(frame, len(names))
    return [(name, value) for name, value in zip(names, slots) if value is not None]


def _slot_names(code: CodeType) -> list[str]:
    if sys.version_info >= (3, 11):
        names, count = list(code.co_varnames), 0
        count = len(names) + sum(name not in names for name in code.co_cellvars) + len(code.co_freevars)
        return [code._varname_from_oparg(index) for index in range(count)]  # type: ignore[attr-defined]
    return [*code.co_varnames, *code.co_cellvars, *code.co_freevars]


def _can_read() -> bool:
    """Whether this interpreter's frames are as expected; tried with one whose variables are known."""
    first, second = object(), [0]

    def probe(argument: Any) -> tuple[Any, ...]:
        local, unset, captured = argument, None, argument
        del unset
        return dict(variables(sys._getframe())), lambda: (captured, local) if local else second

    try:
        found, _ = probe(first)
    except Exception:  # noqa: BLE001 - an unknown interpreter
        return False
    return found.get("argument") is first and "unset" not in found and {"local", "captured", "second"} <= set(found)


can_read = _can_read()


def is_ours(file: str) -> bool:
    """Whether a file is part of this package."""
    return file.startswith(_PACKAGE)


def is_library(file: str) -> bool:
    """Whether a file is not the user's own."""
    return any(mark in file for mark in _LIBRARIES)


def calling_line() -> str:
    """The innermost line of the user's own code that this thread is in; empty if there is none.

    Threads that run no code of the user, such as those of autograd, work for the main thread.
    """
    return _users_line(sys._getframe()) or _users_line(sys._current_frames().get(threading.main_thread().ident or 0))


def _users_line(frame: FrameType | None) -> str:
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename) and not is_library(code.co_filename):
            directory = os.getcwd() + os.sep
            name = getattr(code, "co_qualname", code.co_name)
            return f"{code.co_filename.removeprefix(directory)}:{frame.f_lineno} {name}"
        frame = frame.f_back
    return ""


def running() -> list[FrameType]:
    """Frames of all threads, the main thread's first, outermost first, without ours."""
    if not can_read:
        return []
    found: list[FrameType] = []
    innermost = sys._current_frames()
    main = threading.main_thread().ident
    for thread in sorted(innermost, key=lambda thread: thread != main):
        frames = []
        frame: FrameType | None = innermost[thread]
        while frame is not None:
            if not is_ours(frame.f_code.co_filename):
                frames.append(frame)
            frame = frame.f_back
        found.extend(reversed(frames))
    # Our own frame is in it: a cycle that would keep everything in our callers' variables.
    innermost.clear()
    return found


#: What an instruction does to each of the variables it names: ``STORE_FAST_LOAD_FAST`` has two.
_VARIABLES = re.compile("(LOAD|STORE)_(?:FAST|NAME|GLOBAL|DEREF)")
#: Kinds of assignments, those that tell most about a value first: one that adds to the variable, any other, a constant.
_ADDS, _SETS, _CONSTANT = range(3)


def assigned_lines(code: CodeType) -> dict[str, int]:
    """The line of some code that says most about where each variable has its value from.

    ``total = total + loss`` is what makes a total grow, and says more than ``total = 0.0``, which cannot be where an
    object comes from. Among equals the first is taken: which one ran last is not known.
    """
    starts = dict(dis.findlinestarts(code))
    found: dict[str, tuple[int, int]] = {}
    line = code.co_firstlineno
    loaded: set[str] = set()
    before = ""
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        name = instruction.opname
        names = instruction.argval if type(instruction.argval) is tuple else (instruction.argval,)
        for does, variable in zip(_VARIABLES.findall(name), names):
            if does == "LOAD":
                loaded.add(variable)
            else:
                is_constant = before in ("LOAD_CONST", "LOAD_SMALL_INT")
                kind = _ADDS if variable in loaded else _CONSTANT if is_constant else _SETS
                if variable not in found or kind < found[variable][0]:
                    found[variable] = (kind, line)
                loaded.clear()
        if name.startswith(("POP_TOP", "POP_JUMP", "FOR_ITER")):
            loaded.clear()
        before = name
    return {variable: where for variable, (_, where) in found.items()}
