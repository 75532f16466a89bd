"""What the examples share: command line, device, and the text they learn."""

import argparse
import contextlib

import torch

try:
    import mstx  # Comes with CANN and with the stand-in device.
except ImportError:
    mstx = None

TEXT = (
    "a program that trains a network takes memory for weights, for gradients, for the state of its optimizer and for "
    "everything that the backward pass will need again; what is not freed in time is missing when it is needed most. "
)


def parse(description, steps):
    """Arguments of an example; more can be added by the caller."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="npu", help="npu, npu:1, cpu (default: npu)")
    parser.add_argument("--steps", type=int, default=steps, help=f"number of steps (default: {steps})")
    return parser


def prepare(device):
    """Makes the device usable and results repeatable."""
    if device.startswith("npu"):
        import torch_npu  # noqa: F401

        torch.npu.set_device(device)
        # What newer releases do by themselves: tensors keep the layout that torch gives them.
        torch.npu.config.allow_internal_format = False
    torch.manual_seed(0)


def encode(text):
    """The text as numbers, and how many different ones there are."""
    letters = sorted(set(text))
    return torch.tensor([letters.index(letter) for letter in text]), len(letters)


@contextlib.contextmanager
def marked_step():
    """Tells tools that listen where a step begins and ends, by a range whose name they know."""
    number = mstx.range_start("step start") if mstx else 0
    try:
        yield
    finally:
        if mstx:
            mstx.range_end(number)


def report(step, loss):
    print(f"step {step} loss {loss:.6f}", flush=True)
