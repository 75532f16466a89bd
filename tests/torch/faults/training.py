"""A small training run that says itself where its weights, gradients, optimizer states and activations are."""

import json

import torch
import torch_npu  # noqa: F401
from common import steps

model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64)).to("npu")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
batch = torch.randn(256, 64).to("npu")
for _ in steps(4):
    optimizer.zero_grad()
    hidden = model[1](model[0](batch))
    loss = model[2](hidden).square().mean()
    activation = hidden.data_ptr()
    loss.backward()
    optimizer.step()
temporary = batch * 2
parameters = list(model.parameters())
states = [state for values in optimizer.state.values() for state in values.values()]
print(
    json.dumps(
        {
            "PTA@model@weight": [parameter.data_ptr() for parameter in parameters],
            "PTA@model@gradient": [parameter.grad.data_ptr() for parameter in parameters],
            "PTA@model@optimizer_state": [state.data_ptr() for state in states if state.device.type != "cpu"],
            "PTA@model@activation": [activation],
            "PTA@ops@aten": [temporary.data_ptr(), batch.data_ptr()],
            "allocated": torch.npu.memory_allocated(),
        }
    )
)
