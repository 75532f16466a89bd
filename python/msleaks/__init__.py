"""The package under its earlier name: the same functions, with the earlier names of files.

.. code-block:: python

    import msleaks

    msleaks.start()
    train()
    msleaks.stop()
"""

from __future__ import annotations

import sys

import msmemscope
from msmemscope import *  # noqa: F403
from msmemscope import __all__, __version__, _internal, _messages  # noqa: F401

_internal.use_older_names()
_messages.use_older_name()

for _name in ("analyzer", "describe", "exceptions", "fleet", "hijacker"):
    sys.modules[f"msleaks.{_name}"] = getattr(msmemscope, _name)
del _name
