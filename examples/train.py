"""A training loop as anybody writes one, with a mistake in its last line. README shows what the tool says about it."""

import torch
import torch_npu  # noqa: F401
from torch import nn

model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).npu()
optimizer = torch.optim.AdamW(model.parameters())
predictions = []

for batch in torch.randn(10, 512, 256).npu():
    prediction = model(batch)
    loss = (prediction - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    predictions.append(prediction)
