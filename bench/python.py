#!/usr/bin/env python3
"""`make bench`, the Python package: what frames, operators, accesses and the call trace cost.

Every figure is the fastest of interleaved rounds: each round measures every variant once, in the same process
where that is possible, and there are several such processes. The work is the same every time, so whatever else the
machine does can only add. Times are processor time. Writes docs/benchmarks-python.md. The measurements with PyTorch
need `make torch-venv` and are left out without it.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STANDIN = Path(os.environ.get("STANDIN_HOME", ROOT / "target" / "standin"))
#: Where the package is imported from.
PACKAGE = ROOT / "python"
TORCH_PYTHON = ROOT / "target" / "torch-venv" / "bin" / "python"
PROGRAM = ROOT / "python" / "msmemscope" / "bin" / "msmemscope.bin"


def rounds_of(variants, rounds):
    """Processor seconds of each variant in its fastest round: preparation, what is timed, clean-up."""
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
    return {name: min(values) for name, values in seconds.items()}


def nothing():
    """Does nothing."""


NATIVE_PAIRS = """
typedef int (*allocate_function)(void **, unsigned long, int);
typedef int (*free_function)(void *);
void pairs(allocate_function allocate, free_function free, long count) {
    void *address;
    for (long number = 0; number < count; number++) {
        allocate(&address, 4096, 0);
        free(address);
    }
}
"""


def compiled(name, source):
    """A library made of C source."""
    import ctypes

    Path(f"{name}.c").write_text(source)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so"], check=True)
    return ctypes.CDLL(f"./{name}.so")


def nested(innermost):
    """Thirty functions around one, each with code of its own and in one of a few files, as in real programs."""
    for level in range(30):
        scope = {"call": innermost}
        source = f"def layer_{level}_forward():\n    return call()\n"
        exec(compile(source, f"/models/part_{level % 7}/layers.py", "exec"), scope)
        innermost = scope[f"layer_{level}_forward"]
    return innermost


def frame_variants(count):
    """This many allocations and frees, with frames of neither, of the allocations (the default) or of both."""
    import ctypes

    import msmemscope
    from msmemscope import _internal

    runtime = ctypes.CDLL("libascendcl.so")
    runtime.aclInit(None)
    runtime.aclrtSetDevice(0)
    pairs = compiled("pairs", NATIVE_PAIRS).pairs
    functions = runtime.aclrtMallocAlign32, runtime.aclrtFree
    one = ctypes.c_long(1)

    def on_changing_lines():
        for _ in range((count + 1) // 2):
            pairs(*functions, one)
            pairs(*functions, one)

    same_line = nested(lambda: pairs(*functions, ctypes.c_long(count)))
    changing_lines = nested(on_changing_lines)

    def use(call_stack, default_frames):
        def start():
            msmemscope.config(events="alloc,free", call_stack=call_stack)
            _internal.set_default_frames(default_frames)
            msmemscope.start()

        return start

    def stop():
        msmemscope.stop(finish=False)

    return {
        "no frames": (use("", 0), same_line, stop),
        "default": (use("", 16), same_line, stop),
        "python:20": (use("python:20", 16), same_line, stop),
        "no frames, changing lines": (use("", 0), changing_lines, stop),
        "default, changing lines": (use("", 16), changing_lines, stop),
    }


EMPTY_PROFILE = "int empty(void *object, void *frame, int what, void *argument) { return 0; }\n"


def trace_variants(calls):
    """This many Python calls: alone, with an empty C profile function, and traced."""
    import ctypes

    import msmemscope

    empty = ctypes.cast(compiled("empty", EMPTY_PROFILE).empty, ctypes.c_void_p)
    set_profile = ctypes.pythonapi.PyEval_SetProfile
    set_profile.argtypes = [ctypes.c_void_p, ctypes.py_object]

    def function():
        pass

    def call():
        for _ in range(calls):
            function()

    def start():
        msmemscope.config(events="traceback")
        msmemscope.start()

    return {
        "alone": (nothing, call, nothing),
        "empty profile": (lambda: set_profile(empty, None), call, lambda: set_profile(None, None)),
        "traced": (start, call, lambda: msmemscope.stop(finish=False)),
    }


def operator_variants(calls):
    """This many calls of a small operator: alone, launches recorded, an empty dispatch mode, accesses recorded."""
    import msmemscope
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Empty(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    torch.set_num_threads(1)
    # An operator that calls no others: those inside would be seen by the observer too.
    tensor, other = torch.zeros(8), torch.zeros(8)
    mode = Empty()

    def work():
        for _ in range(calls):
            tensor.add_(other)

    def start(events, device="npu"):
        return lambda: (msmemscope.config(events=events, device=device), msmemscope.start())

    def stop():
        msmemscope.stop(finish=False)

    return {
        "alone": (start("alloc,free"), work, stop),
        "launches": (start("alloc,free,launch"), work, stop),
        "empty mode": (mode.__enter__, work, lambda: mode.__exit__(None, None, None)),
        "accesses": (start("alloc,free,access", "cpu"), work, stop),
    }


#: Threads of torch_npu that look again and again whether there is something to do: their time is that of the clock.
LOOKING_THREADS = ("release_thread", "acl_thread")


def seconds_of_threads():
    """Processor seconds of all threads that work."""
    total_ns = 0
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().strip() not in LOOKING_THREADS:
            total_ns += int((thread / "schedstat").read_text().split()[0])
    return total_ns / 1e9


#: Variants of a measurement, and how often each does its work in a round.
MEASUREMENTS = {
    "frames": (frame_variants, 10_000),
    "trace": (trace_variants, 20_000),
    "operators": (operator_variants, 5_000),
}


def measure(name, rounds):
    """Nanoseconds of every variant."""
    variants, count = MEASUREMENTS[name]
    return {variant: value / count * 1e9 for variant, value in rounds_of(variants(count), rounds).items()}


def run_once(name, variant, count):
    """One variant alone, its work between two marks, for those who count its instructions."""
    variants, _ = MEASUREMENTS[name]
    for part in variants(1)[variant]:  # lets everything be prepared
        part()
    prepare, measured, restore = variants(count)[variant]
    prepare()
    os.getpgrp()
    measured()
    os.getpgrp()
    restore()


def serve_steps():
    """One training step of the GPT example for every line that is read, and the processor seconds it took."""
    sys.path.insert(0, str(ROOT / "examples"))
    import torch
    from common import TEXT, encode, prepare
    from transformer import Transformer

    prepare("npu")
    numbers, letters = encode(TEXT * 4)
    model = Transformer(letters).to("npu")
    windows = torch.stack([numbers[start : start + 65] for start in range(0, 512, 64)]).to("npu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step():
        predicted = model(windows[:, :-1])
        loss = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    step()
    step()
    print("READY", os.getpid(), flush=True)
    for _ in sys.stdin:
        begin = seconds_of_threads()
        step()
        print("STEP", seconds_of_threads() - begin, flush=True)


def command_and_environment(arguments, python=sys.executable, front=()):
    """How this program is started in a process of its own, on the stand-in device."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(PACKAGE), str(STANDIN / "python"))),
        "LD_LIBRARY_PATH": str(STANDIN / "lib64"),
        "ASCEND_HOME_PATH": str(STANDIN),
        "ASCEND_OPP_PATH": str(STANDIN / "opp"),
        "OMP_NUM_THREADS": "1",
    }
    command = [*front, python, __file__, *arguments]
    return {"args": list(map(str, command)), "env": environment, "text": True}


def in_process(name, rounds, python=sys.executable):
    """Runs one measurement in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        started = command_and_environment(["--measure", name, "--rounds", rounds], python)
        result = subprocess.run(**started, cwd=directory, capture_output=True)
    if result.returncode != 0:
        sys.exit(f"failed: {name}\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout.rpartition("RESULT ")[2])


PROCESSES = 3


def in_processes(name, rounds, python=sys.executable):
    """The fastest of all rounds in several processes: one may be disturbed as long as it lives."""
    measured = [in_process(name, max(rounds // PROCESSES, 3), python) for _ in range(PROCESSES)]
    return {variant: min(values[variant] for values in measured) for variant in measured[0]}


class Trainer:
    """A process that trains, one step at a time, and is stopped in between."""

    def __init__(self, directory, front):
        started = command_and_environment(["--serve-steps"], TORCH_PYTHON, front)
        self._process = subprocess.Popen(
            **started, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._process_id = int(self._answer("READY"))
        os.kill(self._process_id, signal.SIGSTOP)

    def _answer(self, word):
        for line in self._process.stdout:
            if line.startswith(word):
                return line.split()[1]
        sys.exit(f"failed: a training process ended with status {self._process.wait()}")

    def step(self):
        """Processor seconds of one step."""
        os.kill(self._process_id, signal.SIGCONT)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seconds = float(self._answer("STEP"))
        os.kill(self._process_id, signal.SIGSTOP)
        return seconds

    def end(self):
        """Lets it end, and the launcher, which stops when its child does."""
        for process_id in {self._process_id, self._process.pid}:
            os.kill(process_id, signal.SIGCONT)
        self._process.communicate()


STEPS_PER_PAIR = 12


def steps_with_and_without(pairs):
    """Milliseconds of a training step, alone and recorded, and by how many percent recording makes it longer.

    Others on the machine disturb more than recording costs, so two processes take turns step by step; and no two
    processes are the same, so there are several pairs. All figures are medians over the pairs.
    """
    fronts = {"alone": (), "recorded": (PROGRAM, "--events=alloc,free", "--log-level=error", "--")}
    fastest = {name: [] for name in fronts}
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as directory:
            trainers = {name: Trainer(directory, front) for name, front in fronts.items()}
            seconds = {name: [] for name in fronts}
            for _ in range(STEPS_PER_PAIR):
                for name, trainer in trainers.items():
                    seconds[name].append(trainer.step())
            for name, trainer in trainers.items():
                trainer.end()
                fastest[name].append(min(seconds[name]) * 1e3)
    slower = statistics.median(
        (recorded / alone - 1) * 100 for alone, recorded in zip(fastest["alone"], fastest["recorded"])
    )
    return {name: statistics.median(values) for name, values in fastest.items()}, slower


def pairs_of(rounds):
    """How many pairs of processes train."""
    return max(rounds * 2 // 3, 3)


def row(what, cost, limit, unit):
    verdict = "within" if cost <= limit else "**above**"
    return f"| {what} | {cost:,.2f} {unit} | {limit:,.2f} {unit} | {verdict} |\n"


def write(frames, trace, operators, steps, slower, rounds):
    """The report."""
    text = (
        "# What the Python package costs\n\nWritten by `make bench` (bench/python.py). The fastest of "
        f"{rounds} interleaved rounds in {PROCESSES} processes on {platform.machine()} with {os.cpu_count()} cores, "
        f"CPython {platform.python_version()}; the device is the stand-in. Times are processor time; a cost is the "
        "difference to the variant without it. Training steps are those of processes with and without the recorder "
        f"that take turns step by step: the median over {pairs_of(rounds)} pairs.\n\n"
        "| what | cost | wanted at most | |\n|---|---|---|---|\n"
    )
    base = frames["no frames"]
    text += row("Python frames by default, per allocation", frames["default"] - base, 150, "ns")
    text += row(
        "the same, with allocations from changing lines",
        frames["default, changing lines"] - frames["no frames, changing lines"],
        150,
        "ns",
    )
    text += row("Python frames, `python:20`, per allocation or free", (frames["python:20"] - base) / 2, 400, "ns")
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
        text += row("training step of examples/gpt.py with `--events=alloc,free`", slower, 2, "%")
    text += "\n## As measured\n\n| measurement | variant | time |\n|---|---|---|\n"
    for title, values, unit in (
        ("allocation and free, thirty calls deep", frames, "ns"),
        ("Python call", trace, "ns"),
        ("`tensor.add_(other)` on the CPU: one operator, three accesses", operators or {}, "ns"),
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
    parser.add_argument("--serve-steps", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--once", nargs=3, metavar=("MEASUREMENT", "VARIANT", "COUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print("RESULT", json.dumps(measure(arguments.measure, arguments.rounds)))
        return
    if arguments.serve_steps:
        serve_steps()
        return
    if arguments.once:
        name, variant, count = arguments.once
        run_once(name, variant, int(count))
        return
    frames = in_processes("frames", arguments.rounds)
    trace = in_processes("trace", arguments.rounds)
    operators = steps = slower = None
    if TORCH_PYTHON.exists():
        operators = in_processes("operators", arguments.rounds, TORCH_PYTHON)
        steps, slower = steps_with_and_without(pairs_of(arguments.rounds))
    else:
        print("without target/torch-venv the measurements with PyTorch are left out", file=sys.stderr)
    write(frames, trace, operators, steps, slower, arguments.rounds)


if __name__ == "__main__":
    main()
