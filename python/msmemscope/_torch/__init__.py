"""What is learned from PyTorch itself. Imported only after ``torch`` has been."""

from __future__ import annotations

from .. import _internal, _messages
from .._snapshot import observe_out_of_memory
from . import autograd, optimizer
from .operators import operators


def follow(*, operators_wanted: bool, accesses_wanted: bool, decompose: bool, host: bool) -> None:
    """Bring all collectors in line with what is wanted."""
    operators.follow(launches=operators_wanted, accesses=accesses_wanted, host=host)
    autograd.follow(operators_wanted or accesses_wanted or decompose)
    optimizer.follow(decompose)
    observe_out_of_memory()
    if host:
        _watch_host_tensors()


def _watch_host_tensors() -> None:
    if _internal.watch_host_tensors() == 0 and not _is_watching_host:
        _messages.warn_once("CPU tensors are not seen: this PyTorch keeps its allocator to itself")
    else:
        _is_watching_host.append(True)


_is_watching_host: list = []
