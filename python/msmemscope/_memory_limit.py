"""Tells the recorder which part of a card's memory the job leaves to PyTorch's pool.

The pool keeps ``torch.npu.set_per_process_memory_fraction`` to itself, and does not ask the driver beyond that limit. A
replay has to know it.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from . import _internal
from ._mstx import replace

#: The whole card: nothing has to be said about it.
_NO_LIMIT = 1.0


def follow() -> None:
    """See limits that are set, and the one that was set before, once torch_npu is imported."""
    native = getattr(sys.modules.get("torch_npu"), "_C", None)
    if replace(native, "_npu_setMemoryFraction", _set_memory_fraction):
        _tell_earlier_limit(native)


def _tell_earlier_limit(native: Any) -> None:
    npu = sys.modules.get("torch_npu.npu")
    ask = getattr(native, "_npu_getMemoryFraction", None)
    if npu is None or ask is None or not npu.is_initialized():
        return
    device = npu.current_device()
    fraction = ask(device)
    if fraction < _NO_LIMIT:
        _internal.memory_fraction(device, fraction)


def _set_memory_fraction(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_memory_fraction(*arguments: Any) -> Any:
        result = original(*arguments)
        if len(arguments) == 2:
            fraction, device = arguments
            _internal.memory_fraction(int(device), float(fraction))
        return result

    return set_memory_fraction
