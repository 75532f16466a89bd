"""Allocates until the card is full, says what happened, frees, and goes on."""

import torch
from common import parse, prepare

BLOCK_BYTES = 256 << 20


def main():
    arguments = parse(__doc__, steps=100_000).parse_args()
    prepare(arguments.device)
    blocks = []
    try:
        for _ in range(arguments.steps):
            blocks.append(torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=arguments.device))
    except RuntimeError as error:  # A torch.OutOfMemoryError, but not in releases of torch_npu before 2.6.
        if "out of memory" not in str(error):
            raise
        print(f"{type(error).__name__}:", str(error).splitlines()[0])
    print("blocks", len(blocks), "allocated", torch.npu.memory_allocated(), flush=True)
    blocks.clear()
    torch.npu.empty_cache()
    print("after freeing", torch.npu.memory_reserved(), float(torch.ones(3, device=arguments.device).sum()))


if __name__ == "__main__":
    main()
