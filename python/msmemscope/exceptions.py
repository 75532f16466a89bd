"""The exceptions of this package.

All of them are :class:`MsMemScopeError`, and each is also the built-in exception that fits, so that
``except ValueError`` keeps working:

>>> import msmemscope
>>> try:
...     msmemscope.config(level="operators")
... except ValueError as error:
...     print(type(error).__name__)
ConfigError
"""

from __future__ import annotations

__all__ = [
    "AddressError",
    "AnalysisError",
    "ConfigError",
    "FrameworkError",
    "MsMemScopeError",
    "RecorderError",
    "TextError",
    "UnsupportedTargetError",
]


class MsMemScopeError(Exception):
    """Base of all exceptions of this package."""


class ConfigError(MsMemScopeError, ValueError):
    """A setting has a value that is not allowed, or does not exist. Nothing was changed."""


class RecorderError(MsMemScopeError, RuntimeError):
    """The recorder is missing, does not fit this package, or cannot do what was asked."""


class FrameworkError(MsMemScopeError, RuntimeError):
    """The framework that a function needs (such as torch_npu) is missing or has no device."""


class TextError(MsMemScopeError, ValueError):
    """A name or label is empty, too long, or no valid text."""


class UnsupportedTargetError(MsMemScopeError, TypeError, NotImplementedError):
    """The object is neither a tensor nor an address, or it is decorated and no function."""


class AddressError(MsMemScopeError, ValueError):
    """At the address is no memory that can be looked at."""


class AnalysisError(MsMemScopeError, RuntimeError):
    """An analysis could not be done."""
