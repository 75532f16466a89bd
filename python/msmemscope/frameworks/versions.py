"""Which entry of the table fits a version."""

from __future__ import annotations

import re

Version = tuple[int, int, int]


def parse(text: str) -> Version:
    """The first three numbers of a version: ``2.6.0rc1+cpu`` is (2, 6, 0).

    >>> parse("2.6.0rc1+cpu")
    (2, 6, 0)
    >>> parse("v11")
    (0, 0, 0)
    """
    numbers = []
    for segment in text.split(".")[:3]:
        digits = re.match(r"\d+", segment)
        if digits is None:
            break
        numbers.append(int(digits.group()))
    major, minor, patch = (numbers + [0, 0, 0])[:3]
    return major, minor, patch


def matches(key: str, version: str) -> bool:
    """Whether a key of the table covers a version.

    Keys are an exact version, ``X+`` for that version and later ones, ``A-B`` for A up to all patch
    releases of B, and ``*``.

    >>> matches("2.6-2.9", "2.9.1"), matches("2.6-2.9", "2.10.0"), matches("2.10+", "2.13.0")
    (True, False, True)
    """
    if key == "*":
        return True
    found = parse(version)
    if key.endswith("+"):
        return found >= parse(key[:-1])
    if "-" in key:
        first, _, last = key.partition("-")
        major, minor, _ = parse(last)
        return parse(first) <= found < (major, minor + 1, 0)
    return found == parse(key)


def is_exact(key: str) -> bool:
    """Whether a key names one version only."""
    return key != "*" and not key.endswith("+") and "-" not in key
