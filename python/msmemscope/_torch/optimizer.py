"""Labels weights, gradients and optimizer states, when an optimizer has made a step."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import _internal
from ..describe import DETAIL_1

_handles: list[Any] = []


def follow(is_wanted: bool) -> None:
    """Observe optimizers, or stop doing so."""
    if is_wanted and not _handles:
        _handles.append(register_optimizer_step_post_hook(_stepped))
    elif not is_wanted and _handles:
        _handles.pop().remove()


def _stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    weight, gradient, state = (_internal.intern(label) for label in ("weight", "gradient", "optimizer_state"))
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _label(parameter, weight)
            _label(parameter.grad, gradient)
            values = optimizer.state.get(parameter)
            for value in values.values() if isinstance(values, dict) else ():
                _label(value, state)


def _label(tensor: Any, label: int) -> None:
    if not isinstance(tensor, torch.Tensor):
        return
    # A distributed tensor has its memory in the local part.
    tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.device.type not in ("cpu", "meta"):
        _internal.label_address(tensor.untyped_storage().data_ptr(), DETAIL_1, label)
