"""Counters of device memory at one moment."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Union

from . import _internal, _messages, _recorder
from ._holders.frames import calling_line
from ._holders.schedule import looks
from ._stepwise import Function, decorate
from ._texts import LONGEST_BYTES, checked_text
from .exceptions import FrameworkError

__all__ = ["TakeSnapshot", "take_snapshot"]

DeviceMask = Union[None, int, Sequence[int]]

DEFAULT_NAME = "Memory Snapshot"
OOM_NAME = "OOM_Snapshot"
_START, _END = " Start", " End"


class _Counters(NamedTuple):
    reserved: int
    max_reserved: int
    allocated: int
    max_allocated: int
    total: int
    free: int


class _TorchNpu:
    """Counters of PyTorch's caching allocator."""

    def __init__(self, torch_npu: Any) -> None:
        self._npu = torch_npu.npu

    def device_count(self) -> int:
        return int(self._npu.device_count())

    def current_device(self) -> int:
        return int(self._npu.current_device())

    def read(self, device: int) -> _Counters:
        npu = self._npu
        free, total = npu.mem_get_info(device)
        return _Counters(
            reserved=npu.memory_reserved(device),
            max_reserved=npu.max_memory_reserved(device),
            allocated=npu.memory_allocated(device),
            max_allocated=npu.max_memory_allocated(device),
            total=total,
            free=free,
        )


class _Runtime:
    """Free and total memory from the runtime, for frameworks that have no counters of their own."""

    _DEVICE_MEMORY = 1

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise FrameworkError(f"{name} failed with {result}")

    def device_count(self) -> int:
        count = ctypes.c_uint32()
        self._call("aclrtGetDeviceCount", ctypes.byref(count))
        return count.value

    def current_device(self) -> int:
        return self._device_of_thread()

    def _device_of_thread(self) -> int:
        device = ctypes.c_int32()
        self._call("aclrtGetDevice", ctypes.byref(device))
        return device.value

    def read(self, device: int) -> _Counters:
        try:
            before: int | None = self._device_of_thread()
        except FrameworkError:
            before = None
        if before != device:
            self._call("aclrtSetDevice", device)
        try:
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self._call("aclrtGetMemInfo", self._DEVICE_MEMORY, ctypes.byref(free), ctypes.byref(total))
        finally:
            if before is not None and before != device:
                self._call("aclrtSetDevice", before)
        return _Counters(0, 0, 0, 0, total.value, free.value)


class _MindSpore(_Runtime):
    """Counters of MindSpore's pool, which a process has on one device."""

    def __init__(self, mindspore: Any, library: ctypes.CDLL) -> None:
        super().__init__(library)
        self._runtime = mindspore.runtime
        self._device = int(mindspore.get_context("device_id"))

    def current_device(self) -> int:
        return self._device

    def read(self, device: int) -> _Counters:
        counters = super().read(device)
        if device != self._device:
            return counters
        runtime = self._runtime
        return counters._replace(
            reserved=runtime.memory_reserved(),
            max_reserved=runtime.max_memory_reserved(),
            allocated=runtime.memory_allocated(),
            max_allocated=runtime.max_memory_allocated(),
        )


def _provider() -> Any:
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is not None:
        return _TorchNpu(torch_npu)
    library = _loaded_runtime()
    mindspore = sys.modules.get("mindspore")
    if library is not None and hasattr(mindspore, "runtime"):
        return _MindSpore(mindspore, library)
    if library is not None:
        return _Runtime(library)
    try:
        import torch_npu  # type: ignore[import-not-found,no-redef]
    except Exception as error:  # noqa: BLE001 - whatever keeps it from being imported
        raise FrameworkError(
            f"a snapshot needs torch_npu or another framework that has loaded CANN; torch_npu: {error}"
        ) from None
    return _TorchNpu(torch_npu)


def _loaded_runtime() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libascendcl.so", mode=_RTLD_NOLOAD | ctypes.RTLD_LOCAL)
    except OSError:
        return None


_RTLD_NOLOAD = 4


def _devices(mask: DeviceMask, count: int) -> list[int]:
    if mask is None:
        return list(range(count))
    devices = list(dict.fromkeys(_chosen(mask)))
    for device in devices:
        if device >= count:
            raise ValueError(f"device_mask: there is no device {device}, only 0 to {count - 1}")
    return devices


def _chosen(mask: Any) -> Iterable[Any]:
    return mask if isinstance(mask, (list, tuple)) else [mask]


def _check_mask(mask: Any) -> None:
    """Refuses what cannot be a mask, before any framework is asked."""
    if mask is None:
        return
    for device in _chosen(mask):
        if isinstance(device, bool) or not isinstance(device, int):
            raise TypeError(
                f"device_mask must be None, an integer or a list or tuple of integers, not {type(device).__name__}"
            )
        if device < 0:
            raise ValueError(f"device_mask: there is no device {device}")


def checked_name(name: Any, added_bytes: int = 0) -> str:
    """The name of a snapshot, if it is one and leaves room for what is added to it."""
    return checked_text("name", name, LONGEST_BYTES - added_bytes, may_be_empty=True)


def take_snapshot(device_mask: DeviceMask = None, name: str = DEFAULT_NAME) -> None:
    """Record how much memory each device has and how much of it the framework holds.

    Works independently of :func:`msmemscope.start` and :func:`msmemscope.stop`.

    .. code-block:: python

        msmemscope.take_snapshot()                      # all devices
        msmemscope.take_snapshot(device_mask=0)
        msmemscope.take_snapshot(device_mask=[0, 1], name="after warm-up")

    :param device_mask: a device, a list or tuple of devices; None means all devices. Asking for a
        device makes the framework open it, as its own functions do; name your devices if the others
        belong to other processes.
    :param name: shown in the results, at most 128 bytes.
    :raises msmemscope.exceptions.FrameworkError: if there is no framework that knows the devices.
    """
    _check_mask(device_mask)
    name = checked_name(name)
    _recorder.require()
    _recorder.patch()
    provider = _provider()
    devices = _devices(device_mask, provider.device_count())
    _recorder.settle()
    for device in devices:
        _internal.snapshot(device, name, list(provider.read(device)))


class TakeSnapshot:
    """Snapshots before and after a block of code or a function.

    .. code-block:: python

        with msmemscope.TakeSnapshot(device_mask=0, name="load"):
            load()

    They are named ``<name> Start`` and ``<name> End``; the second is taken also if the code raises.
    Of a decorated coroutine or generator they are taken before its first and after its last step.

    :param device_mask: as for :func:`take_snapshot`.
    :param name: at most 122 bytes.
    """

    def __init__(self, device_mask: DeviceMask = None, name: str = DEFAULT_NAME) -> None:
        _check_mask(device_mask)
        self.device_mask = device_mask
        self.name = checked_name(name, len(_START))

    def _enter(self) -> None:
        take_snapshot(self.device_mask, self.name + _START)

    def _leave(self) -> None:
        take_snapshot(self.device_mask, self.name + _END)

    def __enter__(self) -> TakeSnapshot:
        self._enter()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._leave()

    def __call__(self, function: Function) -> Function:
        return decorate(function, self._enter, self._leave, is_stepwise=False)


def snapshot_current_device(name: str) -> None:
    """A snapshot on behalf of the tool itself: never raises."""
    try:
        take_snapshot(_provider().current_device(), name[:LONGEST_BYTES])
    except Exception as error:  # noqa: BLE001 - the job must go on
        _messages.warn_once(f"no snapshot: {error}")


_is_observing = False


def observe_out_of_memory() -> None:
    """Take snapshots when PyTorch runs out of device memory: at once, and after it has handled it."""
    global _is_observing
    torch_npu = sys.modules.get("torch_npu")
    attach = getattr(getattr(torch_npu, "_C", None), "_npu_attach_out_of_memory_observer", None)
    if not _is_observing and attach is not None:
        attach(_out_of_memory)
        _internal.failures_are_told()
        _is_observing = True


def _out_of_memory(device: int, requested: int = 0, total: int = 0, free: int = 0, *_: Any) -> None:
    """PyTorch gives up: what it could give back it has given back, and the job gets an exception."""
    if _internal.state() != _internal.ON:
        return
    try:
        _messages.finding(_failure(device, requested, total, free))
        _tell_of_pool(device, requested, total, free)
        take_snapshot(device, OOM_NAME)
        looks.failed()
        _internal.call_soon(lambda: take_snapshot(device, f"{OOM_NAME} After"))
    except Exception as error:  # noqa: BLE001 - the job has trouble enough
        _messages.warn_once(f"no snapshot of the out of memory: {error}")


def _tell_of_pool(device: int, requested: int, total: int, free: int) -> None:
    """Where PyTorch has unused memory, which it could not give. Releases differ in what they tell."""
    try:
        from ._torch.refusal import refusals

        _recorder.settle()
        refusals.tell(sys.modules["torch_npu"].npu, device, requested, total, free)
    except Exception as error:  # noqa: BLE001 - the report does without
        _messages.warn_once(f"the pool that ran out of memory was not looked at: {error}")


def _failure(device: int, requested: int, total: int, free: int) -> str:
    asked = f"asked for {_size(requested)}" if requested else "asked for memory"
    line = calling_line()
    if total and free >= requested > 0:
        # PyTorch tells the job's own limit instead of the card's size where there is one.
        room = f", which is more than the job's own limit of {_size(total)} allows"
    else:
        room = f", {_size(free)} of {_size(total)} free" if total else ""
    return f"Out of memory on device {device}: {asked}{f' at {line}' if line else ''}{room}"


def _size(size_bytes: float) -> str:
    """A size as reports write it."""
    units = iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while size_bytes >= 1023.5:
        size_bytes, unit = size_bytes / 1024, next(units)
    return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 99.95 else f"{size_bytes:.1f} {unit}"
