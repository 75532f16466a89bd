"""The table: framework, version, component, kind of hook, and the functions that belong to it."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ..describe import COMPONENT, DETAIL_1, PROCESS
from . import taggers

DECOMPOSE = "decompose"
SNAPSHOT = "snapshot"

Labels = tuple[tuple[str, int], ...]


class Target(NamedTuple):
    """A function of a framework and what is done around it."""

    module: str
    class_name: str | None
    function: str
    #: Labels for all memory allocated meanwhile.
    labels: Labels = ()
    #: Called with the arguments and the result afterwards.
    tagger: Callable[..., None] | None = None
    #: The function opens a region that another closes. Gives the key of the region from its arguments.
    opens: Callable[..., Any] | None = None
    #: The function closes such a region.
    closes: Callable[..., Any] | None = None

    @property
    def key(self) -> tuple[str, str | None, str]:
        """What is hooked, whatever for."""
        return self.module, self.class_name, self.function


def _labels(component: str, process: str | None = None, detail: str | None = None) -> Labels:
    levels = ((component, COMPONENT), (process, PROCESS), (detail, DETAIL_1))
    return tuple((label, level) for label, level in levels if label is not None)


def _group_of_state(state: Any, *_: Any, **__: Any) -> Any:
    """Region of the backward pass of an FSDP2 state: its group of parameters, if it has one."""
    group = getattr(state, "_fsdp_param_group", None)
    return None if group is None else id(group)


def _itself(owner: Any, *_: Any, **__: Any) -> Any:
    return id(owner)


def _handle_before(state: Any, module: Any, handle: Any, *_: Any, **__: Any) -> Any:
    return None if handle is None else id(handle)


def _handle_after(state: Any, handle: Any, *_: Any, **__: Any) -> Any:
    return None if handle is None else id(handle)


_RUNNER = ("vllm_ascend.worker.model_runner_v1", "NPUModelRunner")
_WORKER = ("vllm_ascend.worker.worker", "NPUWorker")

_VLLM_DECOMPOSE = (
    Target(*_RUNNER, "profile_run", _labels("vllm", "profile")),
    Target(*_RUNNER, "execute_model", _labels("vllm", "serve")),
    Target(*_RUNNER, "capture_model", (("graph_pool", DETAIL_1),)),
    Target(*_RUNNER, "load_model", tagger=taggers.tag_model_weights),
    Target(*_RUNNER, "initialize_kv_cache_tensors", tagger=taggers.tag_kv_cache),
    Target(*_WORKER, "compile_or_warm_up_model", _labels("vllm", "warmup")),
)

_VLLM_SNAPSHOT = tuple(
    Target(*_RUNNER, name)
    for name in ("load_model", "profile_run", "initialize_kv_cache", "execute_model", "capture_model")
) + (Target(*_WORKER, "compile_or_warm_up_model"),)

_VERL_SNAPSHOT = tuple(
    Target("verl.trainer.main_ppo", "TaskRunner", name)
    for name in (
        "add_actor_rollout_worker",
        "add_critic_worker",
        "add_reward_model_worker",
        "add_ref_policy_worker",
        "run",
    )
)

_MINDSPEED = "mindspeed_llm.core.transformer"
_OPTIMIZER = "megatron.core.optimizer"

_MINDSPEED_SNAPSHOT = (
    Target("mindspeed_llm.training.training", None, "train"),
    Target("mindspeed_llm.training.training", None, "train_step"),
    Target("megatron.training.training", None, "setup_model_and_optimizer"),
    Target("megatron.training.training", None, "get_model"),
    Target(_OPTIMIZER, None, "get_megatron_optimizer"),
    Target("mindspeed_llm.core.models.gpt.gpt_model", "GPTModel", "forward"),
    Target("mindspeed_llm.core.models.gpt.gpt_model", "GPTModel", "compute_language_model_loss"),
    Target(f"{_MINDSPEED}.transformer_block", "TransformerBlock", "forward"),
    Target(f"{_MINDSPEED}.transformer_layer", "TransformerLayer", "forward"),
    Target(f"{_MINDSPEED}.attention", "SelfAttention", "forward"),
    Target(f"{_MINDSPEED}.mlp", "MLP", "forward"),
    Target(f"{_MINDSPEED}.moe.moe_layer", "MoELayer", "forward"),
    Target(f"{_MINDSPEED}.moe.router", "TopKRouter", "forward"),
    Target("megatron.core.pipeline_parallel.schedules", None, "backward_step"),
    Target("mindspeed_llm.core.pipeline_parallel.dualpipe.gpt_model", None, "gpt_model_backward"),
    Target("megatron.core.tensor_parallel.cross_entropy", None, "vocab_parallel_cross_entropy"),
    *(
        Target(f"{_OPTIMIZER}.optimizer", name, "step")
        for name in (
            "MegatronOptimizer",
            "MixedPrecisionOptimizer",
            "Float16OptimizerWithFloat16Params",
            "FP32Optimizer",
            "ChainedOptimizer",
        )
    ),
    Target(f"{_OPTIMIZER}.distrib_optimizer", "DistributedOptimizer", "step_with_ready_grads"),
)

_FSDP1 = "torch.distributed.fsdp"

_FSDP1_DECOMPOSE = (
    Target(
        f"{_FSDP1}.fully_sharded_data_parallel",
        "FullyShardedDataParallel",
        "forward",
        _labels("fsdp1", "activation"),
    ),
    Target(f"{_FSDP1}._runtime_utils", None, "_pre_backward_hook", _labels("fsdp1", "backward"), opens=_handle_before),
    Target(f"{_FSDP1}._runtime_utils", None, "_post_backward_hook", _labels("fsdp1", "backward"), closes=_handle_after),
    Target(f"{_FSDP1}._runtime_utils", None, "_reduce_grad", _labels("fsdp1", None, "gradient")),
    Target(
        f"{_FSDP1}._flat_param",
        "FlatParamHandle",
        "_init_flat_param_and_metadata",
        _labels("fsdp1", None, "sharded_weight"),
    ),
    Target(
        f"{_FSDP1}._flat_param",
        "FlatParamHandle",
        "_alloc_padded_unsharded_flat_param",
        _labels("fsdp1", None, "all_gather"),
    ),
)

_FSDP2 = "torch.distributed.fsdp._fully_shard"

_FSDP2_COMMON = (
    Target(f"{_FSDP2}._fsdp_state", "FSDPState", "_pre_forward", _labels("fsdp2", "activation"), opens=_itself),
    Target(f"{_FSDP2}._fsdp_state", "FSDPState", "_post_forward", _labels("fsdp2", "activation"), closes=_itself),
    Target(f"{_FSDP2}._fsdp_state", "FSDPState", "_pre_backward", _labels("fsdp2", "backward"), opens=_group_of_state),
    Target(
        f"{_FSDP2}._fsdp_param_group",
        "FSDPParamGroup",
        "post_backward",
        _labels("fsdp2", "backward"),
        closes=_itself,
    ),
    Target(f"{_FSDP2}._fsdp_param", "FSDPParam", "_init_sharded_param", _labels("fsdp2", None, "sharded_weight")),
    Target(
        f"{_FSDP2}._fsdp_param",
        "FSDPParam",
        "init_all_gather_outputs",
        _labels("fsdp2", None, "all_gather_output"),
    ),
)

_FSDP2_COLLECTIVES = tuple(
    Target(f"{_FSDP2}.{module}", None, function, _labels("fsdp2", None, detail))
    for module in ("_fsdp_collectives", "_fsdp_param_group")
    for function, detail in (("foreach_all_gather", "all_gather_output"), ("foreach_reduce", "gradient"))
)

_FSDP2_ALLOCATORS = (
    Target(f"{_FSDP2}._fsdp_collectives", "DefaultAllGather", "allocate", _labels("fsdp2", None, "all_gather_output")),
    Target(f"{_FSDP2}._fsdp_collectives", "DefaultReduceScatter", "allocate", _labels("fsdp2", None, "gradient")),
)

#: framework -> version key -> component -> kind of hook -> functions
TARGETS: dict[str, dict[str, dict[str, dict[str, tuple[Target, ...]]]]] = {
    "vllm_ascend": {"11.0": {"worker": {DECOMPOSE: _VLLM_DECOMPOSE, SNAPSHOT: _VLLM_SNAPSHOT}}},
    "verl": {"0.7.0": {"TaskRunner": {SNAPSHOT: _VERL_SNAPSHOT}}},
    "mindspeed_llm": {"0.12.1": {"training": {SNAPSHOT: _MINDSPEED_SNAPSHOT}}},
    "pytorch": {
        "2.6+": {"fsdp1": {DECOMPOSE: _FSDP1_DECOMPOSE}},
        "2.6-2.9": {"fsdp2": {DECOMPOSE: _FSDP2_COMMON + _FSDP2_COLLECTIVES}},
        "2.10+": {"fsdp2": {DECOMPOSE: _FSDP2_COMMON + _FSDP2_ALLOCATORS}},
    },
}
