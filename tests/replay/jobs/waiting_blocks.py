"""Frees blocks that another stream still works on: the pool uses them again only when it has come so far."""

import ctypes
import threading

import torch
import torch_npu  # noqa: F401

MEBIBYTE = 1 << 20
ROUNDS = 4
Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def tensor(mebibytes):
    return torch.empty(int(mebibytes * MEBIBYTE), dtype=torch.uint8, device="npu")


class Gate:
    """Work that keeps a stream of the stand-in device busy until it is opened."""

    def __init__(self, stream):
        self._is_open = threading.Event()
        self._work = Work(lambda _: self._is_open.wait())
        self._stream = stream
        submit = ctypes.CDLL("libruntime.so").standinSubmit
        submit.argtypes = [ctypes.c_void_p, Work, ctypes.c_void_p]
        submit(stream.npu_stream, self._work, None)

    def open(self):
        self._is_open.set()
        self._stream.synchronize()


def main():
    side = torch.npu.Stream()
    kept = [tensor(3)]
    for turn in range(ROUNDS):
        gate = Gate(side)
        waiting = [tensor(24 + 2 * turn), tensor(0.5), tensor(4)]
        for block in waiting:
            block.record_stream(side)
        del block
        waiting.clear()
        # None of these gets what waits.
        kept += [tensor(22), tensor(0.25), tensor(3)]
        gate.open()
        # These do.
        again = [tensor(24 + 2 * turn), tensor(0.5), tensor(4)]
        del again
        if turn == 1:
            kept.clear()
    torch.npu.synchronize()


if __name__ == "__main__":
    main()
