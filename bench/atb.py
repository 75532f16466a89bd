#!/usr/bin/env python3
"""Part of `make bench`: what recording an operation of ATB costs the thread that executes it.

Writes docs/benchmarks-atb.md. Times are processor times of the thread; the best of several rounds is given. The
operation adds two tensors and needs no workspace: nothing but the operation, its kernel and its tensors is told. To
tell of kernels ATB collects their tensors, which costs more than all else: accesses are compared with a tool that
ignores them.
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
EXECUTIONS = 10_000
NOTHING, IGNORED = "no tool", "a tool that asks for everything and ignores it"
#: Options, what the variant is compared with, and what it may add to an operation, in nanoseconds.
VARIANTS = {
    NOTHING: (None, None, None),
    IGNORED: (None, None, None),
    "memory": (["--events=alloc,free"], NOTHING, None),
    "operations": (["--events=alloc,free,launch"], NOTHING, 1_000),
    "operations and accesses": (["--events=alloc,free,launch,access"], IGNORED, 3_000),
}


def run(command, directory, **variables):
    environment = dict(os.environ, **variables, LD_LIBRARY_PATH=str(STANDIN / "lib64"), ASCEND_HOME_PATH=str(STANDIN))
    command = [str(part) for part in command]
    result = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    best = {}
    with tempfile.TemporaryDirectory() as directory:
        program, atb = Path(directory) / "atb", STANDIN / "atb" / "cxx_abi_1" / "lib"
        libraries = ["-lascendcl", "-lruntime", atb / "libatb.so", f"-Wl,-rpath,{atb}"]
        compiler = ["g++", "-std=c++17", "-O1", "-I", STANDIN / "include", ROOT / "bench" / "atb.cpp", "-o", program]
        run([*compiler, "-L", STANDIN / "lib64", *libraries, f"-Wl,-rpath-link,{STANDIN / 'lib64'}"], directory)
        ignoring = Path(directory) / "libignoring.so"
        source = ROOT / "bench" / "atb_ignoring.cpp"
        run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", ignoring], directory)
        for _ in range(options.rounds):
            for name, (settings, _, _) in VARIANTS.items():
                front = [] if settings is None else [RELEASE / "msmemscope", *settings, "-o", "out", "--"]
                variables = {"LD_PRELOAD": str(ignoring)} if name == IGNORED else {}
                measured = float(run([*front, program, EXECUTIONS], directory, **variables).split()[0])
                best[name] = min(best.get(name, measured), measured)
    rows, is_missed = [], False
    for name, (_, other, most) in VARIANTS.items():
        added = 0 if other is None else best[name] - best[other]
        is_missed |= most is not None and added > most
        told = "" if other is None else f"{added:.0f} ns to {other}"
        rows.append(f"| {name} | {best[name]:.0f} ns | {told} | {'' if most is None else f'{most:,} ns'} |")
    lines = [
        "# Recording ATB",
        "",
        f"{os.cpu_count()} CPUs ({platform.machine()}), best of {options.rounds} rounds, load "
        f"{os.getloadavg()[0]:.1f}. Made by `bench/atb.py`.",
        "",
        "An operation of ATB with one kernel, two tensors that go in and one that comes out, on the stand-in's libatb:",
        "",
        "| recorded | processor time per operation | added | target |",
        "|---|---|---|---|",
        *rows,
    ]
    if is_missed:
        lines += ["", "A target was missed in this run."]
    print("\n".join(lines[4:]))
    (ROOT / "docs" / "benchmarks-atb.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
