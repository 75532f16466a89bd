"""What is learned from PyTorch itself. Imported only after ``torch`` has been."""

from __future__ import annotations

from .. import _host_tensors
from . import autograd, holders, loops, modules, optimizer, parameters, watching
from . import launches as observer
from .operators import operators


def follow(*, launches: bool, accesses: bool, owners: bool, host: bool, watch: bool, looks: bool) -> None:
    """Bring all collectors in line with what is wanted."""
    if host:
        _host_tensors.watch(is_complete=True)
    is_observed = observer.follow(launches)
    operators.follow(
        launches=launches and not is_observed, accesses=accesses, host=host, watching=watching.follow(watch)
    )
    is_followed = launches or accesses or owners
    autograd.follow(is_followed)
    loops.follow(is_followed)
    modules.follow(is_followed)
    optimizer.follow(owners)
    parameters.follow(owners)
    holders.follow(looks)
