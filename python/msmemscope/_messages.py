"""What the package says to people: one line each, on stderr, like the rest of the tool."""

from __future__ import annotations

import sys

from . import _internal

_DEBUG, _INFORMATION, _WARNING, _ERROR = range(4)
_PREFIXES = ("Debug", "Info", "Warning", "Error")

_said: set[str] = set()
_has_older_name = False


def use_older_name() -> None:
    """The user has imported the package under its earlier name."""
    global _has_older_name
    _has_older_name = True


def tool_name() -> str:
    """The name under which the user knows the package."""
    return "msleaks" if _has_older_name else _internal.tool_name()


def _say(severity: int, text: str) -> None:
    text = text.encode("utf-8", "backslashreplace").decode()  # paths need not be valid text
    _internal.message(severity, text)
    if severity < _internal.log_level():
        return
    tell(f"[{tool_name()}] {_PREFIXES[severity]}: {text}")


def tell(text: str) -> None:
    """Print lines on stderr, if there is one; stdout belongs to the job."""
    stream = sys.stderr
    if stream is not None:
        _internal.trace_pause()  # the stream may be one of Python's, such as a notebook's
        try:
            print(text, file=stream)
        except (OSError, ValueError, AttributeError):
            pass
        finally:
            _internal.trace_resume()


def information(text: str) -> None:
    """Something worth knowing."""
    _say(_INFORMATION, text)


def finding(text: str) -> None:
    """What was found while the job runs, at any log level."""
    _internal.message(_ERROR, text)
    tell(f"[{tool_name()}] {text}")


def warning(text: str) -> None:
    """Something is missing or suspicious."""
    _say(_WARNING, text)


def warn_once(text: str) -> None:
    """A warning that is not repeated."""
    if text not in _said:
        _said.add(text)
        warning(text)
