"""``python -m msmemscope``: the command line program that comes with the package."""

from __future__ import annotations

import os
import sys

from ._paths import program


def main() -> None:
    """Become the program."""
    path = program()
    if path is None:
        sys.exit("[msmemscope] Error: the package was installed without the program msmemscope")
    os.execv(path, ["msmemscope", *sys.argv[1:]])


if __name__ == "__main__":
    main()
