#!/usr/bin/env python3
"""Part of `make bench`: what recording kernels costs the thread that launches, and what the recorder's thread takes.

Writes docs/benchmarks-kernels.md. Times are processor times; the best of several rounds is given. The stand-in device
does more itself when its reports are listened to, so recording is compared with a profiler that ignores all it hears.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
STANDIN = ROOT / "target" / "standin"
MOST_NANOSECONDS, MOST_PERCENT = 1_000, 2
LAUNCHES, PER_SECOND, SECONDS = 200_000, 50_000, 3


def run(command, directory):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(STANDIN / "lib64"), ASCEND_HOME_PATH=str(STANDIN))
    command = [str(part) for part in command]
    result = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    variants = {"no tool": (0, []), "a profiler that ignores all": (1, [])}
    for level in ("op", "kernel"):
        variants[f"--level={level}"] = (0, [RELEASE / "msmemscope", f"--level={level}", "-o", "out", "--"])
    best = {}
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "kernels"
        libraries = ["-lascendcl", "-lruntime", "-lprofapi", f"-Wl,-rpath-link,{STANDIN / 'lib64'}"]
        compiler = ["gcc", "-O1", "-I", STANDIN / "include", ROOT / "bench" / "kernels.c", "-o", program]
        run([*compiler, "-L", STANDIN / "lib64", *libraries], directory)
        for _ in range(options.rounds):
            for name, (listens, front) in variants.items():
                printed = run([*front, program, listens, LAUNCHES, PER_SECOND, SECONDS], directory)
                line = next(line for line in printed.splitlines() if len(line.split()) == 2)
                measured = [float(number) for number in line.split()]
                best[name] = [min(pair) for pair in zip(best.get(name, measured), measured, strict=True)]
    added = best["--level=kernel"][0] - best["a profiler that ignores all"][0]
    percent = best["--level=kernel"][1]
    lines = [
        "# Recording kernels",
        "",
        f"{os.cpu_count()} CPUs ({platform.machine()}), best of {options.rounds} rounds, load "
        f"{os.getloadavg()[0]:.1f}. Made by `bench/kernels.py`.",
        "",
        "| launching a kernel on the stand-in device | processor time per launch |",
        "|---|---|",
        *(f"| {name} | {nanoseconds:.0f} ns |" for name, (nanoseconds, _) in best.items()),
        "",
        "| cost of recording | measured | target |",
        "|---|---|---|",
        f"| per launch, on the launching thread | {added:.0f} ns | {MOST_NANOSECONDS} ns |",
        f"| the recorder's thread at {PER_SECOND:,} kernels per second | {percent:.2f} % of a processor | "
        f"{MOST_PERCENT} % |",
        "",
    ]
    if added > MOST_NANOSECONDS or percent > MOST_PERCENT:
        lines.append("A target was missed in this run.")
    print("\n".join(lines[4:]))
    (ROOT / "docs" / "benchmarks-kernels.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
