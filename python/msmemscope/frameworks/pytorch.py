"""PyTorch's fully sharded data parallel, both generations: sharded weights, gathered ones, activations, gradients.

Activations and the backward pass are whole regions: the function that opens one and the one that closes it are not the
same, and the body of the module lies between them.
"""

from __future__ import annotations

from typing import Any

from .protocol import DECOMPOSE, Framework, Target, labels


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


def _remember_sharded(arguments: tuple[Any, ...], result: Any) -> None:
    from .._torch.weights import remember_sharded

    remember_sharded(arguments[0])


def _remember_flat(arguments: tuple[Any, ...], result: Any) -> None:
    if arguments[0].uses_sharded_strategy:
        _remember_sharded(arguments, result)


_FSDP1 = "torch.distributed.fsdp"

_DECOMPOSE_1 = (
    Target(
        f"{_FSDP1}.fully_sharded_data_parallel",
        "FullyShardedDataParallel",
        "forward",
        labels("fsdp1", "activation"),
    ),
    Target(f"{_FSDP1}._runtime_utils", None, "_pre_backward_hook", labels("fsdp1", "backward"), opens=_handle_before),
    Target(f"{_FSDP1}._runtime_utils", None, "_post_backward_hook", labels("fsdp1", "backward"), closes=_handle_after),
    Target(f"{_FSDP1}._runtime_utils", None, "_reduce_grad", labels("fsdp1", None, "gradient")),
    Target(
        f"{_FSDP1}._flat_param",
        "FlatParamHandle",
        "_init_flat_param_and_metadata",
        labels("fsdp1", None, "sharded_weight"),
    ),
    Target(
        f"{_FSDP1}._flat_param",
        "FlatParamHandle",
        "shard",
        labels("fsdp1", None, "sharded_weight"),
        tagger=_remember_flat,
    ),
    Target(
        f"{_FSDP1}._flat_param",
        "FlatParamHandle",
        "_alloc_padded_unsharded_flat_param",
        labels("fsdp1", None, "all_gather"),
    ),
)

_FSDP2 = "torch.distributed.fsdp._fully_shard"

_COMMON = (
    Target(f"{_FSDP2}._fsdp_state", "FSDPState", "_pre_forward", labels("fsdp2", "activation"), opens=_itself),
    Target(f"{_FSDP2}._fsdp_state", "FSDPState", "_post_forward", labels("fsdp2", "activation"), closes=_itself),
    Target(f"{_FSDP2}._fsdp_state", "FSDPState", "_pre_backward", labels("fsdp2", "backward"), opens=_group_of_state),
    Target(
        f"{_FSDP2}._fsdp_param_group",
        "FSDPParamGroup",
        "post_backward",
        labels("fsdp2", "backward"),
        closes=_itself,
    ),
    Target(
        f"{_FSDP2}._fsdp_param",
        "FSDPParam",
        "_init_sharded_param",
        labels("fsdp2", None, "sharded_weight"),
        tagger=_remember_sharded,
    ),
    Target(
        f"{_FSDP2}._fsdp_param",
        "FSDPParam",
        "init_all_gather_outputs",
        labels("fsdp2", None, "all_gather_output"),
    ),
)

_COLLECTIVES = tuple(
    Target(f"{_FSDP2}.{module}", None, function, labels("fsdp2", None, detail))
    for module in ("_fsdp_collectives", "_fsdp_param_group")
    for function, detail in (("foreach_all_gather", "all_gather_output"), ("foreach_reduce", "gradient"))
)

_ALLOCATORS = (
    Target(f"{_FSDP2}._fsdp_collectives", "DefaultAllGather", "allocate", labels("fsdp2", None, "all_gather_output")),
    Target(f"{_FSDP2}._fsdp_collectives", "DefaultReduceScatter", "allocate", labels("fsdp2", None, "gradient")),
)

FRAMEWORK = Framework(
    name="pytorch",
    module="torch",
    distribution="torch",
    versions={
        "2.6+": {"fsdp1": {DECOMPOSE: _DECOMPOSE_1}},
        "2.6-2.9": {"fsdp2": {DECOMPOSE: _COMMON + _COLLECTIVES}},
        "2.10+": {"fsdp2": {DECOMPOSE: _COMMON + _ALLOCATORS}},
    },
)
