"""Labels for the memory of vLLM's models, given to the addresses once they exist."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ..describe import COMPONENT, DETAIL_1, DETAIL_2, label_address

Labels = tuple[tuple[str, int], ...]

#: Modules whose parameters have their labels from here; nobody else should change them.
tagged_modules: weakref.WeakSet[Any] = weakref.WeakSet()

_WEIGHTS: Labels = (("vllm", COMPONENT), ("weights", DETAIL_1))


def _tag(tensors: Iterable[Any], labels: Labels, seen: set[int]) -> None:
    for tensor in tensors:
        data_ptr = getattr(tensor, "data_ptr", None)
        address = data_ptr() if callable(data_ptr) else 0
        if address and address not in seen:
            seen.add(address)
            for label, level in labels:
                label_address(address, label, level)


def _adapters(model: Any) -> Iterable[Any]:
    """Tensors of low-rank adapters, which modules keep in dictionaries."""
    for module in model.modules():
        for name in ("lora_a", "lora_b"):
            adapters = getattr(module, name, None)
            if isinstance(adapters, dict):
                yield from adapters.values()


def _tensors(model: Any) -> Iterable[Any]:
    for _, parameter in model.named_parameters():
        yield parameter
    for _, buffer in model.named_buffers():
        yield buffer


def tag_model_weights(arguments: tuple[Any, ...], result: Any) -> None:
    """After ``load_model``: weights, with adapters and the draft model told apart."""
    runner = arguments[0]
    seen: set[int] = set()
    model = getattr(runner, "model", None)
    if model is not None:
        _tag(_adapters(model), (*_WEIGHTS, ("lora", DETAIL_2)), seen)
        tagged_modules.update(model.modules())
    draft = getattr(getattr(runner, "drafter", None), "model", None)
    if draft is not None:
        tagged_modules.update(draft.modules())
        _tag(_tensors(draft), (*_WEIGHTS, ("drafter", DETAIL_2)), seen)
    if model is not None:
        _tag(_tensors(model), _WEIGHTS, seen)


def _cache_kinds(configuration: Any) -> dict[str, str]:
    """The kind of cache of each layer."""
    kinds = {}
    for group in getattr(configuration, "kv_cache_groups", ()):
        specification = type(getattr(group, "kv_cache_spec", None)).__name__.lower()
        kind = next((word for word in ("mamba", "hidden_state") if word.replace("_", "") in specification), "attn")
        for layer in getattr(group, "layer_names", ()):
            kinds[layer] = kind
    return kinds


def _members(cache: Any) -> Iterable[Any]:
    if isinstance(cache, dict):
        cache = tuple(cache.values())
    return cache if isinstance(cache, (list, tuple)) else (cache,)


def tag_kv_cache(arguments: tuple[Any, ...], result: Any) -> None:
    """After ``initialize_kv_cache_tensors``, which returns the cache of each layer."""
    kinds = _cache_kinds(arguments[1] if len(arguments) > 1 else None)
    seen: set[int] = set()
    for layer, cache in result.items() if isinstance(result, dict) else ():
        if layer in kinds:
            labels: Labels = (("vllm", COMPONENT), ("kv_cache", DETAIL_1), (kinds[layer], DETAIL_2))
            _tag(_members(cache), labels, seen)
