"""Bridge to the sanitizer of torch_npu, which finds accesses of different streams that nothing synchronises.

It sees operators of PyTorch. Kernels of others are told to it by marks of ``torch.npu.mstx``::

    sanitizer-op: name=my_kernel;read=x:0x12c041200000:4096;write=y:20616937226752:4096

with ``alias:address:size`` for every piece of memory. They are part of the recording like any other mark.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from . import _messages, _mstx
from .exceptions import FrameworkError

__all__ = ["enable_npu_sanitizer"]

PREFIX = "sanitizer-op:"
_LONGEST_ALIAS_BYTES = 31


class Launch(NamedTuple):
    """What a mark says about a kernel."""

    name: str
    reads: dict[int, list[str]]
    writes: dict[int, list[str]]


def enable_npu_sanitizer() -> None:
    """Switch on the stream sanitizer of torch_npu, which checks accesses for missing synchronisation.

    Kernels that are not PyTorch's are checked as well if they are told by marks with the text
    ``sanitizer-op: name=<kernel>;read=<alias:address:size>,...;write=<alias:address:size>,...``; what is found is
    printed to stderr.

    :raises msmemscope.exceptions.FrameworkError: if this torch_npu has none.
    """
    try:
        from torch_npu.npu import _sanitizer  # type: ignore[import-not-found]
    except ImportError as error:
        raise FrameworkError(f"the sanitizer needs torch_npu: {error}") from None
    _sanitizer.enable_npu_sanitizer()
    _mstx.observe_marks(PREFIX, _launched)
    _mstx.follow()


def read_launch(message: str) -> Launch | None:
    """What a mark says, or nothing if it names no kernel. Pieces of memory that cannot be read are left out.

    >>> read_launch("sanitizer-op: name=add;read=x:0x10:4,broken;write=y:32:4")
    Launch(name='add', reads={16: ['x']}, writes={32: ['y']})
    >>> read_launch("sanitizer-op: read=x:16:4") is None
    True
    """
    fields = dict(part.strip().partition("=")[::2] for part in message[len(PREFIX) :].split(";"))
    if not fields.get("name"):
        _messages.warn_once(f"a mark for the sanitizer names no kernel: {message!r}")
        return None
    return Launch(fields["name"], _memory(fields.get("read", "")), _memory(fields.get("write", "")))


def _memory(text: str) -> dict[int, list[str]]:
    """Aliases by address."""
    found: dict[int, list[str]] = {}
    for item in filter(None, text.split(",")):
        parts = item.split(":")
        try:
            alias, address, size = parts
            number = int(address, 0)
            int(size, 0)
        except ValueError:
            _messages.warn_once(f"a mark for the sanitizer has memory that is not alias:address:size: {item!r}")
            continue
        found.setdefault(number, []).append(alias.encode()[:_LONGEST_ALIAS_BYTES].decode(errors="ignore"))
    return found


def _launched(message: str) -> None:
    """Tell the sanitizer, and people what it finds.

    An exception would not reach the job: torch_npu's mark keeps it to itself.
    """
    launch = read_launch(message)
    sanitizer = getattr(sys.modules.get("torch_npu.npu._sanitizer"), "npu_sanitizer", None)
    handler: Any = getattr(sanitizer, "event_handler", None)
    if launch is None or not hasattr(handler, "_handle_kernel_launch"):
        return
    import torch

    stream = torch.npu.current_stream().npu_stream  # type: ignore[attr-defined]
    written = set(launch.writes)
    aliases = {
        address: [*launch.reads.get(address, []), *launch.writes.get(address, [])]
        for address in (*launch.reads, *launch.writes)
    }
    errors = handler._handle_kernel_launch(stream, set(launch.reads) - written, written, set(), launch.name, aliases)
    for error in errors or ():
        print(error, file=sys.stderr)
