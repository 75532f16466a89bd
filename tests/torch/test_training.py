"""Whole training steps give on the device what they give on the CPU: optimizers, clipping, mixed precision, models."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 4))


def points():
    return torch.randn(32, 8), torch.randint(0, 4, (32,))


def train(device, make, data, optimizer, clip=None, precision=None, scaled=False, steps=4):
    """Losses of all steps, and the weights at the end."""
    torch.manual_seed(0)
    model, (batch, target) = make().to(device), data()
    batch, target = batch.to(device), target.to(device)
    optimizer = optimizer(model.parameters())
    scaler = torch.amp.GradScaler(device, enabled=scaled, init_scale=1024.0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=precision or torch.bfloat16, enabled=precision is not None):
            loss = F.cross_entropy(model(batch), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if clip:
            clip(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, [weight.detach().cpu() for weight in model.parameters()]


def assert_trains_alike(make, data, optimizer, tolerance=2e-5, **options):
    losses, weights = train("npu", make, data, optimizer, **options)
    expected_losses, expected_weights = train("cpu", make, data, optimizer, **options)
    assert losses == pytest.approx(expected_losses, abs=tolerance)
    for weight, expected in zip(weights, expected_weights, strict=True):
        torch.testing.assert_close(weight, expected, rtol=0, atol=20 * tolerance)


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(lr=0.1)),
    "nesterov": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    "damped": (torch.optim.SGD, dict(lr=0.01, momentum=0.9, dampening=0.1, maximize=True)),
    "adam": (torch.optim.Adam, dict(lr=0.01)),
    "amsgrad": (torch.optim.Adam, dict(lr=0.01, amsgrad=True, weight_decay=0.01)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01)),
    "adamw_amsgrad": (torch.optim.AdamW, dict(lr=0.01, amsgrad=True)),
    "rmsprop": (torch.optim.RMSprop, dict(lr=0.01, momentum=0.9, centered=True)),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.01)),
    "adamax": (torch.optim.Adamax, dict(lr=0.01)),
    "nadam": (torch.optim.NAdam, dict(lr=0.01)),
    "adadelta": (torch.optim.Adadelta, dict(lr=0.5)),
}


@pytest.mark.parametrize("foreach", [False, True], ids=["plain", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name, foreach):
    kind, options = OPTIMIZERS[name]
    assert_trains_alike(perceptron, points, lambda weights: kind(weights, foreach=foreach, **options))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW], ids=lambda kind: kind.__name__)
def test_fused_optimizer(kind):
    assert_trains_alike(perceptron, points, lambda weights: kind(weights, lr=0.01, fused=True))


CLIPPING = {
    "norm": lambda weights, foreach: nn.utils.clip_grad_norm_(weights, 0.1, foreach=foreach),
    "sum": lambda weights, foreach: nn.utils.clip_grad_norm_(weights, 0.1, norm_type=1, foreach=foreach),
    "largest": lambda weights, foreach: nn.utils.clip_grad_norm_(weights, 0.1, norm_type=float("inf"), foreach=foreach),
    "value": lambda weights, foreach: nn.utils.clip_grad_value_(weights, 0.01, foreach=foreach),
}


@pytest.mark.parametrize("foreach", [False, True], ids=["plain", "foreach"])
@pytest.mark.parametrize("name", CLIPPING)
def test_gradient_clipping(name, foreach):
    assert_trains_alike(
        perceptron,
        points,
        lambda weights: torch.optim.SGD(weights, lr=0.5, foreach=foreach),
        clip=lambda weights: CLIPPING[name](list(weights), foreach),
    )


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Conv2d(8, 16, 1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


def pictures():
    return torch.randn(4, 3, 16, 16), torch.randint(0, 4, (4,))


class Segmentation(nn.Module):
    """Goes down and up again, and joins what it finds on both ways."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8)
        self.down, self.up = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.nearest, self.bilinear = nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.last = nn.Conv2d(32, 4, 1)

    def forward(self, batch):
        wide = self.norm(self.first(batch)).relu()
        deep = self.down(wide).relu()
        return self.last(torch.cat([wide, self.up(deep), self.nearest(deep), self.bilinear(deep)], dim=1))


def segmented_pictures():
    return torch.randn(2, 3, 16, 16), torch.randint(0, 4, (2, 16, 16))


class Encoder(nn.Module):
    """The transformer that comes with torch, looking back only."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.letters = nn.Embedding(20, 16, padding_idx=0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.to_letters = nn.Linear(16, 20)

    def forward(self, text):
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        return self.to_letters(self.layers(self.letters(text), mask=mask, is_causal=True)).flatten(0, 1)


class Decoder(nn.Module):
    """A block as in current language models: rotary positions, shared key heads, gated perceptron, tied weights."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(20, 16)
        self.query, self.key_value = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.scale = nn.Parameter(torch.ones(16))
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def norm(self, hidden):
        return hidden * torch.rsqrt(hidden.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(hidden.dtype) * self.scale

    @staticmethod
    def rotate(heads):
        half = heads.shape[-1] // 2
        places = torch.arange(heads.shape[2], device=heads.device, dtype=torch.float32)
        speeds = 100 ** (-torch.arange(half, device=heads.device, dtype=torch.float32) / half)
        angles = torch.outer(places, speeds).repeat(1, 2)
        turned = torch.cat([-heads[..., half:], heads[..., :half]], dim=-1)
        return heads * angles.cos().to(heads.dtype) + turned * angles.sin().to(heads.dtype)

    def forward(self, text):
        hidden = self.letters(text)
        batch, length, _ = hidden.shape
        normed = self.norm(hidden)
        query = self.rotate(self.query(normed).view(batch, length, 4, 4).transpose(1, 2))
        key, value = self.key_value(normed).view(batch, length, 2, 2, 4).permute(2, 0, 3, 1, 4)
        key, value = self.rotate(key).repeat_interleave(2, dim=1), value.repeat_interleave(2, dim=1)
        future = torch.triu(torch.ones(length, length, dtype=torch.bool, device=text.device), 1)
        scores = (query @ key.transpose(-1, -2) / 2).masked_fill(future, float("-inf"))
        mixed = scores.softmax(-1, dtype=torch.float32).to(value.dtype) @ value
        hidden = hidden + mixed.transpose(1, 2).reshape(batch, length, 16)
        normed = self.norm(hidden)
        hidden = hidden + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return (hidden @ self.letters.weight.t()).flatten(0, 1)


def text():
    return torch.randint(0, 20, (4, 12)), torch.randint(0, 20, (48,))


MODELS = {
    "perceptron": (perceptron, points),
    "convolutional": (convolutional, pictures),
    "segmentation": (Segmentation, segmented_pictures),
    "encoder": (Encoder, text),
    "decoder": (Decoder, text),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    assert_trains_alike(*MODELS[name], lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9))


@pytest.mark.parametrize("scaled", [False, True], ids=["unscaled", "scaled"])
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_mixed_precision(name, precision, scaled):
    assert_trains_alike(
        *MODELS[name],
        lambda weights: torch.optim.SGD(weights, lr=0.05),
        tolerance=3e-2,
        precision=precision,
        scaled=scaled,
        clip=lambda weights: nn.utils.clip_grad_norm_(weights, 1.0),
    )
