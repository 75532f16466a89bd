"""An engine that starts workers by spawn and by forkserver, each on a card of its own, and uses two cards itself."""

import multiprocessing

import torch
import torch_npu  # noqa: F401


def work(card):
    torch.npu.set_device(card)
    kept = [torch.ones(1024 * (card + 1), device="npu") for _ in range(3)]
    print(f"card {card}: {sum(each.sum().item() for each in kept):.0f}", flush=True)


if __name__ == "__main__":
    work(0)
    work(1)
    for card, method in ((2, "spawn"), (3, "forkserver")):
        process = multiprocessing.get_context(method).Process(target=work, args=(card,))
        process.start()
        process.join()
        assert process.exitcode == 0, method
