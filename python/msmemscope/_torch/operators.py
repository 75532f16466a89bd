"""The memory that operators of PyTorch touch, through a dispatch mode; where :mod:`.launches` cannot see
the operators themselves, their begins and ends too.

A mode belongs to a thread. It is entered on the thread that starts recording and on every thread that
begins while it goes on; autograd's threads inherit it. Threads that were running before are named. Where
the recording ends on another thread, the mode goes after the next operator of its own.
"""

from __future__ import annotations

import importlib
import threading
from types import MethodType
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _internal, _messages
from . import mode_stack, subclasses
from .watching import Watching


def _placeholders() -> tuple[type, ...]:
    """Types of tensors that stand for others while shapes are worked out or programs are transformed."""
    found = []
    for module, name in (("fake_tensor", "FakeTensor"), ("functional_tensor", "FunctionalTensor")):
        try:
            found.append(getattr(importlib.import_module(f"torch._subclasses.{module}"), name))
        except (ImportError, AttributeError):
            continue  # Not in this release.
    return tuple(found)


_PLACEHOLDERS = _placeholders()
_NOT_TOUCHED, _READ, _WRITTEN = 0, 1, 2

#: The most common types of tensors without a dispatch of their own.
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def _dispatch_elsewhere(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """An operator on tensors that have a dispatch of their own."""
    # Placeholders have no memory, and their own mode comes behind this one: declining would end the search
    # before it is asked.
    if any(issubclass(kind, _PLACEHOLDERS) for kind in types):
        return func(*args, **(kwargs or {}))
    # Other tensors (distributed) are taken apart first; what they are made of comes here afterwards.
    return NotImplemented


#: Packages whose threads serve a notebook or a debugger and run no operators.
_SERVICES = frozenset(("IPython", "debugpy", "ipykernel", "pydevd", "_pydevd_bundle", "tornado", "zmq"))


def _is_service(thread: threading.Thread) -> bool:
    origins = (type(thread), getattr(thread, "_target", None))
    packages = (str(getattr(origin, "__module__", None)).partition(".")[0] for origin in origins)
    return any(package in _SERVICES for package in packages)


def _is_tensor_type(kind: Any) -> bool:
    return "Tensor" in str(kind)


def _base_name(schema: Any) -> str:
    """``zeros_like`` of ``aten::zeros_like``."""
    return str(schema.name).rpartition("::")[2]


def _uses(schema: Any) -> tuple[list[tuple[str, int]], list[int]]:
    """How an operator touches its arguments and results, as its schema tells.

    An argument that may only be aliased, and any argument of an operator that takes nothing but the
    form of it (``new_zeros``, ``ones_like``), gives a view or a form but is not read. Operators that
    only reserve memory (``empty``) write nothing.
    """
    name = _base_name(schema)
    takes_form_only = name.startswith("new_") or name.endswith("_like")
    reserves_only = "empty" in name
    arguments = []
    for argument in schema.arguments:
        use = _NOT_TOUCHED
        if _is_tensor_type(argument.type):
            alias = argument.alias_info
            if alias is not None and alias.is_write:
                use = _WRITTEN
            elif alias is None and not takes_form_only:
                use = _READ
        arguments.append((argument.name, use))
    results = []
    for result in schema.returns:
        use = _NOT_TOUCHED
        alias = result.alias_info
        is_view = alias is not None and not alias.is_write
        if _is_tensor_type(result.type) and not is_view and not reserves_only:
            use = _WRITTEN
        results.append(use)
    return arguments, results


def _describe(function: Any) -> _internal.Operator | None:
    """What is reported about an operator; nothing for those that only talk to the profiler."""
    if getattr(function, "namespace", None) == "profiler":
        return None
    name = f"{function.__module__}.{function.__name__}"
    schema = getattr(function, "_schema", None)
    arguments, results = ([], []) if schema is None else _uses(schema)
    return _internal.Operator(name, arguments, results)


class _Mode(TorchDispatchMode):
    """Reports every operator that runs while it is active."""

    #: Operators that take functions are passed on; what runs inside of them is not seen.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Programs are compiled as without us; the operators of the outcome come here when they run."""
        return True

    def __init__(self, recorder: _internal.OperatorRecorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.watch(None)

    def watch(self, watching: Watching | None) -> None:
        """Have blocks looked at around operators, or not."""
        self._watching = watching
        if watching is None:
            # Native from end to end: every call of another function would be paid for by every operator.
            # PyTorch wants a method of the mode.
            self.__torch_dispatch__ = MethodType(self._recorder.dispatch, self)  # type: ignore[method-assign]
        else:
            self.__dict__.pop("__torch_dispatch__", None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the native one, with blocks that are looked at before and after."""
        kwargs = kwargs or {}
        recorder, watching = self._recorder, self._watching
        if not recorder.are_plain(types or ()):
            return _dispatch_elsewhere(func, types, args, kwargs)
        known = recorder.known(func)
        if known is None or watching is None:
            return func(*args, **kwargs)
        operator, function = known
        result = None
        inherited = _internal.enter_inherited()
        try:
            device = recorder.begin(operator, args, kwargs)
        except Exception as error:  # noqa: BLE001 - the operator must run whatever we cannot read
            device = _internal.NOT_RECORDED
            _messages.warn_once(f"an operator's arguments cannot be read: {error}")
        call = watching.before(operator, args, kwargs)
        try:
            result = function(*args, **kwargs)
        finally:
            watching.after(operator, call, result)
            try:
                recorder.end(operator, device, result)
            except Exception as error:  # noqa: BLE001 - as above
                _messages.warn_once(f"an operator's results cannot be read: {error}")
            _internal.leave_inherited(inherited)
        return result


class _Farewell:
    """Lies among the arguments of an operator while the mode handles it, and goes with them, when that is over."""

    def __init__(self, retire: Callable[[], None]) -> None:
        self._retire = retire

    def __del__(self) -> None:
        self._retire()


class _Operators:
    """Enters the mode on all threads it can reach."""

    def __init__(self) -> None:
        self._recorder = _internal.OperatorRecorder(
            torch.Tensor,
            getattr(torch._ops, "OpOverload", None),
            list(_PLAIN_TYPES),
            _describe,
            _dispatch_elsewhere,
            lambda: _Farewell(self._leave_if_not_wanted),
            _messages.warn_once,
        )
        self._mode = _Mode(self._recorder)
        self._local = threading.local()
        self._is_wanted = False
        self._original_bootstrap: Any | None = None

    def follow(self, *, launches: bool, accesses: bool, host: bool, watching: Watching | None) -> None:
        """Record launches, accesses, both or nothing, accesses to host memory only if asked; watch blocks."""
        self._recorder.want(launches, accesses, host)
        is_wanted = launches or accesses or watching is not None
        if is_wanted and not self._is_wanted:
            self._is_wanted = True
            self._name_other_threads("operators" if launches else "accesses")
            self._follow_new_threads()
        elif self._is_wanted and not is_wanted:
            self._is_wanted = False
            self._leave_new_threads()
        self._mode.watch(watching)
        subclasses.follow(is_wanted)
        if is_wanted:
            self._enter()
        else:
            self._leave()

    def _enter(self) -> None:
        """Enter the mode on this thread, once."""
        if not getattr(self._local, "is_entered", False):
            mode_stack.put_below_all(self._mode)
            self._local.is_entered = True

    def _leave(self) -> None:
        """Leave the mode of this thread, unless it is handling an operator just now."""
        if mode_stack.take_out(self._mode):
            self._local.is_entered = False

    def _leave_if_not_wanted(self) -> None:
        if not self._is_wanted:
            self._leave()

    def _name_other_threads(self, what: str) -> None:
        current = threading.current_thread()
        others = [
            thread.name
            for thread in threading.enumerate()
            if thread is not current and thread.is_alive() and not _is_service(thread)
        ]
        if others:
            _messages.warn_once(
                f"{what} of threads that ran before the start are not seen: {', '.join(sorted(others))}"
            )

    def _follow_new_threads(self) -> None:
        if self._original_bootstrap is not None:
            return
        original = self._original_bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
        collector = self

        def _bootstrap_inner(thread: threading.Thread) -> None:
            if collector._is_wanted:
                collector._enter()
            try:
                original(thread)
            finally:
                collector._leave()

        threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]

    def _leave_new_threads(self) -> None:
        if self._original_bootstrap is not None:
            threading.Thread._bootstrap_inner = self._original_bootstrap  # type: ignore[attr-defined]
            self._original_bootstrap = None


operators = _Operators()
