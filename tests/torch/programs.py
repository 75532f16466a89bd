"""Runs Python programs on the stand-in device with settings of their own."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import torch
from truth import read

# Releases that lack what some tests are about.
IS_OLD = torch.torch_version.TorchVersion(torch.__version__) < "2.6"
# What torch_npu raises when a card is full: old releases have no type of their own for it.
OUT_OF_MEMORY = "RuntimeError" if IS_OLD else "OutOfMemoryError"
# A program that asks for more than a card has, and goes on.
LACK_OF_MEMORY = """
    kept = torch.ones(1 << 20, device="npu")
    try:
        torch.empty(1 << 40, device="npu")
    except RuntimeError:
        print("survived")
    after = torch.ones(1 << 20, device="npu")
"""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(arguments, **variables):
    """Runs `python arguments` and returns its output and the calls that the device logged."""
    with tempfile.TemporaryDirectory() as directory:
        log, cards = Path(directory, "log"), Path(directory, "cards")
        log.mkdir(), cards.mkdir()
        # Programs that leave by os._exit() have printed all the same.
        places = {"STANDIN_LOG": str(log), "STANDIN_RUN_DIR": str(cards), "PYTHONUNBUFFERED": "1"}
        environment = {**os.environ, **places, **variables}
        result = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout, read(log)


def run_code(code, **variables):
    """Runs a piece of Python code; see `run`."""
    return run(["-c", textwrap.dedent(code)], **variables)


def run_example(name, *arguments, **variables):
    """Runs a script of the examples; see `run`."""
    return run([str(EXAMPLES / name), *arguments], **variables)
