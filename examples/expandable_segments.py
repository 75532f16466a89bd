"""Grows and shrinks tensors in expandable segments: the allocator maps memory into one range instead of new blocks."""

import os

os.environ.setdefault("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True")

import torch
from common import parse, prepare


def main():
    arguments = parse(__doc__, steps=5).parse_args()
    prepare(arguments.device)
    for step in range(arguments.steps):
        size = (step + 1) * (30 << 20)
        tensor = torch.ones(size // 4, device=arguments.device)
        total = float(tensor.sum())
        print("step", step, "sum", int(total), "reserved", torch.npu.memory_reserved(), flush=True)
        del tensor
    torch.npu.empty_cache()
    print("reserved", torch.npu.memory_reserved())


if __name__ == "__main__":
    main()
