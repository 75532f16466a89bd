"""Labels for memory: who owns it.

.. code-block:: python

    import msmemscope.describe as describe

    @describe.describer(owner="test1")
    def train():
        ...

    with describe.describer(owner="test2"):
        ...

    describe.describer(tensor, owner="test4")

The labels appear in the ``owner`` of the blocks if the analysis contains ``decompose``.
"""

from __future__ import annotations

import threading
from typing import Any

from . import _internal, _messages
from ._stepwise import Function, decorate
from ._texts import checked_text
from .exceptions import AddressError, UnsupportedTargetError

__all__ = ["describer"]

FRAMEWORK, COMPONENT, PROCESS, DETAIL_1, DETAIL_2, USER_DEFINED_1, USER_DEFINED_2, USER_DEFINED_3 = range(8)

MOST_USER_LABELS = 3

#: No memory lies below: there null pointers lead to.
_FIRST_ADDRESS = 4096


def checked_label(label: Any) -> str:
    """The label, if it is one."""
    return checked_text("a label", label)


def address_of(target: Any) -> int:
    """The address of a tensor, or the address itself."""
    if isinstance(target, int) and not isinstance(target, bool):
        if not _FIRST_ADDRESS <= target < 1 << 64:
            raise AddressError(f"{target} is no address")
        return target
    data_ptr = getattr(target, "data_ptr", None)
    if not callable(data_ptr):
        raise UnsupportedTargetError(f"Unsupported tensor type: {type(target).__name__} has no data_ptr()")
    try:
        return int(data_ptr())
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        # Sparse tensors, and those that only stand for others.
        raise UnsupportedTargetError(f"Unsupported tensor type: {type(target).__name__}: {error}") from error


class _Labels(threading.local):
    """The user labels of a thread: those that count, and those beyond the third."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.ignored: list[str] = []
        self.recorded: list[str] = []

    def record(self) -> None:
        """Tell the recorder which labels hold now."""
        wanted = list(dict.fromkeys(self.counted))
        kept = 0
        while kept < min(len(wanted), len(self.recorded)) and wanted[kept] == self.recorded[kept]:
            kept += 1
        for label in reversed(self.recorded[kept:]):
            _internal.label_pop(USER_DEFINED_1, _internal.intern(label))
        for label in wanted[kept:]:
            _internal.label_push(USER_DEFINED_1, _internal.intern(label))
        self.recorded = wanted

    def push(self, label: str) -> None:
        if label not in self.counted and len(set(self.counted)) >= MOST_USER_LABELS:
            self.ignored.append(label)
            _messages.warn_once(f"more than {MOST_USER_LABELS} labels at a time: '{label}' and the like are ignored")
            return
        self.counted.append(label)
        self.record()

    def pop(self, label: str) -> None:
        if label in self.ignored:
            self.ignored.remove(label)
        elif label in self.counted:
            self.counted.reverse()
            self.counted.remove(label)
            self.counted.reverse()
            self.record()


_labels = _Labels()


def open_labels() -> list[int]:
    """The labels of the regions that this thread is in, the outermost first."""
    return [_internal.intern(label) for label in _labels.recorded]


class describer:  # noqa: N801 - a documented name
    """Labels memory with its owner.

    Without a target: a context manager and decorator. All memory that the thread allocates inside gets
    the label, and all that PyTorch's autograd allocates for a backward pass that is called inside; other
    threads have labels of their own. In a coroutine or generator the decorator holds only while its code
    runs, ``with`` also while it is suspended.

    >>> from msmemscope import describe
    >>> with describe.describer(owner="embedding"):
    ...     pass
    >>> @describe.describer(owner="optimizer")
    ... def update():
    ...     return "updated"
    >>> update()
    'updated'
    >>> describe.describer(owner="manual").__enter__() is None
    False
    >>> describe.describer(owner="manual").__exit__()

    With a tensor or an address as target: the block that holds it gets the label at once, behind the
    labels that it has.

    At most three different labels count at a time on a thread, and for a block; further ones are ignored.
    That is told, by one warning or with the result.

    :param target: a tensor (anything with ``data_ptr()``), or an address, at or behind the start of a block.
    :param owner: the label, of at most 128 bytes. An ``@`` in it begins another level of the owner; commas
        appear as semicolons, line breaks and the like are escaped.
    :raises msmemscope.exceptions.UnsupportedTargetError: if the target has no address.
    :raises msmemscope.exceptions.AddressError: if the target is a number that no address can be.
    """

    def __init__(self, target: Any = None, *, owner: str) -> None:
        self.owner = checked_label(owner)
        self._has_target = target is not None
        if self._has_target:
            _internal.label_address(address_of(target), USER_DEFINED_1, _internal.intern(owner))

    def _enter(self) -> None:
        if self._has_target:
            raise TypeError("a describer of a tensor has labelled it already and opens no region")
        _labels.push(self.owner)

    def _leave(self) -> None:
        _labels.pop(self.owner)

    def __enter__(self) -> describer:
        self._enter()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._leave()

    def __call__(self, function: Function) -> Function:
        if self._has_target:
            raise TypeError("only a describer without a target decorates functions")
        return decorate(function, self._enter, self._leave)


def push_label(label: str, level: int) -> None:
    """Enter a region labelled by a framework, on one of the levels above."""
    _internal.label_push(level, _internal.intern(label))


def pop_label(label: str, level: int) -> None:
    """Leave it."""
    _internal.label_pop(level, _internal.intern(label))


def label_address(address: int, label: str, level: int) -> None:
    """Label the block at an address."""
    _internal.label_address(address, level, _internal.intern(label))
