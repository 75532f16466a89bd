"""Trains a convolutional network to tell horizontal from vertical stripes."""

import torch
from common import parse, prepare, report
from torch import nn


def pictures(count):
    """Noisy stripes, and whether they are vertical."""
    labels = torch.arange(count) % 2
    wave = (torch.arange(16) // 2 % 2).float()
    clean = torch.where(labels.view(-1, 1, 1).bool(), wave.view(1, 1, 16), wave.view(1, 16, 1)).expand(count, 16, 16)
    return (clean + 0.8 * torch.randn(count, 16, 16)).unsqueeze(1), labels


def main():
    arguments = parse(__doc__, steps=10).parse_args()
    prepare(arguments.device)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 2),
    )
    images, labels = pictures(64)
    model = model.to(arguments.device)
    images, labels = images.to(arguments.device), labels.to(arguments.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(arguments.steps):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss.item())


if __name__ == "__main__":
    main()
