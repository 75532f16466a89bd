"""What there is to say about a framework."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any, Callable, NamedTuple

from ..describe import COMPONENT, DETAIL_1, PROCESS

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
    #: A step of the framework's own loop ends with the function.
    ends_step: bool = False

    @property
    def key(self) -> tuple[str, str | None, str]:
        """What is hooked, whatever for."""
        return self.module, self.class_name, self.function


#: version key -> component -> kind of hook -> functions
Versions = dict[str, dict[str, dict[str, tuple[Target, ...]]]]


class Framework(NamedTuple):
    """A framework and what is known of it."""

    name: str
    #: The module that is imported with it, whatever of it is used.
    module: str
    #: Its name among installed packages.
    distribution: str
    versions: Versions

    def version(self) -> str | None:
        """The version that is installed, if it says so."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return getattr(sys.modules.get(self.module), "__version__", None)


def labels(component: str, process: str | None = None, detail: str | None = None) -> Labels:
    """Labels on the levels of an owner."""
    levels = ((component, COMPONENT), (process, PROCESS), (detail, DETAIL_1))
    return tuple((label, level) for label, level in levels if label is not None)
