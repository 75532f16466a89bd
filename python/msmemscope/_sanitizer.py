"""Bridge to the sanitizer of torch_npu."""

from __future__ import annotations

from .exceptions import FrameworkError

__all__ = ["enable_npu_sanitizer"]


def enable_npu_sanitizer() -> None:
    """Switch on the stream sanitizer of torch_npu, which checks accesses for missing synchronisation.

    :raises msmemscope.exceptions.FrameworkError: if this torch_npu has none.
    """
    try:
        from torch_npu.npu import _sanitizer  # type: ignore[import-not-found]
    except ImportError as error:
        raise FrameworkError(f"the sanitizer needs torch_npu: {error}") from None
    _sanitizer.enable_npu_sanitizer()
