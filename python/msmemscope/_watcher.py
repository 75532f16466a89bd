"""Memory blocks that are watched around operators."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple, Protocol

from . import _internal, _messages
from .exceptions import AddressError

__all__ = ["Watcher", "watcher"]

LONGEST_NAME_BYTES = 64

_END_OF_MEMORY = 1 << 64


class WatchedBlock(NamedTuple):
    """A block whose contents are looked at before and after each operator."""

    name: str
    address: int
    length: int
    #: How often it is looked at; None means without limit.
    dump_nums: int | None


class _Place(NamedTuple):
    """Where a block is."""

    address: int
    length: int
    #: Number of its device, if the tensor tells it.
    device: int | None
    #: Gives the tensor as long as there is one.
    reference: Any | None


class _Watching(Protocol):
    """What looks at blocks while operators run."""

    def add(self, name: str, place: tuple[int, int], device: int | None, dumps: int | None, reference: Any) -> None: ...
    def remove(self, address: int) -> None: ...
    def addresses(self) -> list[int]: ...
    def record_coverage(self) -> None: ...


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be positive, not {value}")
    return value


def _place(function: str, target: tuple[Any, ...], length: int | None) -> _Place:
    """Where what the user named is."""
    if len(target) != 1:
        raise TypeError(f"{function}() takes one positional argument, a tensor or an address; {len(target)} were given")
    if length is not None:
        address = _positive(target[0], "the address of a block with a length")
        if address + _positive(length, "length") > _END_OF_MEMORY:
            raise ValueError(f"{length} bytes at {address:#x} reach beyond all addresses")
        return _Place(address, length, None, None)
    tensor = target[0]
    if not callable(getattr(tensor, "data_ptr", None)) or not hasattr(tensor, "nbytes"):
        raise TypeError("Expected a tensor as args.")
    address, size = int(tensor.data_ptr()), int(tensor.nbytes)
    device = getattr(tensor, "device", None)
    try:
        reference = weakref.ref(tensor)
    except TypeError:
        reference = None
    return _Place(address, size, getattr(device, "index", None), reference)


def _check_watchable(target: Any, place: _Place) -> None:
    """Raises for tensors that have nothing to look at."""
    kind = getattr(getattr(target, "device", None), "type", None)
    if kind is not None and kind not in ("npu", "privateuseone"):
        raise ValueError(f"only memory of NPUs can be watched, but the tensor is on {kind}")
    if place.address == 0 or place.length == 0:
        raise ValueError("the tensor has no memory that could be watched")


class Watcher:
    """Chooses the blocks to watch.

    Their contents are looked at before and after each operator while recording goes on; the report at
    the end names the operators in which they changed without being declared outputs.

    .. code-block:: python

        msmemscope.watcher.watch(tensor, name="test", dump_nums=2)
        msmemscope.watcher.watch(tensor.data_ptr(), length=1000, name="test")
        ...
        msmemscope.watcher.remove(tensor)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, tuple[WatchedBlock, _Place]] = {}
        self._watching: _Watching | None = None
        self._is_beginning = False

    def watch(
        self, *target: Any, name: str | None = None, length: int | None = None, dump_nums: int | None = None
    ) -> None:
        """Watch a tensor, or ``length`` bytes at an address.

        Watching ends with :meth:`remove`, and with a message when the memory is freed or the tensor
        gets other memory. Tensors of all kinds are taken, such as parameters.

        :param name: names the block in the results, at most 64 bytes.
        An address must lie in a live block of PyTorch's pool; a length that reaches beyond the block is cut,
        with a message. Before ``start()`` that cannot be checked: ``start()`` then tells what is not watched.

        :param dump_nums: how often it is looked at, before and after counting separately; without limit
            if not given, or -1.
        :raises TypeError: if an argument has the wrong type.
        :raises ValueError: if it has a value that is not allowed, or the tensor is not on an NPU.
        :raises msmemscope.exceptions.AddressError: if no block is alive at the address.
        """
        if name is None:
            raise TypeError("watch() needs a name")
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {type(name).__name__}")
        if not 0 < len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME_BYTES:
            raise ValueError(f"name must have 1 to {LONGEST_NAME_BYTES} bytes")
        if dump_nums == -1:
            dump_nums = None
        if dump_nums is not None:
            _positive(dump_nums, "dump_nums")
        place = _place("watch", target, length)
        _check_watchable(target[0], place)
        block = WatchedBlock(name, place.address, place.length, dump_nums)
        if self._watching is None:
            self._begin()
        if self._watching is not None:
            self._hand_over(self._watching, block, place)
        with self._lock:
            self._blocks[place.address] = (block, place)

    def remove(self, *target: Any, length: int | None = None) -> None:
        """Watch it no longer. A block that is not watched is ignored."""
        address = _place("remove", target, length).address
        with self._lock:
            self._blocks.pop(address, None)
        if self._watching is not None:
            self._watching.remove(address)

    def blocks(self) -> tuple[WatchedBlock, ...]:
        """What is watched now."""
        alive = None if self._watching is None else set(self._watching.addresses())
        with self._lock:
            if alive is not None:
                self._blocks = {address: entry for address, entry in self._blocks.items() if address in alive}
            return tuple(block for block, _ in self._blocks.values())

    def follow(self, watching: _Watching | None) -> None:
        """Operators are seen from now on, or no longer. Not for users."""
        if watching is self._watching:
            return
        self._watching = watching
        if watching is not None:
            with self._lock:
                entries = list(self._blocks.values())
            for block, place in entries:
                try:
                    self._hand_over(watching, block, place)
                except AddressError as error:
                    _messages.warning(str(error))

    def record_coverage(self) -> None:
        """Take down how much an automatic hunt has covered. Not for users."""
        if self._watching is not None:
            self._watching.record_coverage()

    @staticmethod
    def _hand_over(watching: _Watching, block: WatchedBlock, place: _Place) -> None:
        watching.add(block.name, (block.address, block.length), place.device, block.dump_nums, place.reference)

    def is_wanted(self) -> bool:
        """Whether operators have to be followed. Not for users."""
        return self._is_beginning or bool(self.blocks())

    def _begin(self) -> None:
        """The first block: operators have to be followed from now on."""
        from . import _collectors

        if _internal.state() != _internal.ON:
            _messages.warn_once(f"blocks are watched while recording goes on: call {_messages.tool_name()}.start()")
            return
        self._is_beginning = True
        try:
            _collectors.synchronise()
        finally:
            self._is_beginning = False


watcher = Watcher()
