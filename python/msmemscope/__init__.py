"""Memory analysis for Ascend NPUs: record what a program does with memory, and find out what is wrong.

Two lines around the code are enough; nothing has to be preloaded:

.. code-block:: python

    import msmemscope

    msmemscope.config(events="alloc,free,launch", call_stack="python:10", output="./results")
    msmemscope.start()
    train()
    msmemscope.stop()

Import the package before the first use of a device, so that nothing is missed. Importing it needs
neither PyTorch nor any other framework.
"""

from __future__ import annotations

from . import _recorder

_recorder.attach()

from . import _notebook, analyzer, describe, exceptions, fleet, hijacker  # noqa: E402 - the recorder comes first
from . import _requests as _requests  # noqa: E402 - the recorder asks for it by name
from ._holders import record_holders  # noqa: E402
from ._internal import VERSION as __version__  # noqa: E402, N811
from ._record_function import RecordFunction  # noqa: E402
from ._sanitizer import enable_npu_sanitizer  # noqa: E402
from ._session import config, recording, recording_directory, start, step, stop  # noqa: E402
from ._snapshot import TakeSnapshot, take_snapshot  # noqa: E402
from ._tracer import tracer  # noqa: E402
from ._watcher import watcher  # noqa: E402
from .analyzer import (  # noqa: E402
    analyze,
    check_inefficient,
    check_leaks,
    get_analyzer_config,
    list_analyzers,
    list_questions,
    memory_at,
    memory_grown,
)
from .hijacker import cleanup_framework_hooks, init_framework_hooks  # noqa: E402

__all__ = [
    "RecordFunction",
    "TakeSnapshot",
    "__version__",
    "analyze",
    "analyzer",
    "check_inefficient",
    "check_leaks",
    "cleanup_framework_hooks",
    "config",
    "describe",
    "enable_npu_sanitizer",
    "exceptions",
    "fleet",
    "get_analyzer_config",
    "hijacker",
    "init_framework_hooks",
    "list_analyzers",
    "list_questions",
    "memory_at",
    "memory_grown",
    "record_holders",
    "recording",
    "recording_directory",
    "start",
    "step",
    "stop",
    "take_snapshot",
    "tracer",
    "watcher",
]


def load_ipython_extension(ipython: object) -> None:
    """For ``%load_ext msmemscope``; importing the package in a notebook does the same."""
    _notebook.register()


_notebook.register()
