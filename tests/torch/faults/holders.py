"""Tensors that are kept in every way Python knows, and the same work without keeping them.

Usage: holders.py kept|clean
"""

import functools
import sys

import torch
import torch_npu  # noqa: F401

STEPS = 9
keeps = sys.argv[1] == "kept"
cache = {}
callbacks = []


def fresh(rows):
    return torch.ones(rows, 64, device="npu")


class Probe:
    def __init__(self):
        self.acts = []

    def save(self, module, arguments, result):
        if keeps:
            self.acts.append(result.detach() + 1)  # hook


class Recorder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        self.outputs = []

    def forward(self, values):
        if keeps:
            self.outputs.append(values * 2)  # attribute
        return self.inner(values)


@functools.cache
def table(step):
    return fresh(16)  # functools


def batches(step):
    batch = fresh(17)  # generator
    yield step
    print(batch.shape)


def fail(step):
    scratch = fresh(18)  # traceback
    raise ValueError(f"{step} {scratch.shape}")


def report_later(logits):
    def report():
        return logits.shape

    callbacks.append(report)


def main():
    history, running, errors, losses = [], [], [], []
    model = Recorder().npu()
    model.inner[1].register_forward_hook(Probe().save)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    values = fresh(8)
    for step in range(STEPS):
        result = fresh(19)  # list
        cache[f"step {step}"] = fresh(20)  # global
        report_later(fresh(21))  # closure
        loss = model(values).sin().sum()  # graph
        loss.backward(retain_graph=keeps)
        generator = batches(step)
        next(generator)
        table(step)
        try:
            fail(step)
        except ValueError as error:
            errors.append(error)
        history.append(result)
        running.append(generator)
        losses.append(loss)
        if not keeps:
            for kept in (history, running, errors, losses, cache, callbacks):
                kept.clear()
            table.cache_clear()
        del generator, result, loss
        optimizer.step()
        optimizer.zero_grad()


main()
