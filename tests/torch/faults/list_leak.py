"""A training loop that keeps a tensor of every step in a list."""

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, steps

model = torch.nn.Linear(256, 256).to("npu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
history = []
for _ in steps(9):
    batch = torch.randn(64, 256, device="npu")
    outputs = model(batch)
    loss = outputs.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if IS_FAULTY:
        history.append(outputs.detach().repeat(16, 1))  # FAULT
    else:
        history.append(loss.item())
