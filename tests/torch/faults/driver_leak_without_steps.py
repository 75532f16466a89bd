"""Driver memory alive after the runtime was shut down; nobody marked steps."""

import ctypes

from common import IS_FAULTY, Runtime

library = ctypes.CDLL("libascendcl.so")
assert library.aclInit(None) == 0
assert library.aclrtSetDevice(0) == 0
runtime = Runtime()
kept = runtime.allocate(5 << 20)  # FAULT
returned = runtime.allocate(7 << 20)
runtime.free(returned)
if not IS_FAULTY:
    runtime.free(kept)
assert library.aclFinalize() == 0
