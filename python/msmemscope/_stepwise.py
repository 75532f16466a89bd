"""Decorates functions so that something is entered while their code runs and left while it does not.

Coroutines and generators give control away in the middle. Several of them share a thread, so a region
that stayed open meanwhile would swallow what others do; here it is left at each suspension and entered
again at each resumption.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Generator
from typing import Any, Callable, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def decorate(function: Function, enter: Callable[[], None], leave: Callable[[], None]) -> Function:
    """``function`` with ``enter`` and ``leave`` around every stretch of its own code."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _Stretches(function(*args, **kwargs).__await__(), enter, leave)

        return coroutine  # type: ignore[return-value]

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def asynchronous_generator(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            try:
                while True:
                    try:
                        item = await _Stretches(generator.__anext__().__await__(), enter, leave)
                    except StopAsyncIteration:
                        return
                    yield item
            finally:
                await generator.aclose()

        return asynchronous_generator  # type: ignore[return-value]

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from _Stretches(function(*args, **kwargs), enter, leave))

        return generator  # type: ignore[return-value]

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            return function(*args, **kwargs)
        finally:
            leave()

    return plain  # type: ignore[return-value]


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
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in from outside, passed on as it is
                    resume = functools.partial(inner.throw, error)
                else:
                    # Iterators that are no generators have no send().
                    resume = functools.partial(next, inner) if value is None else functools.partial(inner.send, value)
        finally:
            close = getattr(inner, "close", None)
            if close is not None:
                close()

    __await__ = __iter__
