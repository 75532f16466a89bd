"""Regions of code named by the user, in the Python trace."""

from __future__ import annotations

from typing import Any

from . import _internal
from ._stepwise import Function, decorate
from ._texts import checked_text


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
        self.name = checked_text("the name of a RecordFunction", name)
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
        return decorate(function, self._enter, _internal.region_end)

    def __reduce__(self) -> tuple[type[RecordFunction], tuple[str]]:
        """Only the name is passed on: its id counts in this process alone."""
        return type(self), (self.name,)

    def __repr__(self) -> str:
        return f"RecordFunction({self.name!r})"
