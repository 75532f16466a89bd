"""Driver memory that an extension takes in every step and never gives back."""

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, Runtime, steps

runtime = Runtime()
weights = torch.ones(1000, device="npu")
for _ in steps(9):
    scratch = runtime.allocate(3 << 20)  # FAULT
    weights += 1
    if not IS_FAULTY:
        runtime.free(scratch)
