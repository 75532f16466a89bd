"""Puts hooks around functions and takes them away again."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from typing import Any, Callable, NamedTuple

from .. import _import_hook, _internal, _messages
from .._holders.schedule import FRAMEWORK, looks
from ..describe import pop_label, push_label
from ..frameworks import FRAMEWORKS, versions
from ..frameworks.protocol import DECOMPOSE, SNAPSHOT, Framework, Labels, Target

_lock = threading.RLock()

#: Attribute of our functions: the kinds of hooks in them.
_MARK = "__msmemscope_hooks__"

#: Code of the recorder for a turn of a framework's own loop.
_FRAMEWORK_STEP = 4


class _Regions(threading.local):
    """Regions that one function opens and another closes, on this thread.

    The labels hold as long as at least one region with them is open. A region that opens again was
    left by an exception; it is then the only one that is known to be open.
    """

    def __init__(self) -> None:
        self.open: dict[Labels, set[Any]] = {}

    def enter(self, labels: Labels, key: Any) -> None:
        keys = self.open.setdefault(labels, set())
        if key in keys:
            keys.clear()
        elif not keys:
            _push(labels)
        keys.add(key)

    def leave(self, labels: Labels, key: Any) -> None:
        keys = self.open.get(labels)
        if keys and key in keys:
            keys.discard(key)
            if not keys:
                _pop(labels)

    def leave_all(self) -> None:
        for labels, keys in reversed(list(self.open.items())):
            if keys:
                keys.clear()
                _pop(labels)


_regions = _Regions()


def close_regions() -> None:
    """Leave all regions of this thread: the call in which they were opened has failed."""
    _regions.leave_all()


def _push(labels: Labels) -> None:
    for label, level in labels:
        push_label(label, level)


def _pop(labels: Labels) -> None:
    for label, level in reversed(labels):
        pop_label(label, level)


class _Steps(threading.local):
    """How many functions that end a step are running on this thread: the outermost ends it."""

    def __init__(self) -> None:
        self.depth = 0


_steps = _Steps()
#: Numbers of the loops, by the function that ends their steps.
_loops: dict[tuple[Any, ...], int] = {}


def _ending_step(target: Target, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the end of a step behind it: one that raises ends none."""
    number = _loops.setdefault(target.key, len(_loops) + 1)

    @functools.wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        _steps.depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            _steps.depth -= 1
        if _steps.depth == 0:
            _internal.loop_turn(_FRAMEWORK_STEP, number)
            looks.turned(FRAMEWORK)
        return result

    return hooked


def _labelled(target: Target, function: Callable[..., Any]) -> Callable[..., Any]:
    if target.ends_step:
        function = _ending_step(target, function)

    @functools.wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if target.opens is not None:
            key = target.opens(*args, **kwargs)
            if key is not None:
                _regions.enter(target.labels, key)
            return function(*args, **kwargs)
        if target.closes is None:
            _push(target.labels)
        try:
            result = function(*args, **kwargs)
        finally:
            if target.closes is None:
                _pop(target.labels)
            else:
                _regions.leave(target.labels, target.closes(*args, **kwargs))
        if target.tagger is not None:
            _run_tagger(target.tagger, args, result)
        return result

    return hooked


def _run_tagger(tagger: Callable[..., None], arguments: tuple[Any, ...], result: Any) -> None:
    try:
        tagger(arguments, result)
    except Exception as error:  # noqa: BLE001 - the framework must not notice
        _messages.warn_once(f"{tagger.__name__} cannot label memory: {error}")


def _snapshotted(target: Target, function: Callable[..., Any]) -> Callable[..., Any]:
    from .._snapshot import snapshot_current_device

    name = "@".join((target.module, target.class_name or "", target.function))

    @functools.wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        snapshot_current_device(f"{name}@Start")
        try:
            return function(*args, **kwargs)
        finally:
            snapshot_current_device(f"{name}@End")

    return hooked


_WRAPPERS = {DECOMPOSE: _labelled, SNAPSHOT: _snapshotted}


class _Hook:
    """One function that is, or will be, replaced."""

    def __init__(self, target: Target, kind: str) -> None:
        self._target = target
        self._kind = kind
        self._holder: Any = None
        self._is_inherited = False
        self._original: Any = None
        self._replacement: Any = None

    def install(self) -> None:
        _import_hook.when_imported(self._target.module, self._replace)

    def _replace(self) -> None:
        holder: Any = sys.modules.get(self._target.module)
        if self._target.class_name is not None:
            holder = _plain_class(getattr(holder, self._target.class_name, None))
        try:
            original = inspect.getattr_static(holder, self._target.function)
        except AttributeError:
            return  # this version has no such function
        function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
        if self._kind in getattr(function, _MARK, ()):
            return  # inherited from a class that has its own hook
        replacement: Any = _WRAPPERS[self._kind](self._target, function)
        setattr(replacement, _MARK, (*getattr(function, _MARK, ()), self._kind))
        if isinstance(original, (staticmethod, classmethod)):
            replacement = type(original)(replacement)
        self._is_inherited = self._target.function not in vars(holder)
        setattr(holder, self._target.function, replacement)
        self._holder, self._original, self._replacement = holder, original, replacement

    def remove(self) -> None:
        _import_hook.forget(self._target.module, self._replace)
        if self._holder is None:
            return
        # Somebody else may have put a hook around ours; then ours has to stay.
        if inspect.getattr_static(self._holder, self._target.function, None) is not self._replacement:
            pass
        elif self._is_inherited:
            delattr(self._holder, self._target.function)
        else:
            setattr(self._holder, self._target.function, self._original)
        self._holder = None


def _plain_class(found: Any) -> Any:
    """The class itself where Ray has put a stand-in for remote objects in its place."""
    metadata = getattr(found, "__ray_metadata__", None)
    return getattr(metadata, "modified_class", found)


class _Choice(NamedTuple):
    kind: str
    target: Target


#: Hooks asked for by the user and hooks that follow the settings, by kind and function.
_manual: dict[tuple[Any, ...], _Hook] = {}
_automatic: dict[tuple[Any, ...], _Hook] = {}
_was_asked_by_hand = False


def _choose(framework: str, version: str, component: str, kind: str) -> list[_Choice]:
    _check_word("framework", framework, FRAMEWORKS)
    by_version = FRAMEWORKS[framework].versions
    fitting = [key for key in by_version if versions.matches(key, version)]
    exact = [key for key in fitting if versions.is_exact(key)]
    if not fitting:
        raise ValueError(f"version {version!r} of {framework} is not supported; supported: {_known(by_version)}")
    components = {name: kinds for key in exact or fitting for name, kinds in by_version[key].items()}
    _check_word("component", component, components)
    _check_word("hook_type", kind, components[component])
    chosen: dict[Any, _Choice] = {}
    for key in exact or fitting:
        for target in by_version[key].get(component, {}).get(kind, ()):
            chosen.setdefault(target.key, _Choice(kind, target))
    return list(chosen.values())


def _check_word(name: str, word: str, allowed: Any) -> None:
    if not isinstance(word, str):
        raise TypeError(f"{name} must be a string, not {type(word).__name__}")
    if word not in allowed:
        raise ValueError(f"unknown {name} {word!r}; known: {', '.join(allowed)}")


def _install(hooks: dict[tuple[Any, ...], _Hook], choices: list[_Choice]) -> None:
    for kind, target in choices:
        key = (kind, *target.key)
        if key not in hooks:
            hooks[key] = _Hook(target, kind)
            hooks[key].install()


def _remove(hooks: dict[tuple[Any, ...], _Hook]) -> None:
    for hook in reversed(list(hooks.values())):
        hook.remove()
    hooks.clear()


def init_framework_hooks(framework: str, version: str, component: str, hook_type: str) -> None:
    """Hook the functions of a framework's component, for labels or for snapshots.

    .. code-block:: python

        msmemscope.init_framework_hooks("vllm_ascend", "11.0", "worker", "snapshot")

    Calling it for ``decompose`` replaces the automatic hooks, which cover all frameworks.

    >>> import msmemscope
    >>> msmemscope.init_framework_hooks("pytorch", "2.7.1", "fsdp2", "decompose")
    >>> msmemscope.cleanup_framework_hooks()
    >>> msmemscope.init_framework_hooks("pytorch", "2.7.1", "fsdp3", "decompose")
    Traceback (most recent call last):
    ValueError: unknown component 'fsdp3'; known: fsdp1, fsdp2

    :param hook_type: ``decompose`` or ``snapshot``.
    """
    global _was_asked_by_hand
    if not isinstance(version, str):
        raise TypeError(f"version must be a string, not {type(version).__name__}")
    choices = _choose(framework, version, component, hook_type)
    with _lock:
        if hook_type == DECOMPOSE:
            _was_asked_by_hand = True
            _arrivals.forget()
            _remove(_automatic)
        _install(_manual, choices)


def cleanup_framework_hooks() -> None:
    """Take away all hooks that :func:`init_framework_hooks` has put in place."""
    with _lock:
        _remove(_manual)


def _known(by_version: dict[str, Any]) -> str:
    """Versions in words: ``2.6 and later``."""
    return ", ".join(f"{key[:-1]} and later" if key.endswith("+") else key for key in by_version)


class _Arrivals:
    """Hooks of frameworks that are not there yet are put in place when they are, for the version they have then."""

    def __init__(self) -> None:
        self._awaited: dict[str, Callable[[], None]] = {}

    def expect(self) -> None:
        """Wait for all frameworks that can have labels; those that are there get their hooks now."""
        for framework in FRAMEWORKS.values():
            if _decompose_targets(framework, None):
                arrived = functools.partial(_arrived, framework)
                self._awaited[framework.module] = arrived
                _import_hook.when_imported(framework.module, arrived)

    def forget(self) -> None:
        """Wait no longer."""
        for module, arrived in self._awaited.items():
            _import_hook.forget(module, arrived)
        self._awaited.clear()

    @property
    def are_expected(self) -> bool:
        """Whether anybody waits."""
        return bool(self._awaited)


_arrivals = _Arrivals()


def follow(is_wanted: bool) -> None:
    """Put the automatic hooks for labels in place, or take them away."""
    with _lock:
        if not is_wanted:
            _arrivals.forget()
            _remove(_automatic)
        elif not _was_asked_by_hand and not _arrivals.are_expected:
            _arrivals.expect()


def _arrived(framework: Framework) -> None:
    version = framework.version()
    targets = _decompose_targets(framework, version)
    if not targets:
        _messages.warn_once(
            f"{framework.name} {version} is not known: its memory has no labels of its own; "
            f"supported: {_known(framework.versions)}"
        )
    with _lock:
        if not _was_asked_by_hand:
            _install(_automatic, [_Choice(DECOMPOSE, target) for target in targets])


def _decompose_targets(framework: Framework, version: str | None) -> list[Target]:
    """The functions of a framework that get labels, each once; of any version if nobody knows which it is."""
    chosen: dict[Any, Target] = {}
    for key, components in framework.versions.items():
        if version is None or versions.matches(key, version):
            for kinds in components.values():
                for target in kinds.get(DECOMPOSE, ()):
                    chosen.setdefault(target.key, target)
    return list(chosen.values())
