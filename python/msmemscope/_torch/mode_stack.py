"""Puts a dispatch mode below all those that the job enters and leaves, and takes it out from wherever it is.

Leaving a mode takes the innermost one off PyTorch's stack, whichever that is. A mode that comes while one of the
job's is active, and stays, must therefore not lie above it. Nor does it go through ``__enter__``: flags that modes
set there and set back when they are left would be mixed up in the same way.
"""

from __future__ import annotations

from typing import Any

from torch._C import (
    _get_dispatch_stack_at,
    _len_torch_dispatch_stack,
    _pop_torch_dispatch_stack,
    _push_on_torch_dispatch_stack,
)


def _modes() -> list[Any]:
    """The modes of this thread, the innermost last."""
    return [_get_dispatch_stack_at(index) for index in range(_len_torch_dispatch_stack())]


def _is_own_of_pytorch(mode: Any) -> bool:
    """Whether PyTorch keeps a place for the mode, below all others (shapes without memory, transformations)."""
    return getattr(mode, "_mode_key", None) is not None


def _take(count: int) -> list[Any]:
    """Takes modes off, the innermost first."""
    return [_pop_torch_dispatch_stack(None) for _ in range(count)]


def _put_back(modes: list[Any]) -> None:
    for mode in reversed(modes):
        _push_on_torch_dispatch_stack(mode)


def put_below_all(mode: Any) -> None:
    """Activate a mode on this thread; those that are active stay, and are asked before it."""
    above = _take(sum(not _is_own_of_pytorch(active) for active in _modes()))
    _push_on_torch_dispatch_stack(mode)
    _put_back(above)


def take_out(mode: Any) -> bool:
    """Deactivate a mode on this thread. Gives whether it was there; it is not while it is handling an operator."""
    modes = _modes()
    positions = [position for position, active in enumerate(modes) if active is mode]
    if not positions:
        return False
    above = _take(len(modes) - positions[-1])
    _put_back(above[:-1])
    return True
