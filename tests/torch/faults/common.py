"""What the programs with planted faults share: their variants, their steps, and the device's C interfaces."""

import ctypes
import sys

import mstx

#: Without an argument the fault is there; with `clean` the same program is right.
IS_FAULTY = "clean" not in sys.argv[1:]


def steps(count):
    """Counts steps and tells the tool where they begin and end."""
    for number in range(1, count + 1):
        span = mstx.range_start("step start", None)
        yield number
        mstx.range_end(span)


class Runtime:
    """Device memory past the framework, as extensions in C++ take it."""

    def __init__(self):
        self._library = ctypes.CDLL("libascendcl.so")
        self._library.aclrtMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_int]
        self._library.aclrtFree.argtypes = [ctypes.c_void_p]

    def allocate(self, size):
        pointer = ctypes.c_void_p()
        assert self._library.aclrtMalloc(ctypes.byref(pointer), size, 0) == 0
        return pointer

    def free(self, pointer):
        assert self._library.aclrtFree(pointer) == 0
