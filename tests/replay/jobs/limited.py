"""Limits itself to a part of the card, where the pool has to give memory back again and again."""

import random

import torch
import torch_npu  # noqa: F401

MEBIBYTE = 1 << 20
FRACTION = 0.25
ROUNDS = 1200
MOST_MEBIBYTES = 90


def main():
    torch.npu.set_per_process_memory_fraction(FRACTION)
    numbers = random.Random(7)
    live = []
    for turn in range(ROUNDS):
        mebibytes = numbers.choice([0.25, 1.5, 3, 6.5, 11, 18, 24, 30])
        while live and sum(size for size, _ in live) + mebibytes > MOST_MEBIBYTES:
            live.pop(numbers.randrange(len(live)))
        live.append((mebibytes, torch.empty(int(mebibytes * MEBIBYTE), dtype=torch.uint8, device="npu")))
        if turn == ROUNDS // 2:
            live.clear()
            torch.npu.empty_cache()
    torch.npu.synchronize()


if __name__ == "__main__":
    main()
