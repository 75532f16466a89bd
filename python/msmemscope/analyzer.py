"""Offline analyses of result files. They need no device and no framework.

>>> import msmemscope
>>> msmemscope.list_analyzers()
['leaks', 'inefficient']
>>> msmemscope.get_analyzer_config("leaks")["parameters"]
['input_path', 'mstx_info', 'start_index']
"""

from __future__ import annotations

import inspect
import json
import os
from typing import Any, Callable

from . import _internal, _messages

__all__ = ["analyze", "check_inefficient", "check_leaks", "get_analyzer_config", "list_analyzers"]

LONGEST_PATH = 4096
INEFFICIENT_TYPES = ("early_allocation", "late_deallocation", "temporary_idleness")


def _checked_path(input_path: Any, extensions: tuple[str, ...], *, is_written: bool = False) -> str:
    path = os.fspath(input_path)
    if not isinstance(path, str):
        raise TypeError(f"input_path must be a text, not {type(path).__name__}")
    if len(path) > LONGEST_PATH:
        raise ValueError(f"input_path must not be longer than {LONGEST_PATH} characters")
    if not os.path.exists(path):
        raise FileNotFoundError(f"input_path: there is no file '{path}'")
    if not os.path.isfile(path):
        raise ValueError(f"input_path: '{path}' is no file")
    if os.path.splitext(path)[1].lower() not in extensions:
        raise ValueError(f"input_path must be a {' or '.join(extensions)} file, not '{os.path.basename(path)}'")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"input_path: '{path}' cannot be read")
    if is_written and not os.access(path, os.W_OK):
        raise PermissionError(f"input_path: '{path}' cannot be written")
    return path


def _checked_number(value: Any, name: str, smallest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ValueError(f"{name} must be an integer not smaller than {smallest}, not {value!r}")
    return value


def _report(answer: tuple[str | None, str, str]) -> list[dict[str, Any]]:
    notice, text, data = answer
    if notice:
        _messages.warning(notice)
    print(text)
    reports: list[dict[str, Any]] = json.loads(data)
    return reports


def check_leaks(input_path: Any, mstx_info: str, start_index: int = 0) -> list[dict[str, Any]]:
    """Look for memory that was allocated between two marks and not freed before the third.

    Of the mstx marks with the text ``mstx_info``, the one with number ``start_index`` (counted from
    zero) and its two successors are called A, B and C.

    .. code-block:: python

        msmemscope.check_leaks(input_path="/data/memscope_dump_20260101120000.csv", mstx_info="test", start_index=0)

    Prints the report, and returns it: one entry per process, with the devices and their leaks.
    """
    path = _checked_path(input_path, (".csv", ".db"))
    if not isinstance(mstx_info, str):
        raise TypeError(f"mstx_info must be a string, not {type(mstx_info).__name__}")
    if not mstx_info.strip():
        raise ValueError("mstx_info must not be blank")
    return _report(_internal.analyze_marks(path, mstx_info, _checked_number(start_index, "start_index", 0)))


def check_inefficient(
    input_path: Any,
    mem_size: int = 0,
    inefficient_type: str | list[str] | None = None,
    idle_threshold: int = 3000,
) -> list[dict[str, Any]]:
    """Look for memory that is allocated too early, freed too late or idle in between.

    The findings are also written into the file, as ``inefficient_type`` of the blocks; a file that
    cannot be replaced safely stays as it is.

    :param mem_size: smaller blocks are left out.
    :param inefficient_type: ``early_allocation``, ``late_deallocation``, ``temporary_idleness`` or a
        list of them; None means all.
    :param idle_threshold: operators between two accesses beyond which a block is idle.
    """
    path = _checked_path(input_path, (".csv", ".db"), is_written=True)
    kinds = [inefficient_type] if isinstance(inefficient_type, str) else list(inefficient_type or INEFFICIENT_TYPES)
    for kind in kinds:
        if kind not in INEFFICIENT_TYPES:
            raise ValueError(f"inefficient_type must be one of {', '.join(INEFFICIENT_TYPES)}, not {kind!r}")
    size = _checked_number(mem_size, "mem_size", 0)
    threshold = _checked_number(idle_threshold, "idle_threshold", 1)
    return _report(_internal.analyze_inefficient(path, size, kinds, threshold, True))


_ANALYZERS: dict[str, tuple[str, Callable[..., list[dict[str, Any]]]]] = {
    "leaks": ("LeaksConfig", check_leaks),
    "inefficient": ("InefficientConfig", check_inefficient),
}


def _known(analyzer: Any) -> tuple[str, Callable[..., list[dict[str, Any]]]]:
    if analyzer not in _ANALYZERS:
        raise ValueError(f"unknown analyzer {analyzer!r}; known: {', '.join(_ANALYZERS)}")
    return _ANALYZERS[analyzer]


def analyze(analyzer_type: str, **parameters: Any) -> list[dict[str, Any]]:
    """Run an analysis by its name, with the parameters that :func:`get_analyzer_config` names.

    >>> import msmemscope
    >>> msmemscope.analyze("leek")
    Traceback (most recent call last):
    ValueError: unknown analyzer 'leek'; known: leaks, inefficient
    """
    return _known(analyzer_type)[1](**parameters)


def list_analyzers() -> list[str]:
    """Names of all analyses."""
    return list(_ANALYZERS)


def get_analyzer_config(analyzer_type: str) -> dict[str, Any]:
    """What an analysis takes."""
    name, function = _known(analyzer_type)
    return {"config_class": name, "parameters": list(inspect.signature(function).parameters)}
