#!/usr/bin/env python3
"""Counts the instructions of the recorder's hot paths with callgrind and holds them against a budget.

Instruction counts do not depend on what else the machine does, so they can fail a test where times cannot. Only
what lies between two marks of the program is counted: how it starts and ends differs from run to run. Every path is
run with some events and with twice as many; the difference is what the additional events cost. `--update` writes the
counts found, with a little room, as the new budget. `--package` counts what a wheel has brought instead.
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import run as bench

import python as python_bench

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / "bench" / "instruction_budget.json"
PAIRS = 4_000
ROOM = 1.10

# Paths of C programs: options of msmemscope, then kind, threads and depth of bench/events.c.
PATHS = {
    "off": (["--events=none"], "hal", 1, 0),
    "shadow": (["--collect-mode=deferred"], "hal", 1, 0),
    "on": ([], "hal", 1, 0),
    "on with stacks c:20": (["--call-stack=c:20"], "hal", 1, 20),
    "the same, main thread": (["--call-stack=c:20"], "hal", 0, 20),
    "the same, of allocations only": (["--call-stack=c:20:alloc"], "hal", 0, 20),
    "pool": ([], "pool", 0, 0),
    "pool with stacks c:20": (["--call-stack=c:20"], "pool", 0, 20),
    "beyond the size limit": (["--max-trace-size=1MiB", "--call-stack=c:20"], "hal", 0, 20),
}
# So many pairs do not fit into a trace of the smallest size.
PAIRS_BEYOND_LIMIT = 60_000
# What making room in a flight recorder costs for each event that it forgets: kind and threads of bench/events.c.
FORGETTING = {
    "forgotten event": ("hal", 0),
    "forgotten event of a pool": ("pool", 0),
    "forgotten event, two threads": ("hal", 2),
}
# So many pairs do not fit into the smallest flight recorder.
FLIGHT_RECORDER = "--flight-recorder=8MiB"
PAIRS_BEYOND_FLIGHT_RECORDER = 450_000
# Where a trace says how many records were left out (docs/trace-format.md).
LEFT_OUT_OFFSET = 88

# Paths of Python programs: measurement of bench/python.py, variant, the one it is compared with, events in a round.
PYTHON_PATHS = {
    "Python frames, default": ("frames", "default", "no frames", 1),
    "the same, changing lines": ("frames", "default, changing lines", "no frames, changing lines", 1),
    "Python frames, python:20": ("frames", "python:20", "no frames", 2),
    "Python trace, per call": ("trace", "traced", "empty profile", 1),
}


def instructions(command, environment, directory):
    """Instructions of a program between its two calls of `getpgrp`, which are its marks."""
    # At every mark callgrind writes what it counted since the one before to a file of its own: counted.1, counted.2.
    counted = Path(directory) / "counted"
    front = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}", "--dump-before=getpgrp"]
    command = [str(part) for part in (*front, *command)]
    result = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"valgrind failed:\n{result.stdout}{result.stderr}")
    parts = sorted(part.name for part in counted.parent.glob("counted.*"))
    if parts != ["counted.1", "counted.2"]:
        sys.exit(f"the program has to set two marks; counted were {parts}:\n{result.stdout}{result.stderr}")
    return int(re.search(r"^totals: (\d+)", counted.with_suffix(".2").read_text(), re.MULTILINE)[1])


def instructions_of_pairs(options, kind, threads, depth, pairs):
    """Instructions of a C program that allocates and frees so many times; without options it runs without the tool."""
    return instructions_and_left_out(options, kind, threads, depth, pairs)[0]


def instructions_and_left_out(options, kind, threads, depth, pairs):
    """The same, and how many records the recording has left out."""
    with tempfile.TemporaryDirectory() as directory:
        # The launcher is left out: it would be counted as well. Its environment is what matters.
        environment = dict(os.environ)
        if options is not None:
            command = [bench.TOOL, *options, f"--output={directory}", "--log-level=error", "--", "env", "-0"]
            text = subprocess.run([str(part) for part in command], capture_output=True, check=True).stdout
            pairs_of_environment = (entry.split(b"=", 1) for entry in text.split(b"\0") if b"=" in entry)
            environment = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs_of_environment}
        count = instructions([bench.WORK / "events", kind, pairs, threads, depth], environment, directory)
        headers = [trace.open("rb").read(LEFT_OUT_OFFSET + 8) for trace in Path(directory).glob("*/recording.trace")]
        return count, sum(struct.unpack_from("<Q", header, LEFT_OUT_OFFSET)[0] for header in headers)


def cost_of_forgetting(kind, threads):
    """What a forgotten event costs beyond what it cost to record it."""
    pairs = PAIRS_BEYOND_FLIGHT_RECORDER // max(1, threads)
    recorded, _ = instructions_and_left_out([], kind, threads, 0, pairs)
    with_forgetting, left_out = instructions_and_left_out([FLIGHT_RECORDER], kind, threads, 0, pairs)
    if not left_out:
        sys.exit(f"nothing was forgotten of {pairs} pairs of {kind}")
    return (with_forgetting - recorded) / left_out


def instructions_of_python(measurement, variant, count):
    """Instructions of a Python program that does something so many times."""
    with tempfile.TemporaryDirectory() as directory:
        started = python_bench.command_and_environment(["--once", measurement, variant, count])
        environment = {**started["env"], "PYTHONHASHSEED": "0"}
        return instructions(started["args"], environment, directory)


def cost_of_one(count, pairs=PAIRS):
    """What one more costs, by the difference between many and twice as many."""
    return (count(2 * pairs) - count(pairs)) / pairs


def added_instructions():
    """What an event costs on every path, beyond the program itself. Several programs are counted at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def count(path):
            pairs = PAIRS_BEYOND_LIMIT if "--max-trace-size=1MiB" in (path[0] or []) else PAIRS
            return pool.submit(cost_of_one, partial(instructions_of_pairs, *path), pairs)

        native = {name: count(path) for name, path in PATHS.items()}
        without_tool = {kind: count((None, kind, 1, 0)) for kind in sorted({path[1] for path in PATHS.values()})}
        variants = {(path[0], variant) for path in PYTHON_PATHS.values() for variant in path[1:3]}
        forgetting = {name: pool.submit(cost_of_forgetting, *path) for name, path in FORGETTING.items()}
        python = {key: pool.submit(cost_of_one, partial(instructions_of_python, *key)) for key in sorted(variants)}
    added = {name: (cost.result() - without_tool[PATHS[name][1]].result()) / 2 for name, cost in native.items()}
    added.update({name: cost.result() for name, cost in forgetting.items()})
    for name, (measurement, variant, base, events) in PYTHON_PATHS.items():
        added[name] = (python[measurement, variant].result() - python[measurement, base].result()) / events
    return {name: round(count, 1) for name, count in added.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--package", type=Path, metavar="DIR", help="where a wheel was unpacked, instead of this build")
    options = parser.parse_args()
    if options.package:
        python_bench.PACKAGE = options.package.resolve()
        bench.TOOL = python_bench.PACKAGE / "msmemscope" / "bin" / "msmemscope.bin"
    if not shutil.which("valgrind") and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "valgrind"]):
            subprocess.run(command, capture_output=True, check=False)
    if not shutil.which("valgrind"):
        print("instructions per event are left out: valgrind is not there (apt-get install valgrind)")
        return
    bench.build()
    added = added_instructions()
    if options.update:
        BUDGET.write_text(json.dumps({name: round(count * ROOM) for name, count in added.items()}, indent=2) + "\n")
    budget = json.loads(BUDGET.read_text())
    failures = 0
    for name, count in added.items():
        fits = count <= budget[name]
        failures += not fits
        print(f"{'ok  ' if fits else 'OVER'}  {name:<26} {count:8.1f} of {budget[name]} instructions per event")
    print(f"{len(added) - failures} passed, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
