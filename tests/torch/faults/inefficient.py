"""One block for every way of holding memory without using it; in the clean version all are used in time.

Between the moments that matter, operators come and go so that memory is allocated and freed.
"""

import sys

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY

SIZE = 1_000_000
IDLE_OPERATORS = 3100
kinds = [kind for kind in sys.argv[1:] if kind != "clean"] or ["early", "late", "idle", "unused"]
start = torch.ones(10, device="npu")


def churn(count=3):
    """Operators whose results are allocated and freed."""
    for _ in range(count):
        start.add(1)


def early():
    if IS_FAULTY:
        buffer = torch.empty(SIZE, device="npu")  # FAULT: early
        churn()
    else:
        churn()
        buffer = torch.empty(SIZE, device="npu")
    buffer.fill_(1)  # USE: early
    del buffer
    churn()


def late():
    buffer = torch.empty(SIZE, device="npu")  # FAULT: late
    buffer.fill_(1)  # USE: late
    if IS_FAULTY:
        churn()
    del buffer
    churn()


def idle():
    buffer = torch.empty(SIZE, device="npu")  # FAULT: idle
    buffer.fill_(1)
    if IS_FAULTY:
        for _ in range(IDLE_OPERATORS):
            start.add_(1)
    buffer.add_(1)  # USE: idle
    del buffer
    churn()


def unused():
    if IS_FAULTY:
        buffer = torch.empty(SIZE, device="npu")  # FAULT: unused
        churn()
        del buffer
    churn()


for kind in kinds:
    globals()[kind]()
