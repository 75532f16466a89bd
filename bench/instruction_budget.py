#!/usr/bin/env python3
"""Counts the instructions of the recorder's hot paths with callgrind and holds them against a budget.

Instruction counts do not depend on what else the machine does, so they can fail a test where times
cannot. Every path is run with some events and with twice as many; the difference is what the
additional events cost. `--update` writes the counts found, with a little room, as the new budget.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import run as bench

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / "bench" / "instruction_budget.json"
PAIRS = 4_000
ROOM = 1.10

# Path: options of msmemscope (None: without it), arguments of the measured program behind the number of pairs.
PATHS = {
    "no tool": (None, "hal", 0),
    "off": (["--events=none"], "hal", 0),
    "shadow": (["--collect-mode=deferred"], "hal", 0),
    "on": ([], "hal", 0),
    "on with stacks c:20": (["--call-stack=c:20"], "hal", 20),
}


def instructions(options, kind, depth, pairs):
    with tempfile.TemporaryDirectory() as directory:
        # The launcher is left out: it would be counted as well. Its environment is what matters.
        environment = dict(os.environ)
        if options is not None:
            command = [bench.TOOL, *options, f"--output={directory}", "--log-level=error", "--", "env", "-0"]
            text = subprocess.run([str(part) for part in command], capture_output=True, check=True).stdout
            pairs_of_environment = (entry.split(b"=", 1) for entry in text.split(b"\0") if b"=" in entry)
            environment = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs_of_environment}
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", bench.WORK / "events", kind, pairs, 1, depth]
        result = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, check=False)
    match = re.search(r"Collected : (\d+)", result.stderr)
    if result.returncode != 0 or not match:
        sys.exit(f"valgrind failed:\n{result.stdout}{result.stderr}")
    return int(match[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if not shutil.which("valgrind") and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "valgrind"]):
            subprocess.run(command, capture_output=True, check=False)
    if not shutil.which("valgrind"):
        sys.exit("valgrind is needed to count instructions: install it (apt-get install valgrind)")
    bench.build()
    found = {}
    for name, (tool_options, kind, depth) in PATHS.items():
        more = instructions(tool_options, kind, depth, 2 * PAIRS)
        found[name] = (more - instructions(tool_options, kind, depth, PAIRS)) / (2 * PAIRS)
    added = {name: round(count - found["no tool"], 1) for name, count in found.items() if name != "no tool"}
    if options.update:
        BUDGET.write_text(json.dumps({name: round(count * ROOM) for name, count in added.items()}, indent=2) + "\n")
    budget = json.loads(BUDGET.read_text())
    failures = 0
    for name, count in added.items():
        fits = count <= budget[name]
        failures += not fits
        print(f"{'ok  ' if fits else 'OVER'}  {name:<24} {count:8.1f} of {budget[name]} instructions per event")
    print(f"{len(added) - failures} passed, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
