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
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
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


def distance(output, target):
    return (output - target).square().mean()


def train_in_stages(schedule, stages):
    """The losses, on the rank with the last stage."""
    optimizer = torch.optim.SGD([value for stage in stages for value in stage.submod.parameters()], lr=0.1)
    seen = []
    generator = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        batch = torch.randn(8, WIDTH, generator=generator).to(stages[0].device)
        losses = []
        given = [batch] if RANK == 0 else []
        expected = {"target": batch, "losses": losses} if RANK == WORLD - 1 else {}
        schedule.step(*given, **expected)
        if losses:
            seen.append(torch.stack(losses).mean().item())
        optimizer.step()
        optimizer.zero_grad()
    return seen


def one_stage(device):
    whole = model()
    stages = [whole[:2], whole[2:]]
    return PipelineStage(stages[RANK].to(device), RANK, WORLD, device)


def pipeline(device, mesh):
    stage = one_stage(device)
    return train_in_stages(ScheduleGPipe(stage, n_microbatches=2, loss_fn=distance), [stage])


def pipeline_1f1b(device, mesh):
    stage = one_stage(device)
    return train_in_stages(Schedule1F1B(stage, n_microbatches=4, loss_fn=distance), [stage])


def pipeline_interleaved(device, mesh):
    """Each rank has a stage of the first half and one of the second."""
    torch.manual_seed(2)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(2 * WORLD)]
    places = range(RANK, 2 * WORLD, WORLD)
    stages = [PipelineStage(layers[place].to(device), place, 2 * WORLD, device) for place in places]
    return train_in_stages(ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=distance), stages)


def main():
    torch.npu.set_device(RANK)
    dist.init_process_group("cpu:gloo,npu:hccl", timeout=datetime.timedelta(seconds=300))
    card, host = torch.device("npu", RANK), torch.device("cpu")
    meshes = {device: init_device_mesh(device.type, (WORLD,)) for device in (card, host)}
    ways = (data_parallel, fully_sharded_1, fully_sharded_2, tensor_parallel)
    for kind in (*ways, pipeline, pipeline_1f1b, pipeline_interleaved):
        losses = {device.type: kind(device, meshes[device]) for device in (host, card)}
        print(json.dumps({"rank": RANK, "kind": kind.__name__, **losses}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
