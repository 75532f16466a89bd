"""Settings of the tests that run the real torch_npu on the stand-in device (`make test-torch`)."""

import os
from pathlib import Path

# An operator that the device does not compute is an error here, not a warning.
os.environ.setdefault("STANDIN_UNKNOWN_OPERATORS", "error")

# Workers have cards of their own: what one allocates must not be missing for another.
if "PYTEST_XDIST_WORKER" in os.environ and "STANDIN_RUN_DIR" in os.environ:
    cards = Path(os.environ["STANDIN_RUN_DIR"]) / os.environ["PYTEST_XDIST_WORKER"]
    cards.mkdir(exist_ok=True)
    os.environ["STANDIN_RUN_DIR"] = str(cards)

import pytest
import torch
import torch_npu  # noqa: F401

# Older releases prefer the card's own layouts, with operators launched by name, which the device does not compute.
torch.npu.config.allow_internal_format = False


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)
