"""What is learned from PyTorch itself. Imported only after ``torch`` has been."""

from __future__ import annotations

from .. import _internal, _messages
from . import autograd, optimizer, parameters, watching
from . import launches as observer
from .operators import operators

_sees_host_tensors = False


def follow(*, launches: bool, accesses: bool, owners: bool, host: bool, watch: bool) -> None:
    """Bring all collectors in line with what is wanted."""
    if host:
        _watch_host_tensors()
    is_observed = observer.follow(launches)
    operators.follow(
        launches=launches and not is_observed, accesses=accesses, host=host, watching=watching.follow(watch)
    )
    autograd.follow(launches or accesses or owners)
    optimizer.follow(owners)
    parameters.follow(owners)


def _watch_host_tensors() -> None:
    """Put the allocator's wrappers in place, also in libraries loaded since the last time."""
    global _sees_host_tensors
    if _internal.watch_host_tensors() > 0:
        _sees_host_tensors = True
    elif not _sees_host_tensors:
        _messages.warn_once("CPU tensors are not seen: this PyTorch keeps its allocator to itself")
