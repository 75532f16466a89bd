"""Trains a small perceptron to tell whether a point lies in a ring."""

import torch
from common import parse, prepare, report
from torch import nn


def main():
    parser = parse(__doc__, steps=20)
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="adamw")
    arguments = parser.parse_args()
    prepare(arguments.device)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    points = torch.randn(512, 2)
    radius = points.norm(dim=1)
    labels = ((radius > 0.7) & (radius < 1.4)).long()
    model = model.to(arguments.device)
    points, labels = points.to(arguments.device), labels.to(arguments.device)
    optimizer = {
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
        "adam": lambda: torch.optim.Adam(model.parameters(), lr=0.01),
        "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=0.01),
    }[arguments.optimizer]()
    for step in range(arguments.steps):
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report(step, loss.item())


if __name__ == "__main__":
    main()
