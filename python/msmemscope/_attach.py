"""Imported by the recorder when the command line started this program, not by users.

Importing it brings the Python side into a program that does not import the package itself: operators,
accesses, labels of frameworks, snapshots when memory runs out, the Python trace.
"""

from __future__ import annotations

import sys

from . import _collectors, _import_hook


def _synchronise() -> None:
    """Starts the collectors, but not while torch_npu holds the lock of its own initialisation.

    The recorder asks for this import as soon as the runtime is up, which is in the middle of that
    initialisation: anything that asks for the device then would wait for itself. If CPU tensors are
    wanted it asks earlier, in the middle of PyTorch's own import.
    """
    npu = sys.modules.get("torch_npu.npu")
    lock = getattr(npu, "_initialization_lock", None)
    later = getattr(npu, "_lazy_call", None)
    if lock is not None and later is not None and lock.locked():
        later(_collectors.synchronise)
    else:
        _collectors.synchronise()


_synchronise()
_import_hook.when_imported("torch_npu", _synchronise)
