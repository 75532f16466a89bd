"""Jobs that mark nothing: their steps follow from what they do.

Usage: unmarked.py accumulation|alternating|serving|profiled|functional|functional_clean
"""

import sys

import torch
import torch_npu  # noqa: F401


def model():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).npu()


def accumulation():
    """Four backward passes per step of the optimizer; keeps a result of every step."""
    network, kept = model(), []
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _ in range(8):
        for _ in range(4):
            network(torch.ones(16, 64, device="npu")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(network(torch.ones(256, 64, device="npu")).detach())  # the leak


def alternating():
    """Three steps of one optimizer per step of the other one: the slower loop is the one that counts."""
    fast, slow = model(), model()
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.01) for network in (fast, slow)]
    for _ in range(6):
        for network, optimizer in [(fast, optimizers[0])] * 3 + [(slow, optimizers[1])]:
            network(torch.ones(16, 64, device="npu")).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


@torch.no_grad()
def serving():
    """No optimizer at all: each request is a call of the model."""
    network = model()
    for _ in range(9):
        network(torch.ones(16, 64, device="npu"))


def profiled():
    """A profiler with a schedule is told where steps end, which are two of the optimizer's."""
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profiler:
        for _ in range(7):
            for _ in range(2):
                network(torch.ones(16, 64, device="npu")).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()


@torch.no_grad()
def functional(keeps=True):
    """Neither optimizer nor module: a loop over requests around a loop over layers, in plain functions."""
    weights = [torch.randn(64, 64).npu() * 0.1 for _ in range(20)]
    answers = []
    for request in range(30):
        x = torch.full((32, 64), float(request)).npu()
        for weight in weights[:6]:
            x = torch.nn.functional.relu(x @ weight) + x
        answer = torch.softmax(x, dim=-1)  # the answer
        if keeps:
            answers.append(answer)
        answers.append(answer.max().item())


def functional_clean():
    """The same without keeping anything."""
    functional(keeps=False)


globals()[sys.argv[1]]()
