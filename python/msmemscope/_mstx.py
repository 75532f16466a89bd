"""Passes on marks and ranges of ``torch.npu.mstx``.

torch_npu sends them to mstx, and so to tools, only while its own profiler runs; else its functions return at once. What
it holds back is told to the recorder here; what it sends arrives there by itself.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, Callable

from . import _internal

#: Ids of ranges that torch_npu holds back begin here; its own are small.
_FIRST_ID = 1 << 40
_DEFAULT_DOMAIN = "default"

_Native = Callable[..., Any]
_ranges = threading.local()
#: Whether torch_npu sent what it was given last.
_sends = False
#: Who wants to know of marks, by how these begin.
_observers: dict[str, Callable[[str], None]] = {}


def observe_marks(prefix: str, observer: Callable[[str], None]) -> None:
    """Call ``observer`` with every mark that begins like this, after it was made."""
    _observers[prefix] = observer


def _tell_observers(message: str) -> None:
    for prefix, observer in _observers.items():
        if message.startswith(prefix):
            observer(message)


def follow() -> None:
    """See the marks and ranges of torch_npu, once it is imported."""
    native = getattr(sys.modules.get("torch_npu"), "_C", None)
    # Releases before 2.5 have their mark apart from the rest.
    replace(native, "_mark", _mark)
    for name, relay in _RELAYS.items():
        replace(getattr(native, "_mstx", None), name, relay)


def replace(owner: Any, name: str, relay: Callable[[_Native], _Native]) -> bool:
    """Put a function in the place of a native one that it is made of; false if it is there already, or not at all."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "__wrapped__"):
        return False
    setattr(owner, name, functools.wraps(original)(relay(original)))
    return True


def _domain(arguments: tuple[Any, ...]) -> str:
    """The domain comes last; older releases have none."""
    return arguments[-1] if len(arguments) > 1 and isinstance(arguments[-1], str) else _DEFAULT_DOMAIN


def _mark_on_host(original: _Native) -> _Native:
    def mark(message: str, *rest: Any) -> Any:
        global _sends
        before = _internal.message_count()
        result = original(message, *rest)
        _sends = _internal.message_count() != before
        if not _sends:
            _internal.relay_mark(_domain((message, *rest)), message)
        _tell_observers(message)
        return result

    return mark


def _mark(original: _Native) -> _Native:
    def mark(message: str, *rest: Any) -> Any:
        """Marks in a stream are sent later, by another thread: whether they are is known from what came before."""
        if not _sends:
            _internal.relay_mark(_domain((message, *rest)), message)
        result = original(message, *rest)
        _tell_observers(message)
        return result

    return mark


def _range_start(original: _Native) -> _Native:
    def start(message: str, *rest: Any) -> Any:
        global _sends
        number = original(message, *rest)
        _sends = bool(number)
        if _sends:
            return number
        relayed = _internal.relay_range_start(_domain((message, *rest)), message)
        return _FIRST_ID + relayed if relayed else number

    return start


def _range_end(original: _Native) -> _Native:
    def end(number: int, *rest: Any) -> Any:
        if number < _FIRST_ID:
            return original(number, *rest)
        _internal.relay_range_end(_domain((number, *rest)), number - _FIRST_ID)
        return None

    return end


def _open_ranges(domain: str) -> list[int]:
    """Ranges that this thread has pushed; zero for those that torch_npu sent."""
    by_domain: dict[str, list[int]] = _ranges.__dict__.setdefault("by_domain", {})
    return by_domain.setdefault(domain, [])


def _range_push(original: _Native) -> _Native:
    def push(message: str, *rest: Any) -> Any:
        global _sends
        depth = original(message, *rest)
        _sends = depth >= 0
        domain = _domain((message, *rest))
        _open_ranges(domain).append(0 if _sends else _internal.relay_range_start(domain, message))
        return depth

    return push


def _range_pop(original: _Native) -> _Native:
    def pop(domain: str = _DEFAULT_DOMAIN) -> Any:
        ranges = _open_ranges(domain)
        if ranges:
            _internal.relay_range_end(domain, ranges.pop())
        return original(domain)

    return pop


_RELAYS = {
    "_mark": _mark,
    "_mark_on_host": _mark_on_host,
    "_range_start": _range_start,
    "_range_start_on_host": _range_start,
    "_range_end": _range_end,
    "_range_push": _range_push,
    "_range_push_on_host": _range_push,
    "_range_pop": _range_pop,
}
