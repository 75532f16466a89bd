"""What the package says to people: one line each, on stderr, like the rest of the tool."""

from __future__ import annotations

import contextlib
import sys

from . import _internal

_DEBUG, _INFORMATION, _WARNING, _ERROR = range(4)
_PREFIXES = ("Debug", "Info", "Warn", "Error")

_said: set[str] = set()


def _say(severity: int, text: str) -> None:
    _internal.message(severity, text)
    if severity < _internal.log_level():
        return
    # If stderr is closed, the recording still has the message.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"[msmemscope] {_PREFIXES[severity]}: {text}", file=sys.stderr)


def information(text: str) -> None:
    """Something worth knowing."""
    _say(_INFORMATION, text)


def warning(text: str) -> None:
    """Something is missing or suspicious."""
    _say(_WARNING, text)


def warn_once(text: str) -> None:
    """A warning that is not repeated."""
    if text not in _said:
        _said.add(text)
        warning(text)
