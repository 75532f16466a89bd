"""Asks for blocks on three streams in turns: each keeps what it got, and none gets what another has freed."""

import torch
import torch_npu  # noqa: F401

MEBIBYTE = 1 << 20
ROUNDS = 6


def tensor(mebibytes):
    return torch.empty(int(mebibytes * MEBIBYTE), dtype=torch.uint8, device="npu")


def main():
    streams = [torch.npu.current_stream(), torch.npu.Stream(), torch.npu.Stream()]
    kept = [tensor(3)]
    for turn in range(ROUNDS):
        for number, stream in enumerate(streams):
            with torch.npu.stream(stream):
                large, small = tensor(24 + 2 * number + turn % 2), tensor(0.25)
                kept.append(tensor(1.5 + number))
                del large
                again = tensor(20)
                if turn % 2:
                    # Its block waits until the default stream has done what it does now.
                    small.record_stream(streams[0])
                del small, again
        if turn == ROUNDS // 2:
            kept.clear()
    torch.npu.synchronize()


if __name__ == "__main__":
    main()
