"""Every collective operation of torch.distributed on cards, compared with what it must give; prints what is wrong."""

import datetime
import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
# More than a ring between two ranks holds, and no round number.
LARGE = 1_000_003
TYPES = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]


def check(name, found, expected):
    expected = torch.as_tensor(expected, dtype=found.dtype)
    if not torch.equal(found.cpu(), expected.expand_as(found)):
        print(f"rank {RANK}: {name} gave {found.flatten()[:5].tolist()}", flush=True)


def filled(value, *shape, dtype=torch.float32):
    return torch.full(shape, value, device="npu", dtype=dtype)


def reductions():
    ramp = torch.arange(LARGE, dtype=torch.float32)
    summed = ramp.npu() + RANK
    dist.all_reduce(summed)
    check("all_reduce", summed, WORLD * ramp + sum(range(WORLD)))
    operations = {"SUM": sum(range(2, 2 + WORLD)), "MAX": 1 + WORLD, "MIN": 2}
    for dtype in TYPES:
        for operation, expected in operations.items():
            value = filled(2 + RANK, 9, dtype=dtype)
            dist.all_reduce(value, op=getattr(dist.ReduceOp, operation))
            check(f"all_reduce {operation} {dtype}", value, expected)
    value = filled(2.0, 3)
    dist.all_reduce(value, op=dist.ReduceOp.PRODUCT)
    check("all_reduce PRODUCT", value, 2.0**WORLD)
    value = filled(float(RANK), 3)
    dist.reduce(value, 1)
    if RANK == 1:
        check("reduce", value, float(sum(range(WORLD))))
    part = filled(0.0, 3)
    dist.reduce_scatter_tensor(part, torch.arange(3.0 * WORLD).npu(), op=dist.ReduceOp.AVG)
    check("reduce_scatter_tensor AVG", part, torch.arange(3.0) + 3 * RANK)


def gathering():
    parts = [filled(-1.0, 5) for _ in range(WORLD)]
    dist.all_gather(parts, filled(float(RANK), 5))
    check("all_gather", torch.stack(parts), torch.arange(float(WORLD)).unsqueeze(1))
    whole = filled(-1.0, LARGE * WORLD)
    dist.all_gather_into_tensor(whole, filled(float(RANK), LARGE))
    check("all_gather_into_tensor", whole.view(WORLD, LARGE), torch.arange(float(WORLD)).unsqueeze(1))
    value = filled(RANK, 7, dtype=torch.bfloat16)
    dist.broadcast(value, 1)
    check("broadcast", value, 1)
    received = filled(-1.0, 4)
    dist.scatter(received, [filled(float(rank), 4) for rank in range(WORLD)] if RANK == 0 else None, 0)
    check("scatter", received, float(RANK))


def exchanges():
    sent = torch.arange(2.0 * WORLD).npu() + 100 * RANK
    received = filled(-1.0, 2 * WORLD)
    dist.all_to_all_single(received, sent)
    check("all_to_all", received, [100 * peer + 2 * RANK + place for peer in range(WORLD) for place in (0, 1)])
    # Rank r sends r + 1 elements to each.
    received = filled(-1.0, sum(range(1, WORLD + 1)))
    counts = list(range(1, WORLD + 1))
    dist.all_to_all_single(received, filled(float(RANK), (RANK + 1) * WORLD), counts, [RANK + 1] * WORLD)
    check("all_to_all of different sizes", received, [float(peer) for peer in range(WORLD) for _ in range(peer + 1)])
    received = filled(-1.0, LARGE)
    around = [
        dist.P2POp(dist.isend, filled(float(RANK), LARGE), (RANK + 1) % WORLD),
        dist.P2POp(dist.irecv, received, (RANK - 1) % WORLD),
    ]
    for work in dist.batch_isend_irecv(around):
        work.wait()
    check("batch_isend_irecv", received, float((RANK - 1) % WORLD))
    value = filled(float(RANK), LARGE)
    if RANK == 0:
        dist.send(value, 1)
    if RANK == 1:
        dist.recv(value, 0)
        check("recv", value, 0.0)


def coalesced():
    """Operations that are started together, as buckets of an optimizer are."""
    device = torch.device("npu", RANK)
    sums = [filled(float(RANK + place), size) for place, size in enumerate((3, LARGE, 1))]
    with dist._coalescing_manager(device=device):
        for value in sums:
            dist.all_reduce(value)
    for place, value in enumerate(sums):
        check(f"coalesced all_reduce {place}", value, float(sum(range(WORLD)) + place * WORLD))
    gathered = [filled(-1.0, size * WORLD) for size in (4, 7)]
    with dist._coalescing_manager(device=device, async_ops=True) as together:
        for place, value in enumerate(gathered):
            dist.all_gather_into_tensor(value, filled(float(RANK + place), len(value) // WORLD))
    together.wait()
    for place, value in enumerate(gathered):
        check("coalesced all_gather", value.view(WORLD, -1), torch.arange(float(WORLD)).unsqueeze(1) + place)
    parts = [filled(0.0, size) for size in (2, 5)]
    with dist._coalescing_manager(device=device):
        for value in parts:
            dist.reduce_scatter_tensor(value, filled(1.0 + RANK, len(value) * WORLD))
    for value in parts:
        check("coalesced reduce_scatter", value, float(sum(range(1, WORLD + 1))))
    # Everybody first sends and then receives, which only goes side by side.
    received = [filled(-1.0, LARGE) for _ in range(2)]
    with dist._coalescing_manager(device=device):
        for shift, value in enumerate(received, 1):
            dist.isend(filled(float(RANK), LARGE), (RANK + shift) % WORLD)
            dist.irecv(value, (RANK - shift) % WORLD)
    for shift, value in enumerate(received, 1):
        check("coalesced isend and irecv", value, float((RANK - shift) % WORLD))


def main():
    torch.npu.set_device(RANK)
    dist.init_process_group("hccl", timeout=datetime.timedelta(seconds=300))
    reductions()
    gathering()
    coalesced()
    exchanges()
    half = dist.new_group(list(range(0, WORLD, 2)))
    if RANK % 2 == 0:
        value = filled(1.0, 3)
        dist.all_reduce(value, group=half)
        check("a group of its own", value, float(len(range(0, WORLD, 2))))
    dist.barrier()
    print(f"rank {RANK}: done\n", end="", flush=True)
    dist.destroy_process_group()


main()
