"""Memory blocks that are looked at before and after each of PyTorch's operators."""

from __future__ import annotations

import atexit
from typing import Any

import torch

from .. import _internal, _messages
from .._watcher import watcher

#: Layouts in which a tensor's memory is what its shape and strides say.
_PLAIN_LAYOUTS = frozenset({"ND", "NCHW", "NHWC", "NCDHW", "NDHWC", "0", "1", "2", "27", "30"})

#: Stands for a call before which nothing was looked at.
NOT_LOOKED_AT = (0, 0)


def _npu() -> Any:
    return getattr(torch, "npu", None)


def _synchronise(device: int | None) -> None:
    """Waits until the device has nothing left to do; torch_npu's own queue of launches is emptied first."""
    npu = _npu()
    if npu is not None and npu.is_initialized():
        npu.synchronize(device)


def _synchronise_stream(device: int | None) -> None:
    """Waits until the thread's current stream has nothing left to do."""
    npu = _npu()
    if npu is not None and npu.is_initialized():
        npu.current_stream(device).synchronize()


def _is_capturing() -> bool:
    """Whether work is only noted for a graph: waiting for the device would end that with an error."""
    is_capturing = getattr(_npu(), "is_current_stream_capturing", None)
    return bool(is_capturing and is_capturing())


def _has_own_layout(tensor: Any) -> bool:
    """Whether the tensor's memory is arranged in a way that its shape does not tell."""
    import torch_npu  # there, since the tensor is on an NPU

    layout = torch_npu.get_npu_format(tensor)
    return str(getattr(layout, "name", layout)).rpartition(".")[2] not in _PLAIN_LAYOUTS


def _alive_blocks() -> list[tuple[int, int, int]]:
    """Device, address and size of everything PyTorch's pool has handed out so far."""
    npu = _npu()
    if npu is None or not npu.is_initialized():
        return []
    return [
        (segment["device"], block["address"], block["size"])
        for segment in npu.memory_snapshot()
        for block in segment["blocks"]
        if block["state"].startswith("active")
    ]


class Watching:
    """The blocks that are watched while operators run."""

    def __init__(self) -> None:
        self._native = _internal.BlockWatch(_synchronise, _synchronise_stream, _is_capturing, _has_own_layout)
        self._note_alive_blocks()
        if not self._native.is_blocking():
            _messages.warn_once(
                "ASCEND_LAUNCH_BLOCKING is not 1: the device is waited for before and after each operator, but what "
                "other threads launch meanwhile may be taken for the work of the operator; set it to 1 before relying "
                "on the names of operators"
            )
        atexit.register(self.record_coverage)

    def _note_alive_blocks(self) -> None:
        try:
            self._native.note_blocks(_alive_blocks())
        except Exception as error:  # noqa: BLE001 - a foreign module; blocks allocated from now on are known
            _messages.warn_once(f"blocks that are alive already cannot be listed: {error}")

    def before(self, operator: Any, args: Any, kwargs: Any) -> tuple[int, int]:
        """An operator is about to run; gives what :meth:`after` needs."""
        try:
            call, said = self._native.before(operator, args, kwargs)
        except Exception as error:  # noqa: BLE001 - the operator must run whatever cannot be watched
            _messages.warn_once(f"memory cannot be looked at before an operator: {error}")
            return NOT_LOOKED_AT
        _tell(said)
        return call

    def after(self, operator: Any, call: tuple[int, int], result: Any) -> None:
        """The operator has run."""
        try:
            _tell(self._native.after(operator, call, result))
        except Exception as error:  # noqa: BLE001 - as above
            _messages.warn_once(f"memory cannot be looked at after an operator: {error}")

    def add(self, name: str, place: tuple[int, int], device: int | None, dumps: int | None, reference: Any) -> None:
        """Watch a block from now on.

        :raises msmemscope.exceptions.AddressError: if there is only an address, and no block of the pool at it.
        """
        if reference is None:
            self._note_alive_blocks()  # of a pool that tells us nothing
        _tell(self._native.add(name, place, device, dumps, reference))

    def remove(self, address: int) -> None:
        """Watch it no longer."""
        self._native.remove(address)

    def addresses(self) -> list[int]:
        """Where blocks are watched that somebody named."""
        return self._native.addresses()

    def follow_level(self) -> None:
        """Look around operators, kernels or both, as the settings say."""
        self._native.follow_level()

    def forget_settings(self) -> None:
        """Watch only what somebody named."""
        self._native.forget_settings()

    def record_coverage(self) -> None:
        """Take down how much was looked at so far."""
        _tell(self._native.record_coverage())


def _tell(texts: list[str]) -> None:
    for text in texts:
        _messages.warning(text)


_watching: Watching | None = None


def follow(wanted: bool) -> Watching | None:
    """What looks at blocks, if that is wanted."""
    global _watching
    if wanted and _watching is None:
        _watching = Watching()
    if _watching is not None and not _internal.wants_watch():
        _watching.forget_settings()
    if _watching is not None:
        _watching.follow_level()
    watcher.follow(_watching if wanted else None)
    return _watching if wanted else None
