"""Labels weights, gradients and optimizer states, when an optimizer has made a step."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import _internal
from .harmless import harmless
from .memory_labels import label_memory
from .weights import label_weights

_handles: list[Any] = []


def follow(is_wanted: bool) -> None:
    """Observe optimizers, or stop doing so."""
    if is_wanted and not _handles:
        _handles.append(register_optimizer_step_post_hook(_stepped))
    elif not is_wanted and _handles:
        _handles.pop().remove()


@harmless("memory of an optimizer")
def _stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    gradient, state = (_internal.intern(label) for label in ("gradient", "optimizer_state"))
    label_weights(parameter for group in optimizer.param_groups for parameter in group["params"])
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            label_memory(parameter.grad, gradient)
            values = optimizer.state.get(parameter)
            for value in values.values() if isinstance(values, dict) else ():
                label_memory(value, state)
