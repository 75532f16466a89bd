"""Tells when a loop of the job goes around: steps of optimizers and profilers.

Steps come from these turns where nobody marks them. Calls of modules, the loops of inference, are told by
:mod:`.modules`.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import Any, Callable

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import _internal
from .._holders.schedule import OPTIMIZER, PROFILER, looks
from . import phases, ranks
from .harmless import harmless
from .module_calls import is_compiling

PROFILER_STEP = 0
OPTIMIZER_STEP = 1
MODULE_CALL = 2

#: Modules whose class ``profile`` has a method ``step``.
_PROFILERS = ("torch.profiler", "torch_npu.profiler")


class Numbers:
    """Numbers for objects, counted from one, without keeping or comparing them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._last = 0

    def of(self, thing: Any) -> int:
        """The number of an object."""
        reference, number = self._known.get(id(thing), (None, 0))
        if reference is None or reference() is not thing:
            self._last += 1
            number = self._last
            self._known[id(thing)] = (weakref.ref(thing), number)
        return number


class _Running(threading.local):
    """Optimizers whose steps have begun on this thread, outermost first."""

    def __init__(self) -> None:
        self.optimizers: list[int] = []


_optimizers, _profilers = Numbers(), Numbers()
_running = _Running()
_handles: list[Any] = []
_replaced: dict[str, tuple[Any, Callable[..., Any], Callable[..., Any]]] = {}


def follow(is_wanted: bool) -> None:
    """Observe loops, or stop doing so."""
    if is_wanted and not _handles:
        _handles.append(register_optimizer_step_pre_hook(_step_begins))
        _handles.append(register_optimizer_step_post_hook(_step_ends))
    elif not is_wanted:
        while _handles:
            _handles.pop().remove()
    for name in _PROFILERS:
        _follow_profiler(name, is_wanted)


@harmless("steps of an optimizer")
def _step_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    if is_compiling():
        return
    running = _running.optimizers
    if id(optimizer) in running:
        # Its last step has failed, and those inside it.
        del running[running.index(id(optimizer)) :]
    if not running:
        _internal.autograd(phases.OPTIMIZER)
    running.append(id(optimizer))


@harmless("steps of an optimizer")
def _step_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    running = _running.optimizers
    if is_compiling() or id(optimizer) not in running:
        return
    del running[running.index(id(optimizer)) :]
    if not running:
        _internal.autograd(phases.OTHER)
        _internal.loop_turn(OPTIMIZER_STEP, _optimizers.of(optimizer))
        looks.turned(OPTIMIZER)
        ranks.learn()


def _follow_profiler(name: str, is_wanted: bool) -> None:
    if not is_wanted:
        profile, original, replacement = _replaced.pop(name, (None, None, None))
        if profile is not None and getattr(profile, "step", None) is replacement:
            profile.step = original
        return
    profile = getattr(sys.modules.get(name), "profile", None)
    original = getattr(profile, "step", None)
    if name in _replaced or profile is None or original is None:
        return

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _turned(self)
        return result

    profile.step = step
    _replaced[name] = (profile, original, step)


@harmless("steps of a profiler")
def _turned(profiler: Any) -> None:
    _internal.loop_turn(PROFILER_STEP, _profilers.of(profiler))
    looks.turned(PROFILER)
    ranks.learn()
