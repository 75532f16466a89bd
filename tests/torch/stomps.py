"""Operators and host code that damage memory that is not theirs; run with the name of the damage.

Every damage hits the tensor `victim`; its name behind `no_` does the same work without damage.
"""

import ctypes
import sys
import threading

import torch
import torch_npu  # noqa: F401

acl = ctypes.CDLL("libascendcl.so")
acl.aclrtMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
acl.aclrtMemcpyAsync.argtypes = [*acl.aclrtMemcpy.argtypes, ctypes.c_void_p]
HOST_TO_DEVICE = 1

#: Bytes of a tensor here, and of the block the pool gives for it.
TENSOR_BYTES, BLOCK_BYTES = 512, 1024

library = torch.library.Library("stomp", "DEF")
library.define("spill(Tensor x, int extra_bytes) -> Tensor")
library.define("late(Tensor x, int address, int length) -> Tensor")
library.define("chain(Tensor x, int address, int length) -> Tensor")
runtime = ctypes.CDLL("libruntime.so")
Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class KernelArguments(ctypes.Structure):
    """What a kernel of the device is given: a function and its argument."""

    _fields_ = (("function", Work), ("argument", ctypes.c_void_p))


runtime.standinKernel.restype = ctypes.c_void_p
runtime.standinKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint32]
acl.aclrtLaunchKernelWithHostArgs.argtypes = [
    *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t),
]
runtime.standinSubmit.argtypes = [ctypes.c_void_p, Work, ctypes.c_void_p]
sources = []


#: Set when the damage has been prepared.
goes_on = threading.Event()


def junk(length):
    """Host memory full of sevens that stays where it is."""
    sources.append(ctypes.create_string_buffer(b"\7" * length, length))
    return ctypes.addressof(sources[-1])


def spill(x, extra_bytes):
    """Writes its output, and this many bytes behind it."""
    y = x + 1
    torch.npu.synchronize()
    length = y.nbytes + extra_bytes
    assert acl.aclrtMemcpy(y.data_ptr(), length, junk(length), length, HOST_TO_DEVICE) == 0
    return y


def late(x, address, length):
    """Starts a copy to an address that it remembers, and does not wait for it."""
    y = x + 1
    if length:
        stream = torch.npu.current_stream().npu_stream
        torch.npu.synchronize()
        assert acl.aclrtMemcpyAsync(address, length, junk(length), length, HOST_TO_DEVICE, stream) == 0
    return y


def launch(kernel, work):
    """Launches a kernel that does some work on the host."""
    arguments = KernelArguments(Work(lambda _: work()), None)
    sources.append(arguments)
    handle = runtime.standinKernel(f"{kernel}_{'0123456789abcdef' * 2}_3".encode(), 0)
    stream = torch.npu.current_stream().npu_stream
    assert (
        acl.aclrtLaunchKernelWithHostArgs(
            handle, 1, stream, None, ctypes.addressof(arguments), ctypes.sizeof(arguments), None, 0
        )
        == 0
    )


def chain(x, address, length):
    """Launches several kernels, one of which writes where it should not."""
    y = x + 1
    room = torch.empty_like(x)
    launch("Gather", lambda: ctypes.memset(room.data_ptr(), 1, room.nbytes))
    launch("ScatterNd", lambda: ctypes.memset(address, 7, length) and None)
    launch("Reduce", lambda: ctypes.memset(y.data_ptr(), 2, y.nbytes))
    torch.npu.synchronize()
    return y


library.impl("spill", spill, "PrivateUse1")
library.impl("chain", chain, "PrivateUse1")
library.impl("late", late, "PrivateUse1")


def past_the_output(is_harmful):
    hole = torch.empty(128, device="npu")
    victim = torch.full((128,), 3.0, device="npu")
    assert victim.data_ptr() - hole.data_ptr() == BLOCK_BYTES
    begin(victim)
    x = torch.ones(128, device="npu")
    del hole  # the output of the next operator lies there
    y = torch.ops.stomp.spill(x, BLOCK_BYTES - TENSOR_BYTES + 88 if is_harmful else 0)
    assert victim.data_ptr() - y.data_ptr() == BLOCK_BYTES
    return victim


def one_of_several_kernels(is_harmful):
    x = torch.ones(128, device="npu")
    victim = torch.full((128,), 3.0, device="npu")
    begin(victim)
    torch.ops.stomp.chain(x, victim.data_ptr() + 100, 64 if is_harmful else 0)
    return victim


def freed_and_reused(is_harmful):
    x = torch.ones(128, device="npu")
    gone = torch.empty(128, device="npu")
    address = gone.data_ptr()
    del gone
    victim = torch.full((128,), 3.0, device="npu")
    assert victim.data_ptr() == address
    begin(victim)
    torch.ops.stomp.late(x, address + 100, 64 if is_harmful else 0)
    return victim


def host_copy_overrun(is_harmful):
    target = torch.zeros(128, device="npu")
    victim = torch.full((128,), 3.0, device="npu")
    begin(victim)
    x = target * 2
    length = BLOCK_BYTES + 24 if is_harmful else TENSOR_BYTES
    assert acl.aclrtMemcpy(target.data_ptr(), length, junk(length), length, HOST_TO_DEVICE) == 0
    x.relu_()
    return victim


def other_stream(is_harmful):
    """A stream has not yet come to its work when the memory for it is used again: nobody told the pool.

    The work is held up until `main` goes on, or for a moment if everything waits for it before that.
    """
    side = torch.npu.Stream()
    gone = torch.zeros(128, device="npu")
    address = gone.data_ptr()
    torch.npu.synchronize()
    work = Work(lambda _: goes_on.wait(0.3 if "--brief" in sys.argv else None))
    sources.append(work)
    assert runtime.standinSubmit(side.npu_stream, work, None) == 0
    with torch.npu.stream(side):
        gone.fill_(7)
    if not is_harmful:
        gone.record_stream(side)
    del gone
    victim = torch.full((128,), 3.0, device="npu")
    assert (victim.data_ptr() == address) == is_harmful or "--brief" in sys.argv
    begin(victim)
    return victim


def begin(victim):
    """Tells the Python interface about the victim, if it is to watch."""
    if "--python" in sys.argv:
        import msmemscope

        msmemscope.watcher.watch(victim, name="victim")


def main():
    damage, is_harmful = sys.argv[1].removeprefix("no_"), not sys.argv[1].startswith("no_")
    victim = globals()[damage](is_harmful)
    torch.npu.current_stream().synchronize()
    goes_on.set()
    torch.npu.synchronize()
    total = victim * 1
    total.sigmoid_()
    print(float(victim.sum()))


if __name__ == "__main__":
    main()
