"""Who holds device memory: paths of references from variables of the job to its tensors.

* :mod:`.frames` reads the variables of running functions without changing them.
* :mod:`.walk` follows references from all roots, natively, and :mod:`.paths` puts the ways into words.
* :mod:`.schedule` decides when that may be done, and how long it may take.

What a tensor is, and what autograd holds, is known to :mod:`msmemscope._torch.holders`, which does the looking.
Nothing here calls methods of foreign objects, compares, hashes or prints them: only native functions of the
interpreter's own types are used, so that no code of the job runs.
"""

from __future__ import annotations

from .. import _import_hook, _internal, _recorder
from ..exceptions import FrameworkError
from .schedule import looks

__all__ = ["record_holders"]


def record_holders() -> int:
    """Record now who holds each tensor on a device, and tell how many were found.

    That is done anyway at the ends of some steps, at :func:`msmemscope.stop` and when memory runs out; call it where
    you want to know it for sure. It may take a second. Does nothing while not recording.

    .. code-block:: python

        msmemscope.record_holders()

    :raises msmemscope.exceptions.FrameworkError: if PyTorch is not imported.
    :raises msmemscope.exceptions.RecorderError: if the recorder is missing.
    """
    _recorder.require()
    if not _import_hook.is_imported("torch"):
        raise FrameworkError("record_holders() needs PyTorch, which is not imported")
    if _internal.state() != _internal.ON:
        return 0
    from .._torch import holders

    return looks.look_now(holders.look)
