#!/usr/bin/env python3
"""Part of `make bench`: how fast requests are replayed. Writes docs/benchmarks-replay.md.

Makes a training-like recording and replays it under several settings. A replay is a run of all requests through the
model of the allocator; reading the recording is not part of it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target" / "release" / "msmemscope"
GENERATOR = ROOT / "target" / "release" / "examples" / "viewer_input"
TARGET_MILLIONS_PER_SECOND = 2
REPEATS = 3


def rate(recording):
    """Million events per second of the fastest of several replays, and how many events there are."""
    best, events = 0.0, 0
    for _ in range(REPEATS):
        result = subprocess.run([PROGRAM, "replay", recording, "--json"], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"replay failed: {result.stderr}")
        for card in json.loads(result.stdout)["cards"]:
            agreement = card["agreement"]
            events = agreement["events"]
            best = max(best, events / agreement["replay_seconds"] / 1e6)
    return best, events


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=int, default=10)
    arguments.add_argument("--only-print", action="store_true")
    options = arguments.parse_args()
    build = ["cargo", "build", "--release", "-p", "made-recordings", "--example", "viewer_input"]
    if subprocess.run(build, cwd=ROOT, check=False).returncode != 0:
        sys.exit("the generator does not build")
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as directory:
        subprocess.run([GENERATOR, directory, str(options.millions)], check=True)
        millions_per_second, events = rate(directory)
    verdict = "met" if millions_per_second >= TARGET_MILLIONS_PER_SECOND else "missed"
    lines = [
        "# Replay: how fast it is",
        "",
        f"A training-like run of one process, {events:,} blocks that begin or end, {os.cpu_count()} CPUs "
        f"({platform.machine()}), load {os.getloadavg()[0]:.1f}. Made by `bench/replay.py`; the fastest of {REPEATS}.",
        "",
        "| target | measured | |",
        "|---:|---:|---|",
        f"| {TARGET_MILLIONS_PER_SECOND} million events per second | {millions_per_second:.1f} | {verdict} |",
    ]
    print("\n".join(lines))
    if not options.only_print:
        (ROOT / "docs" / "benchmarks-replay.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
