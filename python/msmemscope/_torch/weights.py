"""Labels weights by their addresses, each by what it is: fully sharded ones have names of their own.

FSDP keeps a shard of each weight and gathers the whole into a buffer that it uses again. To modules and optimizers both
look like weights; what holds them says which is which.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from .. import _internal
from .memory_labels import label_memory, storage_address

#: What FSDP has made for its parameters: ``FlatParamHandle`` or ``FSDPParam``.
_sharded: weakref.WeakSet[Any] = weakref.WeakSet()


def remember_sharded(parameter: Any) -> None:
    """Tell the weights of an FSDP parameter from others from now on."""
    _sharded.add(parameter)


def label_weights(parameters: Iterable[Any]) -> None:
    """Label the memory of parameters."""
    shards, gathered = _known_memory()
    weight, shard = (_internal.intern(label) for label in ("weight", "sharded_weight"))
    for parameter in parameters:
        address = storage_address(parameter)
        # What is gathered has got its label with its memory.
        if address not in gathered:
            label_memory(parameter, shard if address in shards else weight)


def _known_memory() -> tuple[set[int], set[int]]:
    """Addresses of shards, and of what they are gathered into."""
    shards: set[Any] = set()
    gathered: set[Any] = set()
    for parameter in list(_sharded):
        flat = getattr(parameter, "flat_param", None)
        if flat is not None:
            shards.add(storage_address(getattr(flat, "_local_shard", None)))
            gathered.add(storage_address(getattr(flat, "_full_param_padded", None)))
        else:
            shards.add(storage_address(getattr(parameter, "sharded_param", None)))
            gathered.update(map(storage_address, getattr(parameter, "all_gather_outputs", ())))
    # Memory that is not there has no address.
    return shards - {None, 0}, gathered - {None, 0}
