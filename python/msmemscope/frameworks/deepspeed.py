"""DeepSpeed: what its engine and its ZeRO optimizers set up, and its steps."""

from __future__ import annotations

from .protocol import DECOMPOSE, SNAPSHOT, Framework, Target, labels

_ENGINE = ("deepspeed.runtime.engine", "DeepSpeedEngine")
_ZERO_1_2 = ("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer")
_ZERO_3 = ("deepspeed.runtime.zero.stage3", "DeepSpeedZeroOptimizer_Stage3")

_DECOMPOSE = (
    Target(*_ZERO_1_2, "__init__", labels("deepspeed", None, "zero_partitions")),
    Target(*_ZERO_1_2, "initialize_optimizer_states", labels("deepspeed", None, "optimizer_state")),
    Target(*_ZERO_3, "__init__", labels("deepspeed", None, "zero_partitions")),
    Target(*_ZERO_3, "initialize_optimizer_states", labels("deepspeed", None, "optimizer_state")),
    Target(*_ENGINE, "step", ends_step=True),
)

_SNAPSHOT = (
    Target("deepspeed", None, "initialize"),
    *(Target(*_ENGINE, name) for name in ("forward", "backward", "step", "save_checkpoint", "load_checkpoint")),
)

FRAMEWORK = Framework(
    name="deepspeed",
    module="deepspeed",
    distribution="deepspeed",
    versions={"0.14+": {"engine": {DECOMPOSE: _DECOMPOSE, SNAPSHOT: _SNAPSHOT}}},
)
