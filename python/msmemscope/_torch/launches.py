"""Begins and ends of operators on all threads, through PyTorch's own observer interface.

The interface is C++ and changes with PyTorch, so that it is used only with releases whose form of it is
known, and only after a trial operator was seen. Elsewhere :mod:`.operators` does the same per thread.
"""

from __future__ import annotations

import functools
import sys

import torch

from .. import _internal
from .._holders.schedule import looks

#: The first and the last release whose interface is known.
_FIRST, _LAST = (2, 6), (2, 14)


def follow(is_wanted: bool) -> bool:
    """Observe launches, or stop doing so; gives whether they are observed."""
    if not is_wanted:
        _internal.ignore_operators()
        _internal.notice_operators(None)
        return False
    if not _is_known_release():
        return False
    # Operators come with modules and libraries; asking for each of thousands takes longer than many a step.
    composites = _composites("torch_npu" in sys.modules, len(sys.modules), len(torch.ops.loaded_libraries))
    is_observed = _internal.observe_operators(composites, _trial)
    _internal.notice_operators(looks.operators_passed if is_observed else None)
    return is_observed


def _is_known_release() -> bool:
    try:
        major, minor = torch.__version__.split(".")[:2]
        return _FIRST <= (int(major), int(minor)) <= _LAST
    except ValueError:
        return False


def _trial() -> None:
    """An operator that the job's own modes do not see: it may count, print or replace what comes by."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        torch.empty(0, device="cpu")


@functools.lru_cache(maxsize=1)
def _composites(has_npu: bool, _modules: int, _libraries: int) -> set[str]:
    """Operators that consist of calls of others and are not run by the backend itself.

    The backend has no function for them, or it puts calls of others in place where gradients are
    recorded, instead of the formula that PyTorch has. The numbers of loaded modules and libraries tell
    whether operators may have come since the last time.
    """
    backend = "PrivateUse1" if has_npu else "CPU"
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if has(name, "CompositeImplicitAutograd")
        and (not has(name, backend) or (has(name, f"Autograd{backend}") and not has(name, "Autograd")))
    }
