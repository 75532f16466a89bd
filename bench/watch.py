#!/usr/bin/env python3
"""Part of `make bench`: how fast watched memory is hashed and two recordings are compared.

Writes docs/benchmarks-watch-compare.md. Times are processor times, because those do not depend on what else the
machine does; the best of several rounds is given.
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
RELEASE = ROOT / "target" / "release"
LEAST_GIGABYTES = 5
MOST_SECONDS, MOST_MEGABYTES = 3, 500
#: How many of a hundred operators differ.
PERCENT = (1, 33)
REFERENCE = "30 to 39 s and 2.6 GB"


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def measure(*command):
    """Processor seconds and largest resident megabytes of a command."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def compare(options, percent):
    """Seconds and megabytes of comparing two recordings that differ in so many of a hundred operators."""
    with tempfile.TemporaryDirectory() as directory:
        run(RELEASE / "examples" / "comparison_input", directory, options.events, percent)
        command = (
            RELEASE / "msmemscope",
            "compare",
            f"--output={directory}/out",
            f"{directory}/base",
            f"{directory}/other",
        )
        return min(measure(*command) for _ in range(options.rounds))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    run("cargo", "build", "--release", "-p", "msmemscope-watch", "--example", "watch_speed")
    run("cargo", "build", "--release", "-p", "msmemscope-analysis", "--example", "comparison_input")
    hashing = [json.loads(run(RELEASE / "examples" / "watch_speed")) for _ in range(options.rounds)]
    fingerprint, checksum = (max(measured[name] for measured in hashing) for name in ("fingerprint", "checksum"))
    compared = {percent: compare(options, percent) for percent in PERCENT}
    lines = [
        "# Watching memory, comparing recordings",
        "",
        f"One thread of {os.cpu_count()} CPUs ({platform.machine()}), best of {options.rounds} rounds, load "
        f"{os.getloadavg()[0]:.1f}. Made by `bench/watch.py`.",
        "",
        "| what | measured | target |",
        "|---|---|---|",
        f"| hash of contents, as all watching uses it | {fingerprint:.1f} GB/s | {LEAST_GIGABYTES} GB/s |",
        f"| checksum of `watch_dump_data_check_sum` files | {checksum:.1f} GB/s | - |",
        *(
            f"| compare two recordings of {options.events:,} events that differ in {percent} % of the operators | "
            f"{seconds:.1f} s, {megabytes:.0f} MB | {MOST_SECONDS} s, {MOST_MEGABYTES} MB |"
            for percent, (seconds, megabytes) in compared.items()
        ),
        "",
        f"The comparison is the whole command, with reading both recordings and writing all rows; the reference tool "
        f"needs {REFERENCE}.",
    ]
    is_slow = any(seconds > MOST_SECONDS or megabytes > MOST_MEGABYTES for seconds, megabytes in compared.values())
    if fingerprint < LEAST_GIGABYTES or is_slow:
        lines.append("A target was missed in this run.")
    print("\n".join(lines[5:-1]))
    (ROOT / "docs" / "benchmarks-watch-compare.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
