"""Brings the recorder into this process and makes frameworks talk to it.

If the process was started by the command line, or with the library in ``LD_PRELOAD``, the recorder is
there already. Otherwise importing the package loads it:

* it is loaded so that libraries loaded later find its functions first;
* libraries loaded earlier have their import tables changed;
* torch_npu and MindSpore look for the library's name in ``LD_PRELOAD`` at their first device
  allocation, so the variable is set inside this process until they have found it.

What happened before cannot be made good; :func:`blind_spots` names it.
"""

from __future__ import annotations

import os
import sys

from . import _import_hook, _internal, _messages, _paths
from .exceptions import RecorderError

_PRELOAD = "LD_PRELOAD"

#: Why there is no recorder, if so.
_failure: str | None = None
#: Whether the recorder came into the process through this package.
_was_loaded_here = False
#: Whether ``LD_PRELOAD`` is changed inside this process.
_is_offered = False
#: Whether something was recorded on behalf of this package.
_is_settled = False
#: What could not be seen any more when the package was imported, with a place for the name of the package.
_missed: list[str] = []


def attach() -> None:
    """Find the recorder or load it. Never raises: offline functions work without one."""
    global _failure, _was_loaded_here
    try:
        was_there = _internal.attach(str(_paths.RECORDER), _optional_text(_paths.program()))
    except RecorderError as error:
        _failure = str(error)
        return
    os.register_at_fork(after_in_child=_internal.note_fork)
    _was_loaded_here = not was_there
    if _was_loaded_here:
        _missed.extend(_already_past())
        _offer()
        patch()
        for framework in ("torch_npu", "mindspore"):
            _import_hook.when_imported(framework, patch)


def _optional_text(path: os.PathLike | None) -> str | None:
    return None if path is None else os.fspath(path)


def require() -> None:
    """Raise if there is no recorder."""
    if not _internal.is_attached():
        raise RecorderError(_failure or "no recorder is loaded in this process")


def settle() -> None:
    """Something is going to be recorded: from now on the results have their place."""
    global _is_settled
    _is_settled = True
    _internal.settle()


def has_results() -> bool:
    """Whether this process records something that is to be written when it ends."""
    return _is_settled or _internal.state() == _internal.ON


def was_loaded_here() -> bool:
    """Whether the recorder came into the process through this package, not by preloading."""
    return _was_loaded_here


def patch() -> None:
    """Look for libraries loaded since the last time; needed only where nothing is preloaded."""
    if _was_loaded_here:
        _internal.patch_imports()
        withdraw_if_found()


def _offer() -> None:
    """Show the recorder's name to frameworks that look for it in the environment.

    Only the C environment changes: ``os.environ``, and with it the environment that a program passes
    on by hand, stays as the user knows it.
    """
    global _is_offered
    previous = os.environ.get(_PRELOAD)
    names = [str(_paths.RECORDER)] + ([previous] if previous else [])
    os.putenv(_PRELOAD, ":".join(names))
    _is_offered = True


def withdraw_if_found() -> None:
    """Take the name back once a framework has found it, so that children do not inherit it."""
    global _is_offered
    if _is_offered and _internal.sources() & _internal.SOURCE_POOL:
        _is_offered = False
        previous = os.environ.get(_PRELOAD)
        if previous is None:
            os.unsetenv(_PRELOAD)
        else:
            os.putenv(_PRELOAD, previous)


def _already_past() -> list[str]:
    """What happened before the recorder came, in words."""
    missed = []
    advice = "import {tool} before that, or start the program with: {tool} python ..."
    if _torch_npu_has_allocated():
        missed.append(
            "blocks of the PyTorch memory pool (PTA) are not seen: torch_npu had allocated device memory "
            f"before {{tool}} was imported; {advice}"
        )
    if "mindspore" in sys.modules and _is_loaded("libascendcl.so"):
        missed.append(
            "blocks of the MindSpore memory pool are seen only if MindSpore had not allocated device memory "
            f"before {{tool}} was imported; if they are missing, {advice}"
        )
    return missed


def _torch_npu_has_allocated() -> bool:
    torch_npu = sys.modules.get("torch_npu")
    try:
        npu = torch_npu.npu  # type: ignore[union-attr]
        return bool(npu.is_initialized()) and any(
            npu.max_memory_reserved(device) > 0 for device in range(npu.device_count())
        )
    except Exception:  # noqa: BLE001 - any failure of a foreign module means: not known to have allocated
        return False


def _is_loaded(library: str) -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(library in line for line in maps)
    except OSError:
        return False


def blind_spots() -> list[str]:
    """What this process cannot record because it happened too early, one sentence each."""
    is_pool_seen = _internal.sources() & _internal.SOURCE_POOL
    missed = [text for text in _missed if not (is_pool_seen and "memory pool" in text)]
    return [text.format(tool=_messages.tool_name()) for text in missed]


def tell_blind_spots() -> None:
    """Say once what cannot be seen, and write it down in the recording for every later command."""
    for text in blind_spots():
        _messages.warn_once(text)
        if "(PTA)" in text:
            _internal.unseen_pools("PTA=torch_npu had allocated device memory before the recorder was loaded")
