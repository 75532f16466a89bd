"""Trains a small model in every way torch can spread it over ranks, on cards and on the CPU; prints both losses."""

import datetime
import json
import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
STEPS = 3
WIDTH = 16


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))


def batches():
    generator = torch.Generator().manual_seed(10 + RANK)
    return [torch.randn(8, WIDTH, generator=generator) for _ in range(STEPS)]


def train(module, device, parameters=None):
    optimizer = torch.optim.SGD(parameters or module.parameters(), lr=0.1)
    losses = []
    for batch in batches():
        batch = batch.to(device)
        loss = (module(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def data_parallel(device, mesh):
    return train(DistributedDataParallel(model().to(device)), device)


def fully_sharded_1(device, mesh):
    return train(FullyShardedDataParallel(model().to(device), device_id=device, use_orig_params=True), device)


def fully_sharded_2(device, mesh):
    module = model().to(device)
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return train(fully_shard(module, mesh=mesh), device)


def tensor_parallel(device, mesh):
    module = parallelize_module(model().to(device), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(module, device)


def pipeline(device, mesh):
    whole = model()
    stages = [whole[:2], whole[2:]]
    stage = PipelineStage(stages[RANK].to(device), RANK, 2, device)
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda output, target: (output - target).square().mean())
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
    seen = []
    generator = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        batch = torch.randn(8, WIDTH, generator=generator).to(device)
        losses = []
        if RANK == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch, losses=losses)
            seen.append(torch.stack(losses).mean().item())
        optimizer.step()
        optimizer.zero_grad()
    return seen


def main():
    torch.npu.set_device(RANK)
    dist.init_process_group("cpu:gloo,npu:hccl", timeout=datetime.timedelta(seconds=300))
    card, host = torch.device("npu", RANK), torch.device("cpu")
    meshes = {device: init_device_mesh(device.type, (WORLD,)) for device in (card, host)}
    for kind in (data_parallel, fully_sharded_1, fully_sharded_2, tensor_parallel, pipeline):
        losses = {device.type: kind(device, meshes[device]) for device in (host, card)}
        print(json.dumps({"rank": RANK, "kind": kind.__name__, **losses}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
