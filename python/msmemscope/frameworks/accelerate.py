"""accelerate: what moves to the device when it prepares a model, and its checkpoints."""

from __future__ import annotations

from .protocol import DECOMPOSE, SNAPSHOT, Framework, Target, labels

_ACCELERATOR = ("accelerate.accelerator", "Accelerator")

_DECOMPOSE = (
    Target(*_ACCELERATOR, "save_state", labels("accelerate", "save")),
    Target(*_ACCELERATOR, "load_state", labels("accelerate", "load")),
    Target(*_ACCELERATOR, "gather", labels("accelerate", "gather")),
)

_SNAPSHOT = tuple(
    Target(*_ACCELERATOR, name) for name in ("prepare", "backward", "clip_grad_norm_", "save_state", "load_state")
)

FRAMEWORK = Framework(
    name="accelerate",
    module="accelerate",
    distribution="accelerate",
    versions={"0.30+": {"accelerator": {DECOMPOSE: _DECOMPOSE, SNAPSHOT: _SNAPSHOT}}},
)
