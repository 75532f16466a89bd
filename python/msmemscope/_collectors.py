"""Turns the collectors of the Python side on and off, following what the recorder wants."""

from __future__ import annotations

import sys
from typing import Callable

from . import _host_tensors, _import_hook, _internal, _memory_limit, _messages, _mindspore, _mstx
from ._snapshot import observe_out_of_memory
from ._tracer import tracer
from ._watcher import watcher


def synchronise() -> None:
    """Bring all collectors in line with state and settings. Called after each change of either.

    That imports modules and asks PyTorch many questions, of which the Python trace shows nothing.
    """
    if not _internal.is_attached():
        return
    _internal.trace_pause()
    try:
        _synchronise()
    finally:
        _internal.trace_resume()


def when_device_is_free(work: Callable[[], None]) -> None:
    """Do something that asks for the device: now, or as soon as torch_npu has initialised itself."""
    npu = sys.modules.get("torch_npu.npu")
    lock = getattr(npu, "_initialization_lock", None)
    later = getattr(npu, "_lazy_call", None)
    if lock is not None and later is not None and lock.locked():
        later(work)
    else:
        work()


def _synchronise() -> None:
    wants_operators, wants_accesses, wants_calls, _ = _internal.plan()
    tracer._follow(wants_calls and _internal.is_at_work())
    is_on = _internal.state() == _internal.ON
    owners = is_on and (_internal.wants_decompose() or _internal.watches_an_owner())
    host = _internal.wants_host_tensors()
    watch = is_on and (_internal.wants_watch() or watcher.is_wanted())
    looks = is_on and _internal.wants_holders()
    if is_on:
        _follow_torch_npu()
        _mindspore.follow()
    is_wanted = wants_operators or wants_accesses or owners or host or watch or looks
    if not is_wanted and "msmemscope._torch" not in sys.modules:
        return
    if not _import_hook.is_imported("torch"):
        if host and "torch" in sys.modules:
            _host_tensors.watch(is_complete=False)  # its libraries may be there already
        _import_hook.when_imported("torch", synchronise)
        return
    try:
        from . import _torch
        from .hijacker import manager

        _torch.follow(
            launches=wants_operators, accesses=wants_accesses, owners=owners, host=host, watch=watch, looks=looks
        )
        manager.follow(owners)
    except Exception as error:  # noqa: BLE001 - an unexpected PyTorch must not keep the job from running
        _messages.warning(f"operators of this PyTorch are not seen: {type(error).__name__}: {error}")


def _follow_torch_npu() -> None:
    """Its marks, and that it runs out of memory, are observed whatever is recorded; operators too if it comes later."""
    if _import_hook.is_imported("torch_npu"):
        if _internal.is_at_work():  # asking brings the runtime up
            observe_out_of_memory()
        _mstx.follow()
        _memory_limit.follow()
    else:
        _import_hook.when_imported("torch_npu", synchronise)
