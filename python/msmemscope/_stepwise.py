"""Decorates functions so that something is entered and left around their code.

Coroutines and generators give control away in the middle. Several of them share a thread, so a region
that stayed open meanwhile would swallow what others do; so it is left at each suspension and entered
again at each resumption, unless the whole run is meant.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Generator
from typing import Any, Callable, TypeVar

from .exceptions import UnsupportedTargetError

Function = TypeVar("Function", bound=Callable[..., Any])


def decorate(
    function: Function, enter: Callable[[], None], leave: Callable[[], None], *, is_stepwise: bool = True
) -> Function:
    """``function`` with ``enter`` and ``leave`` around every stretch of its own code, or once around all of it."""
    if isinstance(function, type) or not callable(function):
        kind = "a class" if isinstance(function, type) else type(function).__name__
        raise UnsupportedTargetError(f"this decorates functions only, not {kind}")
    begin, end = (_nothing, _nothing) if is_stepwise else (enter, leave)
    resume, suspend = (enter, leave) if is_stepwise else (_nothing, _nothing)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            begin()
            try:
                return await _Stretches(function(*args, **kwargs).__await__(), resume, suspend)
            finally:
                end()

        return coroutine  # type: ignore[return-value]

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def asynchronous_generator(*args: Any, **kwargs: Any) -> Any:
            begin()
            try:
                generator = function(*args, **kwargs)
                step = generator.__anext__()
                while True:
                    try:
                        item = await _Stretches(step.__await__(), resume, suspend)
                    except StopAsyncIteration:
                        return
                    try:
                        value = yield item
                    except BaseException as error:  # noqa: BLE001 - thrown in from outside, passed on as it is
                        step = generator.athrow(error)
                    else:
                        step = generator.asend(value)
            finally:
                end()

        return asynchronous_generator  # type: ignore[return-value]

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            begin()
            try:
                return (yield from _Stretches(function(*args, **kwargs), resume, suspend))
            finally:
                end()

        return types.coroutine(generator) if _is_awaited(function) else generator  # type: ignore[return-value]

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            return function(*args, **kwargs)
        finally:
            leave()

    return plain  # type: ignore[return-value]


def _nothing() -> None:
    """Neither entered nor left."""


def _is_awaited(function: Any) -> bool:
    """Whether a generator function was made awaitable by ``types.coroutine``."""
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return bool(function.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)


class _Stretches:
    """Drives a generator, entering before and leaving after every stretch."""

    def __init__(self, inner: Generator[Any, Any, Any], enter: Callable[[], None], leave: Callable[[], None]) -> None:
        self._inner = inner
        self._enter = enter
        self._leave = leave

    def __iter__(self) -> Generator[Any, Any, Any]:
        inner = self._inner
        resume: Callable[[], Any] = functools.partial(next, inner)
        try:
            while True:
                self._enter()
                try:
                    item = resume()
                except StopIteration as end:
                    return end.value
                finally:
                    self._leave()
                try:
                    value = yield item
                except BaseException as error:
                    # Thrown in from outside, passed on as it is. Iterators that are no generators have neither
                    # throw() nor send().
                    if not hasattr(inner, "throw"):
                        raise
                    resume = functools.partial(inner.throw, error)
                else:
                    resume = functools.partial(next, inner) if value is None else functools.partial(inner.send, value)
        finally:
            close = getattr(inner, "close", None)
            if close is not None:
                close()

    __await__ = __iter__
