"""Looks for who holds the tensors on devices: references of Python, gradients, autograd's graphs, native code.

Tensors are read through the functions of PyTorch's own base type with the overrides of subclasses turned off; tensors
that only stand for others (subclasses with a dispatch of their own) are left to what is inside them.
"""

from __future__ import annotations

import atexit
import functools
import time
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import torch

from .. import _internal
from .._holders.natively import static_attribute
from .._holders.paths import NATIVE_CODE, Paths, shortened
from .._holders.schedule import looks
from .._holders.walk import Undisturbed, find

#: Holders recorded per look, those of the largest tensors.
MOST_HOLDERS = 5000
#: Of tensors that are held in the same way, this many have their graph looked at.
GRAPHS_PER_PATH = 8
#: Blocks recorded per look that no Python object refers to.
MOST_NATIVE_BLOCKS = 1000

NO_OBJECT = f"{NATIVE_CODE}: no Python object refers to it"
WAITING = "the caching allocator: freed, but a stream that used it has not finished"
GRAPH = "autograd graph"

_Base = torch._C.TensorBase
_device = _Base.device.__get__
_grad_fn = _Base.grad_fn.__get__
_is_leaf = _Base.is_leaf.__get__
_grad = _Base.grad.__get__
_version = _Base._version.__get__
_is_lazy_copy: Callable[[Any], bool] = getattr(torch._C, "_is_cow_tensor", lambda tensor: False)
_no_overrides = torch._C.DisableTorchFunction
#: How many nodes of a graph are looked at between two looks at the clock.
_CLOCK_INTERVAL = 64


class _Block(NamedTuple):
    address: int
    size_bytes: int


def follow(is_wanted: bool) -> None:
    """Look for holders from now on, or no longer."""
    global _is_at_exit
    looks.follow(look if is_wanted else None)
    if is_wanted and not _is_at_exit:
        _is_at_exit = True
        atexit.register(looks.exits)


_is_at_exit = False


def look(deadline: float) -> int:
    """Record who holds tensors on devices, until a time of ``time.thread_time``; tells how many holders were found."""
    with Undisturbed(), _no_overrides():
        return _Look(deadline).record()


class _Look:
    """One look. Holds references to what it looks at; gone with it."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._plain_types: dict[int, bool] = {}
        self._holders: dict[int, tuple[int, str]] = {}
        self._is_complete = True

    def record(self) -> int:
        # Optimizers have the weights, too, but a weight is better known by its module.
        found = find(torch.Tensor, self._deadline - time.thread_time(), late=(torch.optim.Optimizer,))
        self._is_complete = found.is_complete
        late: list[int] = []
        graphs: dict[str, list[Any]] = {}
        for index in found.targets:
            if found.paths.is_held_natively(index):
                late.append(index)
                continue
            tensor = found.paths.thing(index)
            path = self._add_tensor(tensor, functools.partial(found.paths.text, index))
            if self._has_graph(tensor):
                graphs.setdefault(path or found.paths.text(index), []).append(tensor)
        self._add_graphs(graphs)
        for index in late:
            tensor = found.paths.thing(index)
            self._add_tensor(tensor, functools.partial(self._native_text, found.paths, index))
        self._add_blocks()
        holders = sorted(self._holders.items(), key=lambda item: item[1][0], reverse=True)[:MOST_HOLDERS]
        for address, (_, path) in holders:
            _internal.holder(address, _internal.intern(path))
        return len(holders)

    @staticmethod
    def _native_text(paths: Paths, index: int) -> str:
        text = paths.text(index)
        return NO_OBJECT if text == NATIVE_CODE else text

    # Tensors.

    def _is_plain(self, thing: Any) -> bool:
        """Whether an object is a tensor whose memory is its own."""
        kind = type(thing)
        known = self._plain_types.get(id(kind))
        if known is None:
            known = type.__subclasscheck__(torch.Tensor, kind) and static_attribute(
                kind, "__torch_dispatch__"
            ) is static_attribute(torch.Tensor, "__torch_dispatch__")
            self._plain_types[id(kind)] = known
        return known

    def _block(self, tensor: Any) -> _Block | None:
        """Where a tensor has its memory on a device, and how much it needs."""
        try:
            if not self._is_plain(tensor) or _device(tensor).type in ("cpu", "meta") or _is_lazy_copy(tensor):
                return None
            element = _Base.element_size(tensor)
            address = _Base.data_ptr(tensor)
            if address == 0:
                return None
            return _Block(address - _Base.storage_offset(tensor) * element, _Base.numel(tensor) * element)
        except (RuntimeError, ValueError, NotImplementedError):
            # Tensors without storage, or of another layout.
            return None

    def _add_tensor(self, tensor: Any, text: Callable[[], str]) -> str | None:
        """Note who holds a tensor, unless somebody nearer to a root is known; gives the text if it was noted."""
        block = self._block(tensor)
        if block is None:
            return None
        path = None
        if block.address not in self._holders:
            path = text()
            self._holders[block.address] = (block.size_bytes, path)
        gradient = self._gradient(tensor)
        if gradient is not None:
            self._add_tensor(gradient, lambda: shortened(f"{path or text()} > gradient"))
        return path

    @staticmethod
    def _gradient(tensor: Any) -> Any:
        try:
            return _grad(tensor) if _is_leaf(tensor) else None
        except RuntimeError:
            return None

    # Graphs.

    def _has_graph(self, tensor: Any) -> bool:
        try:
            # Asking for the graph of a view that was written to makes a new one.
            return self._is_plain(tensor) and not _is_leaf(tensor) and not (_version(tensor) and tensor._is_view())
        except RuntimeError:
            return False

    def _add_graphs(self, graphs: dict[str, list[Any]]) -> None:
        """What autograd keeps for backward passes of tensors that somebody holds."""
        nodes = _Nodes()
        for path, tensors in graphs.items():
            stride = max(1, len(tensors) // GRAPHS_PER_PATH)
            self._is_complete &= stride == 1
            for tensor in reversed(tensors[::-stride]):
                for count, saved in enumerate(nodes.saved_for(_grad_fn(tensor))):
                    if saved is not None:
                        self._add_saved(saved, path)
                    if count % _CLOCK_INTERVAL == 0 and time.thread_time() >= self._deadline:
                        self._is_complete = False
                        return

    def _add_saved(self, saved: Any, path: str) -> None:
        block = self._block(saved)
        if block is not None and block.address not in self._holders:
            self._holders[block.address] = (block.size_bytes, shortened(f"{path} > {GRAPH}"))

    # Blocks.

    def _add_blocks(self) -> None:
        """Blocks of the pool that no tensor explains."""
        if not self._is_complete or time.thread_time() >= self._deadline:
            return
        npu = getattr(torch, "npu", None)
        if npu is None or not npu.is_initialized():
            return
        rest = [
            (block["size"], block["address"], block["state"])
            for segment in npu.memory_snapshot()
            for block in segment["blocks"]
            if block["state"].startswith("active") and block["address"] not in self._holders
        ]
        for size_bytes, address, state in sorted(rest, reverse=True)[:MOST_NATIVE_BLOCKS]:
            self._holders[address] = (size_bytes, NO_OBJECT if state == "active_allocated" else WAITING)


class _Nodes:
    """Nodes of graphs, each looked at once."""

    def __init__(self) -> None:
        # Objects that stand for nodes come and go; these stay while they are told apart by identity.
        self._seen: dict[int, Any] = {}
        self._getters: dict[int, list[Any]] = {}
        self._next: dict[int, Any] = {}
        kind = getattr(torch._C._autograd, "SavedTensor", None)
        #: What was saved, without the hooks that unpack it.
        self._data = None if kind is None else static_attribute(kind, "data")

    def saved_for(self, first: Any) -> Iterator[Any]:
        """Tensors saved by a node and all nodes behind it; nothing for nodes without any."""
        waiting = [first]
        for node in waiting:
            if node is None or id(node) in self._seen:
                continue
            self._seen[id(node)] = node
            yield None
            yield from self._saved_by(node)
            if id(type(node)) not in self._next:
                self._next[id(type(node))] = static_attribute(type(node), "next_functions")
            successors = self._next[id(type(node))]
            if successors is not None:
                waiting.extend(entry[0] for entry in successors.__get__(node))

    def _saved_by(self, node: Any) -> Iterator[Any]:
        for getter in self._getters_of(type(node)):
            try:
                raw = getter.__get__(node)
            except RuntimeError:
                # Given back by a backward pass.
                continue
            for one in raw if type(raw) is tuple or type(raw) is list else (raw,):
                if one is not None and self._data is not None:
                    try:
                        yield self._data.__get__(one)
                    except (RuntimeError, TypeError):
                        continue

    def _getters_of(self, kind: type) -> list[Any]:
        getters = self._getters.get(id(kind))
        if getters is None:
            names = {
                name
                for base in type.__dict__["__mro__"].__get__(kind)
                for name in type.__dict__["__dict__"].__get__(base)
                if type(name) is str and name.startswith("_raw_saved_")
            }
            getters = self._getters[id(kind)] = [static_attribute(kind, name) for name in sorted(names)]
        return getters
