"""Megatron-core: buffers of parameters and gradients, passes of the schedules, steps of its optimizers."""

from __future__ import annotations

from .protocol import DECOMPOSE, SNAPSHOT, Framework, Target, labels

CORE = "megatron.core"
OPTIMIZER = f"{CORE}.optimizer"

#: Steps of its optimizers. The innermost are those of torch; the outermost ends the step.
OPTIMIZER_STEPS = tuple(
    (f"{OPTIMIZER}.optimizer", name, "step")
    for name in (
        "MegatronOptimizer",
        "MixedPrecisionOptimizer",
        "Float16OptimizerWithFloat16Params",
        "FP32Optimizer",
        "ChainedOptimizer",
    )
)
READY_GRADIENTS = (f"{OPTIMIZER}.distrib_optimizer", "DistributedOptimizer", "step_with_ready_grads")

_DECOMPOSE = (
    Target(
        f"{CORE}.distributed.param_and_grad_buffer",
        "_ParamAndGradBuffer",
        "__init__",
        labels("megatron", None, "param_and_grad_buffer"),
    ),
    Target(OPTIMIZER, None, "get_megatron_optimizer", labels("megatron", None, "optimizer_state")),
    *(Target(*step, ends_step=True) for step in OPTIMIZER_STEPS),
)

_SNAPSHOT = (
    Target(OPTIMIZER, None, "get_megatron_optimizer"),
    Target(f"{CORE}.pipeline_parallel.schedules", None, "backward_step"),
    Target(f"{CORE}.tensor_parallel.cross_entropy", None, "vocab_parallel_cross_entropy"),
    *(Target(*step) for step in OPTIMIZER_STEPS),
    Target(*READY_GRADIENTS),
)

FRAMEWORK = Framework(
    name="megatron",
    module=CORE,
    distribution="megatron-core",
    versions={"0.12+": {"training": {DECOMPOSE: _DECOMPOSE, SNAPSHOT: _SNAPSHOT}}},
)
