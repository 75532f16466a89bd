"""A small framework on the stand-in device, for programs under test.

It uses the device the way torch_npu does: memory comes from ``aclrtMallocAlign32``, and a pool tells mstx about
its blocks if it finds the recorder's name in ``LD_PRELOAD`` at its first allocation.
"""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

_HOOK = "libascend_kernel_hook.so"


class _Range(ctypes.Structure):
    _fields_ = [("device", c_uint32), ("address", c_void_p), ("size", c_uint64)]


class _Heap(ctypes.Structure):
    _fields_ = [("usage", c_int), ("type", c_int), ("description", c_void_p)]


class _Regions(ctypes.Structure):
    _fields_ = [
        ("heap", c_void_p),
        ("type", c_int),
        ("count", c_size_t),
        ("descriptions", c_void_p),
        ("handles", c_void_p),
    ]


class _Reference(ctypes.Structure):
    _fields_ = [("type", c_int), ("address", c_void_p)]


class _References(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("references", c_void_p)]


acl = ctypes.CDLL("libascendcl.so")
mstx = ctypes.CDLL("libms_tools_ext.so")
mstx.mstxDomainCreateA.restype = c_void_p
mstx.mstxDomainCreateA.argtypes = [c_char_p]
mstx.mstxMemHeapRegister.restype = c_void_p
mstx.mstxMemHeapRegister.argtypes = [c_void_p, POINTER(_Heap)]
mstx.mstxMemRegionsRegister.argtypes = [c_void_p, POINTER(_Regions)]
mstx.mstxMemRegionsUnregister.argtypes = [c_void_p, POINTER(_References)]
mstx.mstxMarkA.argtypes = [c_char_p, c_void_p]


def begin(device=0):
    """Opens a device."""
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(c_int(device)) == 0


def end(device=0):
    """Closes it."""
    assert acl.aclrtResetDevice(c_int(device)) == 0
    assert acl.aclFinalize() == 0


def mark(message):
    """A point in time."""
    mstx.mstxMarkA(message.encode(), None)


def allocate(size):
    """Memory from the driver, of exactly this size."""
    address = c_void_p()
    assert acl.aclrtMallocAlign32(byref(address), c_size_t(size), c_int(0)) == 0
    return address.value


def free(address):
    """Gives it back."""
    assert acl.aclrtFree(c_void_p(address)) == 0


class _Physical(ctypes.Structure):
    _fields_ = [
        ("handle_type", c_int),
        ("allocation_type", c_int),
        ("attribute", c_int),
        ("device", c_uint32),
        ("place", c_int),
        ("reserve", c_uint64),
    ]


def create(size, device=0):
    """Physical memory without an address, as pools with expandable segments take it."""
    handle = c_void_p()
    on_device = 1
    properties = _Physical(device=device, place=on_device)
    assert acl.aclrtMallocPhysical(byref(handle), c_size_t(size), byref(properties), c_uint64(0)) == 0
    return handle.value


def destroy(handle):
    """Gives it back."""
    assert acl.aclrtFreePhysical(c_void_p(handle)) == 0


def _finds_the_recorder():
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = c_char_p
    entries = (getenv(b"LD_PRELOAD") or b"").decode().split(":")
    return any(os.path.realpath(entry).endswith("/" + _HOOK) for entry in entries if entry)


class Pool:
    """A pool of memory on a device that hands out blocks, one after the other."""

    def __init__(self, size=1 << 24, device=0):
        self._device = device
        self._size = size
        self._start = None
        self._used = 0
        self._reports = False

    def block(self, size):
        """A block; the first one takes the memory from the driver and looks for the recorder."""
        if self._start is None:
            self._reports = _finds_the_recorder()
            self._start = allocate(self._size)
        address = self._start + self._used
        self._used += size
        if self._reports:
            self._tell_size(address)
            region = _Range(self._device, address, size)
            batch = _Regions(None, 0, 1, ctypes.cast(byref(region), c_void_p), None)
            mstx.mstxMemRegionsRegister(self._domain(), byref(batch))
        return address

    def release(self, address):
        """The block is free again."""
        if self._reports:
            self._tell_size(address)
            reference = _Reference(0, address)
            mstx.mstxMemRegionsUnregister(
                self._domain(), byref(_References(1, ctypes.cast(byref(reference), c_void_p)))
            )

    def close(self):
        """Gives the memory back to the driver."""
        free(self._start)

    @staticmethod
    def _domain():
        return mstx.mstxDomainCreateA(b"ptaCaching")

    def _tell_size(self, address):
        heap = _Range(self._device, address, self._size)
        mstx.mstxMemHeapRegister(self._domain(), byref(_Heap(0, 0, ctypes.cast(byref(heap), c_void_p))))
