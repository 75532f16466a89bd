"""Keeps what fails in our hooks from reaching the job."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

from .. import _messages

Hook = TypeVar("Hook", bound=Callable[..., None])


def harmless(what: str) -> Callable[[Hook], Hook]:
    """A hook that fails says once what is not seen, and the job goes on."""

    def decorate(hook: Hook) -> Hook:
        @functools.wraps(hook)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                hook(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever foreign modules and optimizers do
                _messages.warn_once(f"{what} cannot be seen: {type(error).__name__}: {error}")

        return guarded  # type: ignore[return-value]

    return decorate
