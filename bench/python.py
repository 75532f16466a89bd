#!/usr/bin/env python3
"""`make bench`, the Python package: what frames, operators, accesses and the call trace cost.

Every figure is the median of interleaved rounds: each round measures every variant once, in the same process
where that is possible, so a noisy moment of the machine hits all of them. Times are processor time. Writes docs/benchmarks-python.md.
The measurements with PyTorch need `make torch-venv` and are left out without it.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STANDIN = ROOT / "target" / "standin"
TORCH_PYTHON = ROOT / "target" / "torch-venv" / "bin" / "python"
PROGRAM = ROOT / "python" / "msmemscope" / "bin" / "msmemscope.bin"


def rounds_of(variants, rounds):
    """Processor seconds of each variant, median over the rounds: preparation, what is timed, clean-up."""
    seconds = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, (prepare, measured, restore) in variants.items():
            prepare()
            begin = time.thread_time()
            measured()
            elapsed = time.thread_time() - begin
            restore()
            if number > 0:  # the first round only warms up
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def nothing():
    """Does nothing."""


def measure_frames(rounds):
    """Nanoseconds of an allocation and a free, without Python frames, with the default and with twenty."""
    import ctypes

    import msmemscope

    runtime = ctypes.CDLL("libascendcl.so")
    runtime.aclInit(None)
    runtime.aclrtSetDevice(0)
    address = ctypes.c_void_p()
    allocate, free, place = runtime.aclrtMallocAlign32, runtime.aclrtFree, ctypes.byref(address)
    size, policy = ctypes.c_size_t(4096), ctypes.c_int(0)
    pairs = 10000

    def pairs_at(depth):
        if depth > 0:
            return pairs_at(depth - 1)
        for _ in range(pairs):
            allocate(place, size, policy)
            free(address)

    def use(call_stack):
        return lambda: (msmemscope.config(events="alloc,free", call_stack=call_stack), msmemscope.start())

    def stop():
        msmemscope.stop(finish=False)

    deep = lambda: pairs_at(30)  # noqa: E731 - the same for all variants
    variants = {
        "no frames": (use("python:0"), deep, stop),
        "default": (use(""), deep, stop),
        "python:20": (use("python:20"), deep, stop),
    }
    return {name: value / pairs * 1e9 for name, value in rounds_of(variants, rounds).items()}


EMPTY_PROFILE = "int empty(void *object, void *frame, int what, void *argument) { return 0; }\n"


def measure_trace(rounds):
    """Nanoseconds of a Python call: alone, with an empty C profile function, and traced."""
    import ctypes

    import msmemscope

    source = Path("empty.c")
    source.write_text(EMPTY_PROFILE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", "empty.so"], check=True)
    empty = ctypes.cast(ctypes.CDLL("./empty.so").empty, ctypes.c_void_p)
    set_profile = ctypes.pythonapi.PyEval_SetProfile
    set_profile.argtypes = [ctypes.c_void_p, ctypes.py_object]
    calls = 20000

    def function():
        pass

    def call():
        for _ in range(calls):
            function()

    def start():
        msmemscope.config(events="traceback")
        msmemscope.start()

    variants = {
        "alone": (nothing, call, nothing),
        "empty profile": (lambda: set_profile(empty, None), call, lambda: set_profile(None, None)),
        "traced": (start, call, lambda: msmemscope.stop(finish=False)),
    }
    return {name: value / calls * 1e9 for name, value in rounds_of(variants, rounds).items()}


def measure_operators(rounds):
    """Nanoseconds of a small operator: alone, launches recorded, an empty dispatch mode, accesses recorded."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    import msmemscope

    class Empty(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    torch.set_num_threads(1)
    tensor = torch.zeros(8)
    calls = 5000
    mode = Empty()

    def work():
        for _ in range(calls):
            tensor.add_(1)

    def start(events, device="npu"):
        return lambda: (msmemscope.config(events=events, device=device), msmemscope.start())

    def stop():
        msmemscope.stop(finish=False)

    variants = {
        "alone": (start("alloc,free"), work, stop),
        "launches": (start("alloc,free,launch"), work, stop),
        "empty mode": (mode.__enter__, work, lambda: mode.__exit__(None, None, None)),
        "accesses": (start("alloc,free,access", "cpu"), work, stop),
    }
    return {name: value / calls * 1e9 for name, value in rounds_of(variants, rounds).items()}


def measure_steps(rounds):
    """Processor seconds of one training step of the GPT example, all threads, as it is run from outside."""
    sys.path.insert(0, str(ROOT / "examples"))
    import torch
    from common import TEXT, encode, prepare
    from transformer import Transformer

    prepare("npu")
    numbers, letters = encode(TEXT * 4)
    model = Transformer(letters).to("npu")
    windows = torch.stack([numbers[start : start + 65] for start in range(0, 512, 64)]).to("npu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        predicted = model(windows[:, :-1])
        loss = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.process_time() - begin)
    return {"step": statistics.median(seconds[2:])}


MEASUREMENTS = {
    "frames": measure_frames,
    "trace": measure_trace,
    "operators": measure_operators,
    "steps": measure_steps,
}


def in_process(name, rounds, python=sys.executable, front=()):
    """Runs one measurement in a process of its own, on the stand-in device."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "python"), str(STANDIN / "python"))),
            "LD_LIBRARY_PATH": str(STANDIN / "lib64"),
            "ASCEND_HOME_PATH": str(STANDIN),
            "ASCEND_OPP_PATH": str(STANDIN / "opp"),
            "OMP_NUM_THREADS": "1",
        }
        command = [*front, python, __file__, "--measure", name, "--rounds", str(rounds)]
        result = subprocess.run(
            list(map(str, command)), cwd=directory, env=environment, capture_output=True, text=True
        )
    if result.returncode != 0:
        sys.exit(f"failed: {name}\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout.rpartition("RESULT ")[2])


def steps_with_and_without(rounds):
    """Milliseconds of a training step, alone and recorded; processes take turns."""
    variants = {"alone": (), "recorded": (PROGRAM, "--events=alloc,free", "--log-level=error", "--")}
    values = {name: [] for name in variants}
    for _ in range(rounds):
        for name, front in variants.items():
            values[name].append(in_process("steps", 20, TORCH_PYTHON, front)["step"] * 1e3)
    return {name: statistics.median(measured) for name, measured in values.items()}


def row(what, cost, limit, unit):
    verdict = "within" if cost <= limit else "**above**"
    return f"| {what} | {cost:,.2f} {unit} | {limit:,.2f} {unit} | {verdict} |\n"


def write(frames, trace, operators, steps, rounds):
    """The report."""
    text = (
        "# What the Python package costs\n\nWritten by `make bench` (bench/python.py). Medians of "
        f"{rounds} interleaved rounds on {platform.machine()} with {os.cpu_count()} cores, CPython "
        f"{platform.python_version()}; the device is the stand-in. Times are processor time; a cost is the difference to the variant "
        "without it.\n\n| what | cost | wanted at most | |\n|---|---|---|---|\n"
    )
    base = frames["no frames"]
    text += row("Python frames by default, per allocation", frames["default"] - base, 150, "ns")
    text += row("Python frames, `python:20`, per allocation", frames["python:20"] - base, 400, "ns")
    text += row(
        "Python trace, per call, relative to an empty C profile function",
        (trace["traced"] - trace["alone"]) / max(trace["empty profile"] - trace["alone"], 1e-9),
        2,
        "x",
    )
    if operators:
        text += row("operator launch, per operator", operators["launches"] - operators["alone"], 500, "ns")
        text += row(
            "accesses, per operator, relative to an empty dispatch mode",
            operators["accesses"] / operators["empty mode"],
            1.5,
            "x",
        )
    if steps:
        slower = (steps["recorded"] / steps["alone"] - 1) * 100
        text += row("training step of examples/gpt.py with `--events=alloc,free`", slower, 2, "%")
    text += "\n## As measured\n\n| measurement | variant | median |\n|---|---|---|\n"
    for title, values, unit in (
        ("allocation and free, thirty calls deep", frames, "ns"),
        ("Python call", trace, "ns"),
        ("`tensor.add_(1)` on the CPU", operators or {}, "ns"),
        ("training step", steps or {}, "ms"),
    ):
        for variant, value in values.items():
            text += f"| {title} | {variant} | {value:,.1f} {unit} |\n"
    (ROOT / "docs" / "benchmarks-python.md").write_text(text)
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print("RESULT", json.dumps(MEASUREMENTS[arguments.measure](arguments.rounds)))
        return
    frames = in_process("frames", arguments.rounds)
    trace = in_process("trace", arguments.rounds)
    operators = steps = None
    if TORCH_PYTHON.exists():
        operators = in_process("operators", arguments.rounds, TORCH_PYTHON)
        steps = steps_with_and_without(max(arguments.rounds // 6, 3))
    else:
        print("without target/torch-venv the measurements with PyTorch are left out", file=sys.stderr)
    write(frames, trace, operators, steps, arguments.rounds)


if __name__ == "__main__":
    main()
