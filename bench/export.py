#!/usr/bin/env python3
"""Part of `make bench`: what it costs to export a recording. Writes docs/benchmarks-export.md.

Makes a training-like recording and writes it in every format, and as a report. Processor time and the most memory are
those of the whole program, symbols and compression included.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target" / "release" / "msmemscope"
GENERATOR = ROOT / "target" / "release" / "examples" / "viewer_input"
FORMATS = ["perfetto", "folded", "speedscope", "pprof", "firefox-profiler", "torch-snapshot"]
REPORTS = ["html", "markdown", "json"]
TARGETS = "perfetto and folded 1 million events per second, 300 MiB of memory"
REPEATS = 3


def cost(arguments):
    """Processor seconds and mebibytes of a run of the program."""
    process = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{arguments[0]} failed: {said.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(directory, arguments, output):
    """The least of several runs, and the size of what they write."""
    runs = [cost([*arguments[:1], directory, *arguments[1:], "-o", output]) for _ in range(REPEATS)]
    return min(seconds for seconds, _ in runs), max(mebibytes for _, mebibytes in runs), output.stat().st_size / 2**20


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=int, default=10)
    arguments.add_argument("--only-print", action="store_true")
    options = arguments.parse_args()
    build = ["cargo", "build", "--release", "-p", "made-recordings", "--example", "viewer_input"]
    if shutil.which("cargo") and subprocess.run(build, cwd=ROOT, check=False).returncode != 0:
        sys.exit("the generator does not build")
    lines = [
        "# Exports and reports: what they cost",
        "",
        f"A training-like run of one process, {options.millions} million events, {os.cpu_count()} CPUs "
        f"({platform.machine()}), load {os.getloadavg()[0]:.1f}. Made by `bench/export.py`; processor time is the "
        f"least of {REPEATS} runs.",
        f"Targets: {TARGETS}.",
        "",
        "| format | processor time | million events per second | most memory | size |",
        "|---|---:|---:|---:|---:|",
    ]
    commands = [(name, ["export", f"--to={name}"]) for name in FORMATS]
    commands += [(f"report, {name}", ["report", f"--format={name}"]) for name in REPORTS]
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as directory:
        recording = Path(directory) / "recording"
        recording.mkdir()
        subprocess.run([GENERATOR, recording, str(options.millions)], check=True)
        for position, (name, command) in enumerate(commands):
            seconds, mebibytes, size = measure(recording, command, Path(directory) / f"output-{position}")
            rate = options.millions / seconds
            lines.append(f"| {name} | {seconds:.1f} s | {rate:.1f} | {mebibytes:.0f} MiB | {size:.1f} MiB |")
            print(lines[-1], flush=True)
    if not options.only_print:
        (ROOT / "docs" / "benchmarks-export.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
