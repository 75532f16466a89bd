"""Stand-in for the Python module `mstx`, which ships only with CANN: marks and ranges for tools that listen.

Calls go to `libms_tools_ext.so`, where a tool may have hooked in; without that library they do nothing.
"""

import ctypes
import os

__all__ = ["mark", "range_start", "range_end", "get_tool_id"]


def _load():
    home = os.environ.get("ASCEND_HOME_PATH", "")
    for name in (os.path.join(home, "lib64", "libms_tools_ext.so"), "libms_tools_ext.so"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        library.mstxMarkA.argtypes, library.mstxMarkA.restype = [text, handle], None
        library.mstxRangeStartA.argtypes, library.mstxRangeStartA.restype = [text, handle], ctypes.c_uint64
        library.mstxRangeEnd.argtypes, library.mstxRangeEnd.restype = [ctypes.c_uint64], None
        library.mstxGetToolId.argtypes, library.mstxGetToolId.restype = [ctypes.POINTER(ctypes.c_uint64)], None
        library.mstxDomainCreateA.argtypes, library.mstxDomainCreateA.restype = [text], handle
        library.mstxDomainMarkA.argtypes, library.mstxDomainMarkA.restype = [handle, text, handle], None
        library.mstxDomainRangeStartA.argtypes = [handle, text, handle]
        library.mstxDomainRangeStartA.restype = ctypes.c_uint64
        library.mstxDomainRangeEnd.argtypes, library.mstxDomainRangeEnd.restype = [handle, ctypes.c_uint64], None
        return library
    return None


_library = _load()
_domains = {}


def _domain(name):
    if name not in _domains:
        _domains[name] = _library.mstxDomainCreateA(name.encode())
    return _domains[name]


def mark(message, stream=None, domain="default"):
    """Marks a moment."""
    if _library is None:
        return
    if domain == "default":
        _library.mstxMarkA(message.encode(), stream)
    else:
        _library.mstxDomainMarkA(_domain(domain), message.encode(), stream)


def range_start(message, stream=None, domain="default"):
    """Begins a range; returns its id, 0 when nobody listens."""
    if _library is None:
        return 0
    if domain == "default":
        return _library.mstxRangeStartA(message.encode(), stream)
    return _library.mstxDomainRangeStartA(_domain(domain), message.encode(), stream)


def range_end(range_id, domain="default"):
    """Ends a range by its id."""
    if _library is None:
        return
    if domain == "default":
        _library.mstxRangeEnd(range_id)
    else:
        _library.mstxDomainRangeEnd(_domain(domain), range_id)


def get_tool_id():
    """Id of the tool that listens, 0 when there is none."""
    if _library is None:
        return 0
    number = ctypes.c_uint64(0)
    _library.mstxGetToolId(ctypes.byref(number))
    return number.value
