"""Gives the memory behind tensors its label."""

from __future__ import annotations

from typing import Any

import torch

from .. import _internal
from ..describe import DETAIL_1


def storage_address(tensor: Any) -> int | None:
    """Where the memory behind a tensor on a device starts. None for whatever has no such memory."""
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        # A distributed tensor has its memory in the local part.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor.device.type in ("cpu", "meta"):
            return None
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, ValueError, NotImplementedError):
        # Tensors that only stand for others (fake, functional, not yet initialized) have no memory.
        return None


def label_memory(tensor: Any, label: int) -> None:
    """Label the block that holds a tensor on a device. Whatever has no such block is left alone."""
    address = storage_address(tensor)
    if address is not None:
        _internal.label_address(address, DETAIL_1, label)
