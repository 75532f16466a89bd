"""Jobs that mark nothing: their steps follow from what they do. Usage: unmarked.py accumulation|alternating|serving"""

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


globals()[sys.argv[1]]()
