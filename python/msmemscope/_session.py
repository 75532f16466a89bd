"""Collection control: what is recorded, and when."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import _collectors, _internal, _messages, _paths, _recorder, describe
from ._watcher import watcher

__all__ = ["config", "recording", "recording_directory", "start", "step", "stop"]


def config(*args: Any, **settings: str) -> None:
    """Set what :func:`start` records.

    Keys are those of the command line, in either spelling: ``device``, ``level``, ``events``,
    ``call_stack``, ``analysis``, ``watch``, ``steps``, ``output`` (or ``output_path``), ``data_format``
    (or ``format``), ``max_trace_size`` and ``log_level``. Every value is a string, written as on the
    command line. Keys that a call does not name go back to their defaults, except those that hold for
    the whole process: ``output``, ``data_format``, ``watch``, ``max_trace_size`` and ``log_level``.

    The call applies all of its arguments or, if one of them is wrong, none.

    >>> import msmemscope
    >>> msmemscope.config(events="alloc,free", call_stack="python:5", level="op")
    >>> msmemscope.config(levle="op")
    Traceback (most recent call last):
    msmemscope.exceptions.ConfigError: unknown key 'levle' with value 'op'; did you mean 'level'?
    >>> msmemscope.config(level=0)
    Traceback (most recent call last):
    TypeError: Value for argument 'level' must be a string (use quotes)

    :raises TypeError: for positional arguments and values that are no strings.
    :raises msmemscope.exceptions.ConfigError: for unknown keys and values that are not allowed.
    """
    if args:
        raise TypeError("config() takes no positional arguments")
    for key, value in settings.items():
        if not isinstance(value, str):
            raise TypeError(f"Value for argument '{key}' must be a string (use quotes)")
    for note in _internal.configure(list(settings.items())):
        _messages.warning(note)
    _recorder.patch()
    _collectors.synchronise()


def start() -> None:
    """Start recording. What is alive already is known and shown with ``shadow:true``.

    May be called again after :func:`stop`; all scopes go to the same files.

    :raises msmemscope.exceptions.RecorderError: if the recorder is missing or cannot work.
    """
    _recorder.require()
    _recorder.patch()
    _recorder.tell_blind_spots()
    _internal.settle()
    if _internal.state() == _internal.ON:
        return
    _internal.set_state(_internal.ON)
    describe.recording_started()
    _collectors.synchronise()
    _messages.information("Start tracing.")


def stop(*, finish: bool = True) -> None:
    """Stop recording and write the result files.

    Recording pauses: allocations and frees are still noted, so that a later :func:`start` knows what
    is alive. If the command line started the program, it writes the files when the program ends.

    :param finish: False leaves writing the files to a later ``stop()`` or to the end of the program.
    """
    _recorder.require()
    if _internal.state() != _internal.ON:
        return
    watcher.record_coverage()
    _internal.set_state(_internal.SHADOW)
    _collectors.synchronise()
    _recorder.patch()
    _messages.information("Stop tracing.")
    if finish:
        finish_files()


def step() -> None:
    """Tell that a step of training or inference ended. Does nothing while not recording.

    >>> import msmemscope
    >>> msmemscope.step()
    """
    _internal.step()
    _recorder.withdraw_if_found()


@contextlib.contextmanager
def recording(**settings: str):
    """Record what happens inside a ``with`` block or a decorated function.

    Takes the arguments of :func:`config`; without any, what is set already counts. Yields a
    function that gives the directory of the recording.

    .. code-block:: python

        with msmemscope.recording(events="alloc,free", output="./results") as directory:
            train()
        print(directory())
    """
    if settings:
        config(**settings)
    start()
    try:
        yield recording_directory
    finally:
        stop()


def recording_directory() -> Path | None:
    """The directory with the recording and the result files of this process, if there is one yet."""
    directory = _internal.process_directory()
    return None if directory is None else Path(directory)


def finish_files() -> None:
    """Write the result files of what is recorded so far, unless the command line does it at the end."""
    directory = _internal.process_directory()
    if directory is None or _internal.is_supervised():
        return
    program = _paths.program()
    if program is None:
        _messages.warn_once(f"the recording is in {directory}; write its files with: msmemscope finish {directory}")
        return
    _internal.flush()
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "MSMEMSCOPE_RECORDING")}
    finished = subprocess.run(
        [str(program), "finish", str(directory)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    text = finished.stdout.decode("utf-8", "replace").rstrip()
    if finished.returncode != 0:
        _messages.warning(f"the files of {directory} could not be written, the recording is kept: {text}")
    elif _is_interactive():
        print(text, file=sys.stderr)  # else the same is told at the end of the program


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules
