"""Names and labels given by the user, checked when they are given."""

from __future__ import annotations

from typing import Any

from .exceptions import TextError

LONGEST_BYTES = 128


def checked_text(what: str, text: Any, longest_bytes: int = LONGEST_BYTES, *, may_be_empty: bool = False) -> str:
    """The text, if it can be recorded; ``what`` names it in the errors."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a string, not {type(text).__name__}")
    if not text and not may_be_empty:
        raise TextError(f"{what} must not be empty")
    if not is_encodable(text):
        raise TextError(f"{what} must be valid Unicode text, without lone surrogates: {text!a}")
    if len(text.encode()) > longest_bytes:
        raise TextError(f"{what} must not be longer than {longest_bytes} bytes")
    return text


def is_encodable(text: str) -> bool:
    """Whether a text has a form in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
