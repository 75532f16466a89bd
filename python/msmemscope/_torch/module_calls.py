"""Tells when a module is called, through PyTorch's global hooks, without anybody else taking notice of them.

A compiled module warns when there are global hooks, because they are called once more for it; ours do not mind.
While a program is compiled it is only looked at, hooks included: ours are nothing then.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any, Callable

import torch
from torch.nn.modules import module as torch_module

Hook = Callable[[Any, Any], None]
AfterHook = Callable[[Any, Any, Any], None]

#: Whether a compiler only looks at the program. Compilers know the answer and leave out what depends on it.
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

#: The kinds of hooks that concern calls of modules.
_KINDS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
)
_QUESTION = "_has_any_global_hook"
_ours: list[Callable[..., None]] = []
_original: list[Callable[[], Any]] = []


def _has_hooks_of_others() -> bool:
    kinds = [getattr(torch_module, kind, {}) for kind in _KINDS]
    # Some kinds are only flags of hooks of another kind.
    return any(callable(hook) and hook not in _ours for hooks in kinds for hook in list(hooks.values()))


def _register_after(hook: AfterHook) -> Any:
    """A hook that is called also if the module fails, where PyTorch can do that."""
    try:
        return torch_module.register_module_forward_hook(hook, always_call=True)
    except TypeError:
        return torch_module.register_module_forward_hook(hook)


def error_being_handled() -> int:
    """The exception that this thread is handling, by identity; zero if it is handling none."""
    error = sys.exc_info()[1]
    return 0 if error is None else id(error)


def is_outermost_call() -> bool:
    """Whether the module that this thread is calling is called by no other one, nor by itself."""
    file = torch_module.__file__
    frame = _beyond(sys._getframe(1), lambda code: code.co_filename != file)
    frame = _beyond(frame, lambda code: code.co_filename == file)
    return _beyond(frame, lambda code: code.co_filename != file) is None


def _beyond(frame: FrameType | None, is_passed: Callable[[CodeType], bool]) -> FrameType | None:
    """The first frame further out that is not to be passed."""
    while frame is not None and is_passed(frame.f_code):
        frame = frame.f_back
    return frame


class Observation:
    """Calls a function before each call of a module, and another one after it, until it is removed."""

    def __init__(self, function: Hook, after: AfterHook | None = None) -> None:
        def hook(module: Any, arguments: Any) -> None:
            if not is_compiling():
                function(module, arguments)

        self._hooks: list[Callable[..., None]] = [hook]
        if after is not None:

            def after_hook(module: Any, arguments: Any, result: Any) -> None:
                if not is_compiling():
                    after(module, arguments, result)

            self._hooks.append(after_hook)
        _ours.extend(self._hooks)
        # Older releases of PyTorch do not ask.
        if not _original and hasattr(torch_module, _QUESTION):
            _original.append(getattr(torch_module, _QUESTION))
            setattr(torch_module, _QUESTION, _has_hooks_of_others)
        self._handles = [torch_module.register_module_forward_pre_hook(hook)]
        if after is not None:
            self._handles.append(_register_after(self._hooks[1]))

    def remove(self) -> None:
        """Call it no longer."""
        for handle in self._handles:
            handle.remove()
        for hook in self._hooks:
            _ours.remove(hook)
        if not _ours and _original:
            original = _original.pop()
            if getattr(torch_module, _QUESTION) is _has_hooks_of_others:
                setattr(torch_module, _QUESTION, original)
