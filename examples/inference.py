"""Generates text letter by letter with a key-value cache that grows with every letter."""

import torch
from common import TEXT, encode, parse, prepare
from transformer import Transformer


def main():
    arguments = parse(__doc__, steps=40).parse_args()
    prepare(arguments.device)
    numbers, letters = encode(TEXT)
    model = Transformer(letters).eval().to(arguments.device)
    caches = [{} for _ in model.blocks]
    prompt = numbers[:32].unsqueeze(0).to(arguments.device)
    generated = []
    with torch.no_grad():
        last = model(prompt, caches)[:, -1].argmax(dim=-1, keepdim=True)
        for _ in range(arguments.steps):
            generated.append(last.item())
            last = model(last, caches)[:, -1].argmax(dim=-1, keepdim=True)
    cache_bytes = sum(tensor.numel() * tensor.element_size() for cache in caches for tensor in cache.values())
    print("generated", *generated)
    print("cache bytes", cache_bytes)


if __name__ == "__main__":
    main()
