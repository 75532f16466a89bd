"""Trains a small transformer to predict the next letter of a text."""

import torch
from common import TEXT, encode, marked_step, parse, prepare, report
from torch import nn
from transformer import Transformer


def main():
    parser = parse(__doc__, steps=10)
    parser.add_argument("--amp", action="store_true", help="mixed precision with gradient scaling")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--leak", action="store_true", help="keep the predictions of every step by mistake")
    arguments = parser.parse_args()
    prepare(arguments.device)
    numbers, letters = encode(TEXT * 4)
    model = Transformer(letters, dropout=arguments.dropout).to(arguments.device)
    windows = torch.stack([numbers[start : start + 65] for start in range(0, 512, 64)]).to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    kind = arguments.device.split(":")[0]
    scaler = torch.amp.GradScaler(kind, enabled=arguments.amp)
    kept = []
    for step in range(arguments.steps):
        with marked_step():
            with torch.autocast(kind, dtype=torch.float16, enabled=arguments.amp):
                predicted = model(windows[:, :-1])
                loss = nn.functional.cross_entropy(predicted.flatten(0, 1).float(), windows[:, 1:].flatten())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            report(step, loss.item())
            if arguments.leak:
                kept.append(predicted)


if __name__ == "__main__":
    main()
