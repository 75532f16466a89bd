"""The Python trace: which functions ran, and when."""

from __future__ import annotations

import sys
import threading
from typing import Any

from . import _internal, _messages, _paths, _recorder

__all__ = ["Tracer", "tracer"]


class Tracer:
    """Records every call of a Python or C function, on all threads.

    .. code-block:: python

        msmemscope.tracer.start()
        train()
        msmemscope.tracer.stop()

    ``config(events="traceback")`` does the same between :func:`msmemscope.start` and
    :func:`msmemscope.stop`. The result is ``python_trace_<thread>_<timestamp>.csv``, or a table in the
    ``.db`` file.
    """

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._source: Any | None = None

    @property
    def is_running(self) -> bool:
        """Whether calls are being recorded."""
        return bool(self._reasons)

    def start(self) -> None:
        """Start tracing. A second start has no effect."""
        _recorder.require()
        _recorder.settle()
        self._set("user", True)

    def stop(self) -> None:
        """Stop tracing and write the files, unless a recording goes on."""
        was_running = "user" in self._reasons
        self._set("user", False)
        if was_running and _internal.state() != _internal.ON:
            from ._session import finish_files

            finish_files()

    def _follow(self, is_wanted: bool) -> None:
        self._set("events", is_wanted)

    def _set(self, reason: str, is_wanted: bool) -> None:
        was_running = self.is_running
        if is_wanted:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        if self.is_running and not was_running:
            self._begin()
        elif was_running and not self.is_running:
            self._end()

    def _begin(self) -> None:
        source = _MonitoringSource() if hasattr(sys, "monitoring") else _ProfileSource()
        reason = source.conflict()
        if reason is not None:
            self._reasons.clear()
            _messages.warning(f"Python calls are not traced: {reason}")
            return
        self._source = source
        _internal.trace_begin(_paths.PACKAGE)
        source.install()

    def _end(self) -> None:
        if self._source is not None:
            self._source.remove()
            self._source = None
        _internal.trace_end()


class _ProfileSource:
    """The profile function of each thread, up to Python 3.11. Profilers of others stay where they are."""

    @staticmethod
    def conflict() -> str | None:
        return "another profiler is active" if sys.getprofile() is not None else None

    @staticmethod
    def install() -> None:
        is_free = getattr(threading, "_profile_hook", None) is None
        if is_free:
            threading.setprofile(_trace_new_thread)  # type: ignore[arg-type]
        untraced = [_thread_name(identity) for identity in _internal.trace_all_threads(True)]
        if not is_free:
            untraced.append("threads that begin from now on")
        if untraced:
            _messages.warning(f"Python calls are not traced where other profilers are active: {', '.join(untraced)}")

    @staticmethod
    def remove() -> None:
        _internal.trace_all_threads(False)
        if getattr(threading, "_profile_hook", None) is _trace_new_thread:
            threading.setprofile(None)  # type: ignore[arg-type]


def _thread_name(identity: int) -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return f"thread '{names.get(identity, identity)}'"


def _trace_new_thread(frame: Any, event: str, argument: Any) -> None:
    """First event of a thread that began later: replaces itself by the native function."""
    if tracer.is_running:
        _internal.trace_this_thread()
    else:
        sys.setprofile(None)


#: Places of ``sys.monitoring``, best first. The last ones are set aside for optimizers, coverage, debuggers and
#: profilers; a program that wants one of those may come later, and finds it taken only if nothing else was free.
_TOOLS = (3, 4, 5, 1, 0, 2)


class _MonitoringSource:
    """``sys.monitoring``, from Python 3.12 on; sees all threads and leaves other profilers alone."""

    def __init__(self) -> None:
        self._tool: int | None = None

    def conflict(self) -> str | None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        for tool in _TOOLS:
            if monitoring.get_tool(tool) is None:
                self._tool = tool
                return None
        return "other tools use all places of sys.monitoring"

    def _callbacks(self) -> Any:
        events = sys.monitoring.events  # type: ignore[attr-defined]
        return {
            events.PY_START: _internal.monitor_enter,
            events.PY_RESUME: _internal.monitor_enter,
            events.PY_THROW: _internal.monitor_enter,
            events.PY_RETURN: _internal.monitor_leave,
            events.PY_YIELD: _internal.monitor_leave,
            events.PY_UNWIND: _internal.monitor_leave,
            events.CALL: _internal.monitor_call,
            events.C_RETURN: _internal.monitor_native_end,
            events.C_RAISE: _internal.monitor_native_end,
        }

    def install(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.use_tool_id(self._tool, "msmemscope")
        wanted = 0
        for event, callback in self._callbacks().items():
            monitoring.register_callback(self._tool, event, callback)
            if event not in (monitoring.events.C_RETURN, monitoring.events.C_RAISE):
                wanted |= event
        monitoring.set_events(self._tool, wanted)

    def remove(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.set_events(self._tool, 0)
        for event in self._callbacks():
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)


tracer = Tracer()
