"""Lets tensors become subclasses while a dispatch mode is active.

Older releases of PyTorch (2.5 for one) cannot do both: what ``Tensor.as_subclass`` makes has been through the
mode, is known to Python by then, and is refused. Without modes it works, and the mode misses no memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

#: From this release on it is known to work.
_IS_NEEDED = torch.torch_version.TorchVersion(torch.__version__) < "2.13"
_original = torch.Tensor.as_subclass


def _as_subclass(tensor: Any, kind: Any) -> Any:
    try:
        return _original(tensor, kind)
    except RuntimeError:
        with _disable_current_modes():
            return _original(tensor, kind)


def follow(has_mode: bool) -> None:
    """Help, while there is a mode, or do so no longer."""
    is_there = torch.Tensor.as_subclass is _as_subclass
    if has_mode and _IS_NEEDED and not is_there:
        torch.Tensor.as_subclass = _as_subclass  # type: ignore[method-assign]
    elif is_there and not has_mode:
        del torch.Tensor.as_subclass
