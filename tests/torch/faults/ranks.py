"""Two ranks with the same leak. Usage: ranks.py launched|spawned

Launched, a launcher such as torchrun starts this program twice; spawned, it starts its ranks itself, and only
`init_process_group` is told who is who.
"""

import os
import sys
import tempfile

import torch
import torch_npu  # noqa: F401


def train(rank):
    torch.npu.set_device(rank)
    model = torch.nn.Linear(64, 64).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    outputs = []
    for _ in range(8):
        output = model(torch.ones(256, 64, device="npu"))
        output.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(output.detach().clone())  # CULPRIT


def spawned(rank, store):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train(rank)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "spawned":
        with tempfile.TemporaryDirectory() as directory:
            torch.multiprocessing.spawn(spawned, (os.path.join(directory, "store"),), nprocs=2)
    else:
        torch.distributed.init_process_group("gloo")
        train(int(os.environ["LOCAL_RANK"]))
        torch.distributed.destroy_process_group()
