"""Trains a model with FSDP of the generation in the first argument; prints the losses of each rank."""

import json
import sys

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

WIDTH, LAYERS, STEPS = 512, 3, 3


def main():
    dist.init_process_group("hccl")
    rank = dist.get_rank()
    torch.npu.set_device(rank)
    card = torch.device("npu", rank)
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    if sys.argv[1] == "fsdp1":
        model = FullyShardedDataParallel(model, device_id=card, use_orig_params=True)
    else:
        for layer in model.to(card):
            fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        loss = model(torch.full((4, WIDTH), 1.0 + rank, device=card)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(json.dumps({"rank": rank, "losses": losses}), flush=True)
    dist.destroy_process_group()


main()
