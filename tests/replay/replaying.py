"""Runs examples with the real allocator of torch_npu and with the model of it, for comparison.

Used by tests/torch/test_replay.py (a few, in `make test`) and tests/replay (all, `make test-replay`).
"""

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("MSMEMSCOPE", ROOT / "target/release/msmemscope"))
EXAMPLES = {
    "mlp.py": ("mlp.py", "--steps", "4"),
    "cnn.py": ("cnn.py", "--steps", "3"),
    "gpt.py": ("gpt.py", "--steps", "3"),
    "train.py": ("train.py",),
    "inference.py": ("inference.py", "--steps", "20"),
    "expandable_segments.py": ("expandable_segments.py",),
}
# What no example does: uses three streams; frees blocks that another stream works on; sets itself a limit.
STREAMS = "streams.py"
WAITING = "waiting_blocks.py"
LIMITED = "limited.py"
JOBS = {job: (Path(__file__).parent / "jobs" / job,) for job in (STREAMS, WAITING, LIMITED)}
# What it asks for depends on what it gets, so only its own settings say anything about it.
OUT_OF_MEMORY = ("out_of_memory.py",)
# As the variable has them. One of the examples would choose for itself if nothing were set.
DEFAULTS = "expandable_segments:False"
# With these every request is known exactly.
EXACT = "expandable_segments:True"
SETTINGS = [
    DEFAULTS,
    EXACT,
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:64",
    "expandable_segments:True,large_segment_size_mb:64",
]
# Small enough to be filled.
CARD_BYTES = 1 << 30
# The limit that `LIMITED` sets itself, which the variable does not take, and what collects garbage below it.
LIMIT = "per_process_memory_fraction:0.25"
COLLECTING = "garbage_collection_threshold:0.6"


@dataclass
class Curve:
    """What was reserved after each event, what the driver was asked, and how the peak may lie."""

    reserved: list
    driver_calls: int
    peaks: tuple


def record(directory, example, settings):
    """Really runs an example under settings of the allocator; returns its recording."""
    output = directory / f"{example}-{settings.replace(':', '_').replace(',', '_')}"
    script, *arguments = {**EXAMPLES, **JOBS}.get(example, OUT_OF_MEMORY)
    environment = {
        **os.environ,
        "PYTORCH_NPU_ALLOC_CONF": settings,
        "STANDIN_MEMORY_BYTES": str(CARD_BYTES),
        "STANDIN_RUN_DIR": str(directory / "cards"),
    }
    (directory / "cards").mkdir(exist_ok=True)
    command = [PROGRAM, "-o", output, "--", sys.executable, ROOT / "examples" / script, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return output


def replayed(recording, settings=None):
    """What the model says about a recording, under its own settings or under others."""
    curve = recording / "curve.csv"
    curve.unlink(missing_ok=True)
    command = [PROGRAM, "replay", recording, "--json", f"--curve={curve}", f"--card={CARD_BYTES}"]
    command += [f"--set=default,{settings}"] if settings else []
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (card,) = json.loads(result.stdout)["cards"]
    with open(curve, newline="") as file:
        rows = list(csv.DictReader(file))
    return card, rows


def real(recording):
    """What really happened."""
    card, rows = replayed(recording)
    calls = card["recorded"]["driver_allocations"] + card["recorded"]["driver_frees"]
    peak = card["recorded"]["peak_reserved_bytes"]
    return Curve([int(row["recorded_reserved_bytes"]) for row in rows], calls, (peak, peak)), card


def predicted(recording, settings):
    """What the model says would happen."""
    card, rows = replayed(recording, settings)
    trial = next((trial for trial in card["trials"] if not trial["is_recorded"]), card["trials"][0])
    outcome = trial["outcome"]
    calls = outcome["driver_allocations"] + outcome["driver_frees"]
    peaks = (trial["at_least"]["peak_reserved_bytes"], outcome["peak_reserved_bytes"])
    return Curve([int(row["reserved_bytes"]) for row in rows], calls, peaks)
