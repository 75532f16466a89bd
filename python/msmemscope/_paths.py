"""Where the files are that come with this package."""

from __future__ import annotations

import os
from pathlib import Path

_HOME = Path(__file__).resolve().parent

#: The directory of this package as its modules name it, with a separator at the end.
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")

#: The recorder. Frameworks look for exactly this file name.
RECORDER = _HOME / "lib64" / "libascend_kernel_hook.so"

_PROGRAM = _HOME / "bin" / "msmemscope.bin"


def program() -> Path | None:
    """The command line program, if it is installed."""
    return _PROGRAM if _PROGRAM.is_file() else None
