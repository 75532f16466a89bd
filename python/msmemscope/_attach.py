"""Imported by the recorder when the command line started this program, not by users.

It brings the Python side into a program that does not import the package itself: operators, accesses, labels of
frameworks, snapshots when memory runs out, the Python trace.
"""

from __future__ import annotations

import sys

from . import _collectors, _import_hook, _internal


def synchronise() -> None:
    """Starts the collectors, but not while torch_npu holds the lock of its own initialisation.

    The recorder asks for this import in the middle of torch_npu's, and the collectors start when that is done. Where
    it could not see that, it asks when the runtime is up, which is in the middle of torch_npu's initialisation:
    anything that asks for the device then would wait for itself. If CPU tensors are wanted it asks earlier, in the
    middle of PyTorch's own import.
    """
    if "torch_npu" in sys.modules and not _import_hook.is_imported("torch_npu"):
        _import_hook.when_imported("torch_npu", synchronise)
        return
    _collectors.when_device_is_free(_collectors.synchronise)


if not _internal.wants_host_tensors():
    _internal.note_guest(True)
_import_hook.when_imported("torch_npu", synchronise)
