"""Pools of ATB and MindSpore that lose a block in every step, in the words these frameworks use.

ATB registers a heap, gets a handle for every block and gives blocks back by handle. MindSpore tells the pool's size
after every block and gives blocks back by address. Both leave fields uninitialised that they do not use.
"""

import ctypes

from common import IS_FAULTY, Runtime, steps

HEAP_BYTES = 64 << 20
BY_POINTER, BY_HANDLE = 0, 1


class Range(ctypes.Structure):
    _fields_ = [("device", ctypes.c_uint32), ("pointer", ctypes.c_void_p), ("size", ctypes.c_uint64)]


class Heap(ctypes.Structure):
    _fields_ = [("usage", ctypes.c_int), ("kind", ctypes.c_int), ("description", ctypes.c_void_p)]


class Regions(ctypes.Structure):
    _fields_ = [
        ("heap", ctypes.c_void_p),
        ("kind", ctypes.c_int),
        ("count", ctypes.c_size_t),
        ("ranges", ctypes.c_void_p),
        ("handles", ctypes.c_void_p),
    ]


class Reference(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("value", ctypes.c_void_p)]


class References(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("references", ctypes.c_void_p)]


mstx = ctypes.CDLL("libms_tools_ext.so")
mstx.mstxDomainCreateA.restype = ctypes.c_void_p
mstx.mstxMemHeapRegister.restype = ctypes.c_void_p
mstx.mstxMemHeapRegister.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
mstx.mstxMemRegionsRegister.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
mstx.mstxMemRegionsUnregister.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


class Pool:
    def __init__(self, domain, base):
        self.domain = mstx.mstxDomainCreateA(domain)
        self.next = base

    def tell_heap(self, base, size):
        content = Range(0, base, size)
        return mstx.mstxMemHeapRegister(self.domain, ctypes.byref(Heap(7, 7, ctypes.addressof(content))))

    def register(self, size, handle=None):
        block = self.next
        self.next += size
        content = Range(0, block, size)
        handles = ctypes.addressof(handle) if handle is not None else 0xDEAD
        mstx.mstxMemRegionsRegister(
            self.domain, ctypes.byref(Regions(0xBEEF, 7, 1, ctypes.addressof(content), handles))
        )
        return block

    def unregister(self, kind, value):
        reference = Reference(kind, value)
        mstx.mstxMemRegionsUnregister(self.domain, ctypes.byref(References(1, ctypes.addressof(reference))))


class Atb(Pool):
    def __init__(self, base):
        super().__init__(b"atb", base)
        assert self.tell_heap(base, HEAP_BYTES), "ATB stops telling when the heap is not taken"

    def allocate(self, size):
        handle = ctypes.c_void_p()
        self.register(size, handle)
        assert handle.value
        return handle.value

    def free(self, handle):
        self.unregister(BY_HANDLE, handle)


class MindSpore(Pool):
    def __init__(self, base):
        super().__init__(b"mindsporeMemPool", base)
        self.base = base

    def allocate(self, size):
        block = self.register(size)
        self.tell_heap(self.base, HEAP_BYTES)
        return block

    def free(self, block):
        self.unregister(BY_POINTER, block)
        self.tell_heap(self.base, HEAP_BYTES)


library = ctypes.CDLL("libascendcl.so")
assert library.aclInit(None) == 0 and library.aclrtSetDevice(0) == 0
memory = Runtime().allocate(2 * HEAP_BYTES).value
atb, mindspore = Atb(memory), MindSpore(memory + HEAP_BYTES)
for _ in steps(9):
    tensor = atb.allocate(1 << 20)  # FAULT: ATB
    value = mindspore.allocate(2 << 20)  # FAULT: MINDSPORE
    atb.free(atb.allocate(4096))
    mindspore.free(mindspore.allocate(8192))
    if not IS_FAULTY:
        atb.free(tensor)
        mindspore.free(value)
