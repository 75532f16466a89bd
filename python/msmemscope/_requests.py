"""Follows requests of the job's user from outside (``msmemscope ctl``).

The recorder has met them already, on whatever thread came along; it calls :func:`follow` in the main thread, between
two of its instructions, for what only the interpreter can do.
"""

from __future__ import annotations

import errno
from functools import partial

from . import _collectors, _internal, _messages, _recorder, _session
from ._snapshot import snapshot_current_device

SNAPSHOT_NAME = "ctl snapshot"


def follow(number: int, wants_snapshot: bool) -> None:
    """Bring the collectors in line with what is recorded now; take a snapshot if one is asked for. Never raises."""
    _collectors.when_device_is_free(partial(_follow, number, wants_snapshot))


def _follow(number: int, wants_snapshot: bool) -> None:
    result = 0
    try:
        _internal.follow_settings()
        if _internal.state() == _internal.ON:
            _internal.note_guest(False)
            _session.note_started_from_outside()
        _recorder.patch()
        _collectors.synchronise()
        if wants_snapshot:
            snapshot_current_device(SNAPSHOT_NAME)
    except Exception as error:  # noqa: BLE001 - the job must go on
        result = errno.EIO
        _messages.warning(f"a request from outside could not be followed: {type(error).__name__}: {error}")
    if wants_snapshot:
        _internal.answer_request(number, result)
