"""Callbacks that close over a tensor keep it alive."""

import torch
import torch_npu  # noqa: F401
from common import IS_FAULTY, steps

reports = []


def remember(values):
    if IS_FAULTY:
        scaled = values * 2  # FAULT
        reports.append(lambda: print(scaled.mean().item()))
    else:
        mean = (values * 2).mean().item()
        reports.append(lambda: print(mean))


for _ in steps(9):
    remember(torch.ones(300_000, device="npu"))
