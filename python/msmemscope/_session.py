"""Collection control: what is recorded, and when."""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from . import _collectors, _internal, _messages, _notebook, _paths, _recorder
from ._holders.schedule import STEP, looks
from ._stepwise import Function, decorate
from ._texts import is_encodable
from ._watcher import watcher
from .exceptions import ConfigError, RecorderError

__all__ = ["config", "recording", "recording_directory", "start", "step", "stop"]


def config(*args: Any, **settings: str | Sequence[str]) -> None:
    """Set what :func:`start` records.

    Keys are those of the command line, in either spelling: ``device``, ``level``, ``events``,
    ``call_stack``, ``analysis``, ``holders``, ``watch``, ``steps``, ``output`` (or ``output_path``), ``data_format``
    (or ``format``), ``max_trace_size``, ``flight_recorder`` and ``log_level``. Every value is a string, written as
    on the command line, or a list of strings where that has commas; an empty one turns off what can be. Keys
    that a call does not name go back to what the command line said, or to their defaults if the program
    was started without it, except those that hold for the whole process: ``output``, ``data_format``,
    ``watch``, ``max_trace_size``, ``flight_recorder`` and ``log_level``.

    The call applies all of its arguments or, if one of them is wrong, none.

    >>> import msmemscope
    >>> msmemscope.config(events="alloc,free", call_stack="python:5", level="op")
    >>> msmemscope.config(levle="op")
    Traceback (most recent call last):
    msmemscope.exceptions.ConfigError: unknown key 'levle' (value 'op'); did you mean 'level'?
    >>> msmemscope.config(level=0)
    Traceback (most recent call last):
    TypeError: Value for argument 'level' must be a string or a list of strings (use quotes)
    >>> msmemscope.config(events=["alloc", "free"])

    :raises TypeError: for positional arguments and values that are neither strings nor lists of them.
    :raises msmemscope.exceptions.ConfigError: for unknown keys and values that are not allowed.
    """
    if args:
        raise TypeError("config() takes no positional arguments")
    texts = [(key, _setting_text(key, value)) for key, value in settings.items()]
    for note in _internal.configure(texts):
        _messages.warning(note)
    _recorder.patch()
    _collectors.synchronise()


def _setting_text(key: str, value: Any) -> str:
    """The value of a setting as on the command line; checked as far as that goes without knowing the key."""
    if isinstance(value, (list, tuple)) and _internal.is_list(key) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if not isinstance(value, str):
        or_list = " or a list of strings" if _internal.is_list(key) else ""
        raise TypeError(f"Value for argument '{key}' must be a string{or_list} (use quotes)")
    if not (is_encodable(key) and is_encodable(value)):
        raise ConfigError(f"the value of {key!a} must be valid Unicode text, without lone surrogates: {value!a}")
    return value


def start() -> None:
    """Start recording. What is alive already is known and shown with ``shadow:true``.

    May be called again after :func:`stop`; all scopes go to the same files.

    :raises msmemscope.exceptions.RecorderError: if the recorder is missing or cannot work.
    """
    _recorder.require()
    _recorder.patch()
    _recorder.tell_blind_spots()
    _recorder.settle()
    _forgotten.started = True
    if _internal.state() == _internal.ON:
        return
    _internal.note_guest(False)
    _internal.set_state(_internal.ON)
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
        _forgotten.tell()
        return
    watcher.record_coverage()
    if finish:
        looks.ended()
    _internal.set_state(_internal.SHADOW)
    _collectors.synchronise()
    _recorder.patch()
    _messages.information("Stop tracing.")
    if finish:
        if _internal.process_directory() is None:
            _messages.warn_once("nothing was recorded between start() and stop(): no device memory was used")
        finish_files()


def step() -> None:
    """Tell that a step of training or inference ended. Does nothing while not recording.

    >>> import msmemscope
    >>> msmemscope.step()
    """
    if _internal.step():
        looks.turned(STEP)
    else:
        _forgotten.stepped = True
    _recorder.withdraw_if_found()


class _Forgotten:
    """Notices that a program marks steps or stops, but has never started recording."""

    def __init__(self) -> None:
        self.started = False
        self.stepped = False

    def tell(self) -> None:
        """Say it, once."""
        if not self.started and not _internal.is_supervised():
            _messages.warn_once("nothing was recorded: start() was never called")

    def tell_at_exit(self) -> None:
        """Say it if steps were marked; a program that only imports the package wants nothing."""
        if self.stepped:
            self.tell()


_forgotten = _Forgotten()


def note_started_from_outside() -> None:
    """Somebody else has started recording, so nobody has forgotten to."""
    _forgotten.started = True


atexit.register(_forgotten.tell_at_exit)


class _Scopes:
    """How many :func:`recording` scopes are open, on all threads: only the outermost starts and stops."""

    def __init__(self) -> None:
        self._open = 0
        self._has_started = False
        self._renew_lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()

    def enter(self) -> None:
        with self._lock:
            if self._open == 0:
                was_on = _internal.state() == _internal.ON
                start()
                self._has_started = not was_on
            self._open += 1

    def leave(self) -> None:
        with self._lock:
            self._open -= 1
            ends = self._open == 0 and self._has_started and _internal.state() == _internal.ON
            if ends:
                looks.ended()
                stop(finish=False)
        if ends:
            finish_files()


_scopes = _Scopes()


class Recording:
    """What :func:`recording` gives: a context manager and decorator."""

    def __init__(self, settings: dict[str, str | Sequence[str]]) -> None:
        self._settings = settings

    def _enter(self) -> None:
        if self._settings:
            config(**self._settings)
        _scopes.enter()

    def __enter__(self) -> Callable[[], Path | None]:
        self._enter()
        return recording_directory

    def __exit__(self, *exception: object) -> None:
        _scopes.leave()

    def __call__(self, function: Function) -> Function:
        return decorate(function, self._enter, _scopes.leave, is_stepwise=False)


def recording(**settings: str | Sequence[str]) -> Recording:
    """Record what happens inside a ``with`` block or a decorated function.

    Takes the arguments of :func:`config`; without any, what is set already counts. The block gets a
    function that gives the directory of the recording. Inside another such block, or where recording
    goes on already, it starts and stops nothing. A decorated coroutine or generator is recorded until it
    is done.

    .. code-block:: python

        with msmemscope.recording(events="alloc,free", output="./results") as directory:
            train()
        print(directory())
    """
    return Recording(settings)


def recording_directory() -> Path | None:
    """The directory with the recording and the result files of this process, if there is one yet."""
    directory = _internal.process_directory()
    return None if directory is None else Path(directory)


def finish_files(*, is_told: bool = False) -> None:
    """Write the result files of what is recorded so far, unless the command line does it at the end."""
    directory = _internal.process_directory()
    if directory is None or _internal.is_supervised():
        return
    program, later = _paths.program(), f"{_messages.tool_name()} finish {shlex.quote(str(directory))}"
    if program is None:
        _messages.warn_once(f"the recording is in {directory}; write its files with: {later}")
        return
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "MSMEMSCOPE_RECORDING")}
    try:
        _internal.flush()
        finished = subprocess.run(
            [str(program), "finish", str(directory)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        text, is_written = finished.stdout.decode("utf-8", "replace").rstrip(), finished.returncode == 0
    except (OSError, RecorderError) as error:
        text, is_written = str(error), False
    if not is_written:
        _messages.warning(
            f"the files of {directory} could not be written, the recording is kept: {text}\n"
            f"when the cause is removed: {later}"
        )
    elif _notebook.shell() is not None:
        _messages.tell(f"[{_messages.tool_name()}] {_notebook.short_line(text, Path(directory))}")
    elif is_told or _is_interactive():
        _messages.tell(text)  # else the same is told at the end of the program


@atexit.register
def _finish_after_interrupt() -> None:
    """Write the files if an uncaught KeyboardInterrupt ends the program.

    Python then ends itself by the signal, without the exit handlers of C, at which the recorder does it.
    """
    kind = getattr(sys, "last_type", None)
    is_interrupted = isinstance(kind, type) and issubclass(kind, KeyboardInterrupt) and not _is_interactive()
    if is_interrupted and _recorder.has_results():
        finish_files(is_told=True)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules
