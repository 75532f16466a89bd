"""Notices that MindSpore has run out of memory.

Its pool knows how much of the card it may have and never asks the driver for more, so that nobody but MindSpore knows
of a refusal. It tells the job by an exception. One that has ended the job is still there when the interpreter shuts
down: looking at it then changes nothing in the job.
"""

from __future__ import annotations

import atexit
import re
import sys
from types import TracebackType

from . import _import_hook, _internal, _messages
from ._holders.schedule import looks

#: What MindSpore says, in its releases and modes.
_REFUSALS = re.compile(
    r"Allocate memory failed|memory isn't enough|[Mm]emory not enough|Out of memory|Malloc for \w+ failed"
)
_SIZE = re.compile(r"alloc size: ?(\d+) ?B")

#: What MindSpore says without a limit.
_NO_LIMIT_GIB = 1024.0

_is_following = False


def follow() -> None:
    """Look at how the job ends, once MindSpore is there."""
    global _is_following
    if not _is_following:
        _is_following = True
        _import_hook.when_imported("mindspore", _imported)


def _imported() -> None:
    # After MindSpore's own, which gives everything back: what is registered last runs first.
    atexit.register(_job_ends)


def _job_ends() -> None:
    refusal = find_refusal(getattr(sys, "last_value", None))
    if refusal is None or _internal.state() != _internal.ON:
        return
    try:
        size = _SIZE.search(str(refusal))
        device = _device()
        line = _noticed_at(refusal.__traceback__)
        _internal.mindspore_refused(device, int(size[1]) if size else 0, _is_limited())
        _messages.finding(
            f"Out of memory on device {device}: the pool of MindSpore refused memory"
            f"{f', noticed at {line}' if line else ''}; the report will say why"
        )
        looks.failed()
    except Exception as error:  # noqa: BLE001 - the job has trouble enough
        _messages.warn_once(f"that MindSpore has run out of memory is not recorded: {error}")


def find_refusal(error: BaseException | None) -> BaseException | None:
    """The exception of MindSpore that says so, among one and those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, (RuntimeError, MemoryError)) and _REFUSALS.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


def _noticed_at(place: TracebackType | None) -> str:
    """The innermost line that is not MindSpore's own."""
    line = ""
    while place is not None:
        module = place.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != "mindspore":
            line = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
        place = place.tb_next
    return line


def _is_limited() -> bool:
    """Whether the job has said how much of the card the pool may have."""
    settings = sys.modules["mindspore._c_expression"].RuntimeConf.get_instance()
    limit_gib = float(sys.modules["mindspore"].get_context("max_device_memory"))
    return bool(settings.is_memory_configured()) or limit_gib < _NO_LIMIT_GIB


def _device() -> int:
    """The device of the job: a process of MindSpore has one."""
    return int(sys.modules["mindspore"].get_context("device_id"))
