"""Runs out of memory before any optimizer has made a step: while a model is moved to the card, or in its first forward
pass. The card has 1 GiB. Prints the bytes of the parameters that are on the card."""

import sys

import torch
import torch_npu  # noqa: F401

SIZE = 2048
mode = sys.argv[1]
torch.ones(1, device="npu")


def layers(count, **options):
    return torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE, bias=False, **options) for _ in range(count)))


kept = []
try:
    if mode == "moving":
        kept.append(layers(80))
        kept[0].to("npu")
    elif mode == "building":
        for _ in range(80):
            kept.append(layers(1, device="npu"))
    else:
        kept.append(layers(20).to("npu"))
        kept[0](torch.ones(60_000, SIZE, device="npu"))
except RuntimeError as error:  # A torch.OutOfMemoryError, but not in releases of torch_npu before 2.6.
    print("out of memory:", str(error).splitlines()[0])
weights = [weight for module in kept for weight in module.parameters() if weight.device.type == "npu"]
print(sum(weight.untyped_storage().nbytes() for weight in weights), flush=True)
