"""Which rank this process is, where only ``init_process_group`` was told: no launcher, no variables.

Asked when a loop goes around, because groups are made at any time and taken down before the end. What PyTorch exports
stays as it is: nothing is replaced.
"""

from __future__ import annotations

import sys

from .. import _internal
from .harmless import harmless

_is_known = False


def learn() -> None:
    """Write down the rank, once it is known."""
    if not _is_known:
        _ask()


@harmless("the rank of this process")
def _ask() -> None:
    global _is_known
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        _is_known = True
        _internal.place(distributed.get_rank(), distributed.get_world_size())
