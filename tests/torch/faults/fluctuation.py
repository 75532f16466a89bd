"""A step whose memory use swings far more than that of the others; prints what the framework itself counted."""

import json

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, steps

STRANGE_STEP = 5
resident = torch.ones(2_500_000, device="npu")
counted = []
for step in steps(8):
    least = torch.npu.memory_allocated()
    size = 40_000_000 if IS_FAULTY and step == STRANGE_STEP else 2_500_000
    temporary = torch.empty(size, device="npu")
    counted.append([step, least, torch.npu.memory_allocated()])
    del temporary
print(json.dumps(counted))
