#!/usr/bin/env python3
"""Part of `make bench`: how fast recordings become files. Writes docs/benchmarks-finishing.md.

Rows per second are given twice: by wall clock, which is what a user waits for on this machine as busy
as it was, and per second of CPU time over all threads, which is what the work costs.
"""

import argparse
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "target" / "release" / "examples"
TARGETS = {"csv": 1_500_000, "db": 300_000}
LARGEST_MEMORY_MIB = 1024


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def measure(recording, formats):
    """Finishes a recording once: rows, wall seconds, CPU seconds, MiB."""
    for name in recording.iterdir():
        if name.name.startswith("device_"):
            shutil.rmtree(name)
    (recording / ".finished").unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    text = run(EXAMPLES / "finish_bench", recording, formats)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    rows, memory = re.search(r"(\d+) rows in .* at most (\d+) MiB", text).groups()
    return int(rows), wall, cpu, int(memory)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=10_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    run("cargo", "build", "--release", "-p", "msmemscope-output", "--examples")
    lines = [
        "# Finishing: from recording to files",
        "",
        f"{options.events:,} events of 4 threads, {os.cpu_count()} CPUs ({platform.machine()}), best of "
        f"{options.rounds} rounds, load {os.getloadavg()[0]:.1f}. Made by `bench/finish.py`.",
        "",
        "| files | rows | rows/s, wall | rows/s of CPU time | memory |",
        "|---|---|---|---|---|",
    ]
    missed = []
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as directory:
        recording = Path(directory)
        run(EXAMPLES / "make_recording", recording, options.events, 4, 1)
        for formats in ("none", "csv", "db", "both"):
            rounds = [measure(recording, formats) for _ in range(options.rounds)]
            rows = rounds[0][0]
            wall = rows / min(wall for _, wall, _, _ in rounds)
            cpu = rows / min(cpu for _, _, cpu, _ in rounds)
            memory = max(memory for _, _, _, memory in rounds)
            title = {"none": "none (events only)", "both": "csv and db"}.get(formats, formats)
            lines.append(f"| {title} | {rows:,} | {wall:,.0f} | {cpu:,.0f} | {memory} MiB |")
            print(lines[-1], flush=True)
            if wall < TARGETS.get(formats, 0) or memory > LARGEST_MEMORY_MIB:
                missed.append(title)
    lines += ["", "Targets: 1,500,000 csv rows/s, 300,000 db rows/s, 1 GiB of memory."]
    if missed:
        lines.append(f"Missed by wall clock in this run: {', '.join(missed)}.")
    (ROOT / "docs" / "benchmarks-finishing.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
