"""Memory blocks that are watched around operators."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

__all__ = ["Watcher", "watcher"]

LONGEST_NAME_BYTES = 64


class WatchedBlock(NamedTuple):
    """A block whose contents are looked at before and after each operator."""

    name: str
    address: int
    length: int
    #: How often it is looked at; None means without limit.
    dump_nums: int | None


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be positive, not {value}")
    return value


def _place(function: str, target: tuple[Any, ...], length: int | None) -> tuple[int, int]:
    """Address and length of what the user named."""
    if len(target) != 1:
        raise TypeError(f"{function}() takes one positional argument, a tensor or an address; {len(target)} were given")
    if length is not None:
        return _positive(target[0], "the address of a block with a length"), _positive(length, "length")
    tensor = target[0]
    if not callable(getattr(tensor, "data_ptr", None)) or not hasattr(tensor, "nbytes"):
        raise TypeError("Expected a tensor as args.")
    return int(tensor.data_ptr()), int(tensor.nbytes)


class Watcher:
    """Chooses the blocks to watch.

    .. code-block:: python

        msmemscope.watcher.watch(tensor, name="test", dump_nums=2)
        msmemscope.watcher.watch(tensor.data_ptr(), length=1000, name="test")
        ...
        msmemscope.watcher.remove(tensor)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, WatchedBlock] = {}

    def watch(
        self, *target: Any, name: str | None = None, length: int | None = None, dump_nums: int | None = None
    ) -> None:
        """Watch a tensor, or ``length`` bytes at an address.

        :param name: names the block in the results, at most 64 bytes.
        :param dump_nums: how often it is looked at; without limit if not given.
        """
        if name is None:
            raise TypeError("watch() needs a name")
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {type(name).__name__}")
        if not 0 < len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME_BYTES:
            raise ValueError(f"name must have 1 to {LONGEST_NAME_BYTES} bytes")
        if dump_nums is not None:
            _positive(dump_nums, "dump_nums")
        address, size = _place("watch", target, length)
        with self._lock:
            self._blocks[address] = WatchedBlock(name, address, size, dump_nums)

    def remove(self, *target: Any, length: int | None = None) -> None:
        """Watch it no longer. A block that is not watched is ignored."""
        address, _ = _place("remove", target, length)
        with self._lock:
            self._blocks.pop(address, None)

    def blocks(self) -> tuple[WatchedBlock, ...]:
        """What is watched now."""
        with self._lock:
            return tuple(self._blocks.values())


watcher = Watcher()
