"""Trains a model whose parameters are distributed tensors, with FSDP2: the other rank is only pretended.

Prints the owners that memory must have, with the addresses of the local shards, as JSON.
"""

import json
import sys

import torch
import torch.distributed as distributed
import torch_npu  # noqa: F401
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

try:
    from torch.distributed.tensor import DTensor, Shard
except ImportError:  # before 2.5
    from torch.distributed._tensor import DTensor, Shard

SIZE = 256
distributed.init_process_group("cpu:fake,npu:fake", store=FakeStore(), rank=0, world_size=2)
mesh = DeviceMesh("npu", [0, 1])


class Distributed(torch.nn.Module):
    """A parameter that is a distributed tensor, without any framework around it."""

    def __init__(self):
        super().__init__()
        local = torch.ones(SIZE, SIZE, device="npu")
        self.weight = torch.nn.Parameter(DTensor.from_local(local, mesh, [Shard(0)], run_check=False))

    def forward(self, batch):
        return batch * self.weight.to_local()


def fully_sharded():
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.Linear(SIZE, SIZE)).to("npu")
    fully_shard(model, mesh=mesh)
    return model


def address(tensor):
    return getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr()


is_framework = sys.argv[1] == "fsdp2"
model = fully_sharded() if is_framework else Distributed()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(SIZE, SIZE, device="npu")).sum().backward()
    optimizer.step()
parameters = list(model.parameters())
states = [value for parameter in parameters for value in optimizer.state[parameter].values()]
known = {
    "PTA@fsdp2@sharded_weight@ops" if is_framework else "PTA@model@weight": [
        address(parameter) for parameter in parameters
    ],
    "gradient": [address(parameter.grad) for parameter in parameters],
    "PTA@model@optimizer_state": [address(value) for value in states if value.device.type == "npu"],
}
print(json.dumps(known), flush=True)
