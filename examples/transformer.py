"""A small transformer, for training (gpt.py) and generation with a key-value cache (inference.py)."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal attention; remembers keys and values when a cache is given."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.to_all = nn.Linear(width, 3 * width)
        self.to_output = nn.Linear(width, width)

    def forward(self, hidden, cache=None):
        batch, length, width = hidden.shape
        split = self.to_all(hidden).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        if cache is not None:
            if "key" in cache:
                key = torch.cat([cache["key"], key], dim=2)
                value = torch.cat([cache["value"], value], dim=2)
            cache["key"], cache["value"] = key, value
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        return self.to_output(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a perceptron, each added to its input."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm_attention, self.norm_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden, cache=None):
        hidden = hidden + self.dropout(self.attention(self.norm_attention(hidden), cache))
        return hidden + self.dropout(self.perceptron(self.norm_perceptron(hidden)))


class Transformer(nn.Module):
    """Predicts the next letter."""

    def __init__(self, letters, width=64, heads=4, depth=2, length=256, dropout=0.0):
        super().__init__()
        self.letters, self.positions = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.to_letters = nn.Linear(width, letters, bias=False)

    def forward(self, numbers, caches=None):
        start = caches[0]["key"].shape[2] if caches and "key" in caches[0] else 0
        places = torch.arange(start, start + numbers.shape[1], device=numbers.device)
        hidden = self.letters(numbers) + self.positions(places)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, caches[index] if caches else None)
        return self.to_letters(self.norm(hidden))
