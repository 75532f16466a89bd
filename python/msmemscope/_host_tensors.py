"""Puts the wrappers of PyTorch's host allocator in place."""

from __future__ import annotations

from . import _internal, _messages
from .exceptions import RecorderError

_is_seen = False


def watch(*, is_complete: bool) -> None:
    """See CPU tensors from now on, also in libraries loaded since the last time.

    :param is_complete: whether PyTorch has been imported to its end, so that what is missing stays missing.
    """
    global _is_seen
    try:
        if _internal.watch_host_tensors() > 0:
            _is_seen = True
        reason = "this PyTorch keeps its allocator to itself"
    except RecorderError as error:
        reason = str(error)
    if is_complete and not _is_seen:
        _messages.warn_once(f"CPU tensors are not seen: {reason}")
