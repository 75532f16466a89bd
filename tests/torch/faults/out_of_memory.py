"""Runs out of memory in the way its argument says: demand, growth, fragmentation, neighbour, leak, oversize, limit.

The card has 1 GiB.

With `clean` the same program stays within its card. With `abort` the process dies right after the failure.
"""

import os
import subprocess
import sys
import time

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, steps

MEBIBYTE = 1 << 20
mode = sys.argv[1]


def reserve(mebibytes):
    return torch.empty(mebibytes * MEBIBYTE, dtype=torch.uint8, device="npu")


def demand():
    return [reserve(300 if IS_FAULTY else 10) for _ in range(4)]  # FAULT: demand


def growth():
    """A leak in a job that marks no steps."""
    kept = []
    for _ in range(1500 if IS_FAULTY else 50):
        work = reserve(16)
        value = torch.empty(MEBIBYTE, dtype=torch.uint8, device="npu")  # FAULT: growth
        if IS_FAULTY:
            kept.append(value)
        del work


def fragmentation():
    blocks = [reserve(8) for _ in range(90)]
    if IS_FAULTY:
        del blocks[::2]  # Every segment of 20 MiB keeps one of its two blocks.
    else:
        del blocks[:]
    return reserve(350)  # FAULT: fragmentation


def neighbour():
    """Another process has most of the card."""
    program = f"""
import time, torch, torch_npu
block = torch.empty({700 if IS_FAULTY else 50} * {MEBIBYTE}, dtype=torch.uint8, device="npu")
print("ready", flush=True)
time.sleep(600)
"""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    try:
        assert other.stdout.readline() == b"ready\n"
        return reserve(500)  # FAULT: neighbour
    finally:
        other.kill()
        other.wait()


def leak():
    kept = []
    for _ in steps(30):
        value = reserve(40)  # FAULT: leak
        if IS_FAULTY:
            kept.append(value)


def oversize():
    """A single tensor that no card of this size could hold."""
    size = (2048 if IS_FAULTY else 100) * MEBIBYTE
    return torch.empty(size, dtype=torch.uint8, device="npu")  # FAULT: oversize


def limit():
    """The job forbids itself most of the card."""
    torch.npu.set_per_process_memory_fraction(0.1 if IS_FAULTY else 0.9)
    small = reserve(1)
    return small, reserve(500)


try:
    globals()[mode]()
except RuntimeError as error:  # A torch.OutOfMemoryError, but not in releases of torch_npu before 2.6.
    print("out of memory:", str(error).splitlines()[0], flush=True)
    if "abort" in sys.argv:
        time.sleep(0.1)
        os.abort()
