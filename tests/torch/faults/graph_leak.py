"""A running total of losses that still have their graphs keeps the activations of all steps."""

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, steps

model = torch.nn.Sequential(torch.nn.Linear(128, 4096), torch.nn.Tanh(), torch.nn.Linear(4096, 1)).to("npu")
total = 0.0
for _ in steps(9):
    batch = torch.randn(128, 128, device="npu")  # FAULT: the graph keeps it too
    loss = model(batch).mean()  # FAULT
    total = total + (loss if IS_FAULTY else loss.item())
print(float(total))
