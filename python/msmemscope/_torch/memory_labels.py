"""Gives the memory behind tensors its label."""

from __future__ import annotations

from typing import Any

import torch

from .. import _internal
from ..describe import DETAIL_1


def label_memory(tensor: Any, label: int) -> None:
    """Label the block that holds a tensor on a device. Whatever has no such block is left alone."""
    if not isinstance(tensor, torch.Tensor):
        return
    try:
        # A distributed tensor has its memory in the local part.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor.device.type not in ("cpu", "meta"):
            _internal.label_address(tensor.untyped_storage().data_ptr(), DETAIL_1, label)
    except (RuntimeError, ValueError, NotImplementedError):
        # Tensors that only stand for others (fake, functional, not yet initialized) have no memory.
        return
