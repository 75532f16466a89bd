"""Regions of code named by the user, in the Python trace."""

from __future__ import annotations

from typing import Any

from . import _internal
from ._stepwise import Function, decorate

LONGEST_NAME_BYTES = 128


class RecordFunction:
    """Marks a block of code or a function in the Python trace.

    >>> import msmemscope
    >>> with msmemscope.RecordFunction("forward_pass"):
    ...     total = sum(range(10))
    >>> @msmemscope.RecordFunction("forward_pass")
    ... def forward_pass(data):
    ...     return data + 1
    >>> forward_pass(1)
    2

    A decorated coroutine or generator counts only while its own code runs. In a ``with`` block do not
    give control away to other tasks.

    :param name: at most 128 bytes.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a RecordFunction must be a string, not {type(name).__name__}")
        if not name:
            raise ValueError("the name of a RecordFunction must not be empty")
        if len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME_BYTES:
            raise ValueError(f"the name of a RecordFunction must not be longer than {LONGEST_NAME_BYTES} bytes")
        self.name = name
        self._id: int | None = None

    def _enter(self) -> None:
        if self._id is None:
            self._id = _internal.intern(self.name)
        _internal.region_begin(self._id)

    def __enter__(self) -> RecordFunction:
        self._enter()
        return self

    def __exit__(self, *exception: Any) -> None:
        _internal.region_end()

    def __call__(self, function: Function) -> Function:
        if not callable(function):
            raise TypeError(f"a RecordFunction decorates functions, not {type(function).__name__}")
        return decorate(function, self._enter, _internal.region_end)

    def __repr__(self) -> str:
        return f"RecordFunction({self.name!r})"
