#!/usr/bin/env python3
"""`make bench`: what recording costs, against no tool, heaptrack and memray, as ratios of one run.

Every measurement is the median of interleaved rounds: each round runs every variant once, so a noisy
moment of the machine hits all of them. Costs are CPU time of the measured threads per event; an event
is one allocation or one free. Writes docs/benchmarks.md and target/bench/results.json.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "bench"
TOOL = ROOT / "target" / "release" / "msmemscope"
SYMBOLS = 50_000
CHAIN = 20


def run(command, environment=None, **options):
    """Runs a command, shows it if it fails."""
    merged = {**os.environ, **(environment or {})}
    result = subprocess.run([str(part) for part in command], env=merged, capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


AS_LIBRARY = ("-fPIC", "-shared")
#: Every call has a frame of its own, which only tables can find.
WHOLE_CALLS = ("-fno-optimize-sibling-calls", "-fomit-frame-pointer")


def compile_c(target, source, *options):
    """Compiles one file of C."""
    run(["gcc", source, "-o", target, *options])


def build():
    """Builds the measured program, its driver and the library with many symbols."""
    WORK.mkdir(parents=True, exist_ok=True)
    source = WORK / "chain.c"
    library = WORK / "libchain.so"
    if not library.exists() or library.stat().st_size < 1_000_000:
        lines = [f"void chain_{CHAIN}(void (*body)(void *), void *argument) {{ body(argument); }}"]
        for index in reversed(range(CHAIN)):
            lines.append(
                f"void chain_{index}(void (*body)(void *), void *argument) "
                f'{{ chain_{index + 1}(body, argument); __asm__ volatile("" ::: "memory"); }}'
            )
        lines += [f"int filler_{index}(int x) {{ return x + {index}; }}" for index in range(SYMBOLS)]
        source.write_text("\n".join(lines) + "\n")
        compile_c(library, source, "-O1", *WHOLE_CALLS, *AS_LIBRARY)
    driver = "-Wl,-soname,libascend_hal.so"
    compile_c(WORK / "libascend_hal.so", ROOT / "bench/driver_stub.c", "-O2", "-Wall", driver, *AS_LIBRARY)
    tools_interface = f"-I{ROOT / 'standin/include'}"
    linked = (tools_interface, f"-L{WORK}", "-lascend_hal", "-lchain", "-lpthread", f"-Wl,-rpath,{WORK}")
    events = (ROOT / "bench/events.c", "-O2", "-Wall", *WHOLE_CALLS, *linked)
    compile_c(WORK / "events", *events)
    compile_c(WORK / "libevents.so", *events, "-Dmain=events_main", *AS_LIBRARY)


def install_rivals():
    """heaptrack from Debian, memray from PyPI; what cannot be had is left out and said."""
    rivals = {}
    if not shutil.which("heaptrack") and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "heaptrack"]):
            subprocess.run(command, capture_output=True, check=False)
    if shutil.which("heaptrack"):
        rivals["heaptrack"] = run(["heaptrack", "--version"]).split()[-1]
    environment = WORK / "venv"
    python = environment / "bin" / "python"
    if not (environment / "bin" / "memray").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=False, capture_output=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "memray"], check=False, capture_output=True)
    if (environment / "bin" / "memray").exists():
        rivals["memray"] = run([environment / "bin" / "memray", "--version"]).strip()
    return rivals


def parse(text):
    match = re.search(r"cpu_ns_per_event=([\d.]+) wall_ns=(\d+) resident_kib=(\d+)", text)
    if not match:
        sys.exit(f"no measurement in: {text!r}")
    return {"ns": float(match[1]), "resident_mib": int(match[3]) / 1024}


def ours(*options):
    """A measurement under msmemscope; also weighs the trace."""

    def measure(arguments):
        output = WORK / "recording"
        shutil.rmtree(output, ignore_errors=True)
        command = [TOOL, *options, f"--output={output}", "--log-level=error", "--", WORK / "events", *arguments]
        result = parse(run(command))
        traces = list(output.glob("*/recording.trace"))
        if traces:
            # What finishing and reading count: bytes of records per event.
            text = run([TOOL, "info", output])
            match = re.search(r"\(([\d.]+) bytes each\)", text)
            result["bytes_per_event"] = float(match[1]) if match else None
            result["losses"] = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if "Missing" in line]
        return result

    return measure


def plain(arguments):
    return parse(run([WORK / "events", *arguments]))


def heaptrack(arguments):
    output = WORK / "heaptrack.out"
    for old in WORK.glob("heaptrack.out*"):
        old.unlink()
    result = parse(run(["heaptrack", "--raw", "-o", output, WORK / "events", *arguments], cwd=WORK))
    sizes = [path.stat().st_size for path in WORK.glob("heaptrack.out*")]
    result["bytes_per_event"] = sum(sizes) / events_of(arguments)
    return result


def memray(*options):
    def measure(arguments):
        script = WORK / "memray_job.py"
        script.write_text(
            "import ctypes, sys\n"
            f"library = ctypes.CDLL({str(WORK / 'libevents.so')!r})\n"
            "words = [b'events'] + [word.encode() for word in sys.argv[1:]]\n"
            "array = (ctypes.c_char_p * (len(words) + 1))(*words, None)\n"
            "sys.stdout.flush()\n"
            "library.events_main(len(words), array)\n"
            "ctypes.CDLL(None).fflush(None)\n"
        )
        output = WORK / "memray.bin"
        output.unlink(missing_ok=True)
        command = [WORK / "venv/bin/memray", "run", "-q", "-f", "-o", output, *options, script, *arguments]
        result = parse(run(command))
        result["bytes_per_event"] = output.stat().st_size / events_of(arguments)
        return result

    return measure


def events_of(arguments):
    return 2 * int(arguments[1]) * int(arguments[2])


def measure_all(cases, rounds):
    """Runs every case once per round, in turn, and keeps the median of each number."""
    samples = {name: [] for name in cases}
    for number in range(rounds):
        for name, (measure, arguments) in cases.items():
            print(f"\rround {number + 1}/{rounds}: {name:<40}", end="", file=sys.stderr, flush=True)
            samples[name].append(measure([str(argument) for argument in arguments]))
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    medians = {}
    for name, rows in samples.items():
        medians[name] = {
            key: statistics.median(row[key] for row in rows)
            if isinstance(rows[0].get(key), (int, float))
            else rows[0].get(key)
            for key in rows[0]
        }
    return medians


def finish_once(output, formats):
    """Writes the results of a recording as `msmemscope finish` does for users, analysis included."""
    for written in output.glob("*/device_*"):
        shutil.rmtree(written)
    for manifest in output.glob("*/.finished"):
        manifest.unlink()
    begin = time.monotonic()
    process = subprocess.Popen([TOOL, "finish", f"--data-format={formats}", output], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"finish --data-format={formats} failed")
    return {
        "seconds": time.monotonic() - begin,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "resident_mib": usage.ru_maxrss / 1024,
    }


def measure_results(pairs, rounds):
    """Time and memory to write csv and db of one large recording."""
    output = WORK / "large"
    shutil.rmtree(output, ignore_errors=True)
    run([TOOL, f"--output={output}", "--log-level=error", "--", WORK / "events", "hal", pairs, 2, 0])
    samples = {formats: [] for formats in ("csv", "db", "csv,db")}
    for number in range(rounds):
        for formats, taken in samples.items():
            print(f"\rround {number + 1}/{rounds}: writing {formats:<40}", end="", file=sys.stderr, flush=True)
            taken.append(finish_once(output, formats))
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    shutil.rmtree(output, ignore_errors=True)
    events = 4 * pairs
    rows = {}
    for formats, taken in samples.items():
        median = {key: statistics.median(sample[key] for sample in taken) for key in taken[0]}
        rows[formats] = {
            "events": events,
            "rows_per_second": events / median["seconds"],
            "rows_per_cpu_second": events / median["cpu_seconds"],
            **median,
        }
    return rows


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def machine():
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, glibc {platform.libc_ver()[1]}"


def report(medians, results, rivals, options):
    def added(name, base):
        return medians[name]["ns"] - medians[base]["ns"]

    sections = [
        "# Benchmarks\n",
        "Made by `make bench`; do not edit. Every number is the median of "
        f"{options.rounds} interleaved rounds in one run on this machine:\n",
        f"{machine()}, load {os.getloadavg()[0]:.1f} at the end.\n",
        "Versions: msmemscope "
        + run([TOOL, "--version"]).split()[-1]
        + "".join(f", {name} {version}" for name, version in sorted(rivals.items()))
        + ".\n",
        "Command: `make bench`; every single command is in `bench/run.py`. "
        "An event is one allocation or one free. *Added* is CPU time of the measured threads per event "
        "with the tool minus without it, in nanoseconds. The driver below our hooks does next to nothing, "
        "so its cost hides nothing.\n",
    ]
    rows = []
    for name, values in medians.items():
        if name.startswith("no tool"):
            continue
        base = "no tool, malloc" if "malloc" in name else "no tool"
        threads = 4 if "4 threads" in name else 1
        base_name = f"{base}, {threads} thread{'s' if threads > 1 else ''}"
        if "chain" in name:
            base_name = "no tool, chain, 1 thread"
        size = values.get("bytes_per_event")
        rows.append(
            [
                name,
                f"{added(name, base_name):.1f}",
                f"{size:.1f}" if size else "-",
                f"{values['resident_mib'] - medians[base_name]['resident_mib']:+.1f}",
            ]
        )
    sections.append("## Cost of recording\n")
    sections.append(
        table(["variant", "added ns per event", "bytes per event", "resident memory of the job, MiB"], rows)
    )
    one, four = added("on, 1 thread", "no tool, 1 thread"), added("on, 4 threads", "no tool, 4 threads")
    sections.append(f"Four threads on {os.cpu_count()} cores cost {four / one:.2f} times as much per event as one.\n")
    kept, forgotten = (
        added(f"{name}, for long, 1 thread", "no tool, 1 thread") for name in ("on", "flight recorder of 64 MiB")
    )
    sections.append(
        f"For long is {20 * options.pairs:,} pairs. A flight recorder of 64 MiB, which forgets most of them, costs "
        f"{forgotten / kept:.2f} times as much per event as recording all of them.\n"
    )
    losses = sorted({line for values in medians.values() for line in values.get("losses") or []})
    sections.append(
        "heaptrack and memray are measured on malloc and free under the same call stack, the nearest work they "
        "know; their files are compressed, ours are not.\n"
    )
    sections.append(
        "Where we are not ahead: both gather events in a buffer of the job, which a SIGKILL takes with it; "
        "ours are in the file as soon as the call returns, sorted by an exact clock, with a state that "
        "says which call was under way. Without stacks that is the difference to memray, which writes no "
        "time per event. With stacks, heaptrack and memray walk with libunwind's cache of frame layouts and "
        "trust the stack they walk; we check every address before reading it, so that a damaged stack "
        "cannot crash the job. They take a stack for every allocation, we take one for every free as well, because "
        "rows of frees are to have one; `c:20:alloc` takes none of frees, and is what compares to them per event.\n"
    )
    sections.append("Losses in these runs: " + ("; ".join(losses) if losses else "none") + ".\n")
    sections.append("## Writing results\n")
    sections.append(
        "`msmemscope finish` on one recording, with the analyses of a run by default. By wall clock, which "
        "is what a user waits for, and per second of CPU time over all threads, which is what it costs.\n"
    )
    sections.append(
        table(
            ["files", "events", "seconds", "rows per second", "rows per CPU second", "peak memory, MiB"],
            [
                [
                    name,
                    f"{row['events']:,}",
                    f"{row['seconds']:.1f}",
                    f"{row['rows_per_second']:,.0f}",
                    f"{row['rows_per_cpu_second']:,.0f}",
                    f"{row['resident_mib']:.0f}",
                ]
                for name, row in results.items()
            ],
        )
    )
    missing = {"heaptrack", "memray"} - set(rivals)
    if missing:
        sections.append("Could not be installed here, so not compared: " + ", ".join(sorted(missing)) + ".\n")
    return "\n".join(sections)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=400_000)
    parser.add_argument(
        "--large", type=int, default=2_500_000, help="pairs per thread of the recording that is finished"
    )
    options = parser.parse_args()
    build()
    rivals = install_rivals()
    pairs = options.pairs
    fewer = pairs // 8
    # Several times what fits into the flight recorder.
    long = 20 * pairs
    off, shadow = ours("--events=none"), ours("--collect-mode=deferred")
    on, stacks, stacks_of_allocations = ours(), ours("--call-stack=c:20"), ours("--call-stack=c:20:alloc")
    flight = ours("--flight-recorder=64MiB", "--trigger=signal")
    cases = {
        "no tool, 1 thread": (plain, ["hal", pairs, 1, 0]),
        "no tool, 4 threads": (plain, ["hal", pairs, 4, 0]),
        "no tool, chain, 1 thread": (plain, ["chain", pairs, 1, 0]),
        "no tool, malloc, 1 thread": (plain, ["malloc", pairs, 1, 20]),
        "off, 1 thread": (off, ["hal", pairs, 1, 0]),
        "shadow, 1 thread": (shadow, ["hal", pairs, 1, 0]),
        "on, 1 thread": (on, ["hal", pairs, 1, 0]),
        "on, 4 threads": (on, ["hal", pairs, 4, 0]),
        "on, 100,000 live blocks, 1 thread": (on, ["hal", pairs, 1, 0, 100_000]),
        "on with stacks c:20, 1 thread": (stacks, ["hal", fewer, 1, 20]),
        "on with stacks c:20, 4 threads": (stacks, ["hal", fewer, 4, 20]),
        "on with stacks c:20:alloc, 1 thread": (stacks_of_allocations, ["hal", fewer, 1, 20]),
        "on with stacks c:20:alloc, 4 threads": (stacks_of_allocations, ["hal", fewer, 4, 20]),
        "on, for long, 1 thread": (on, ["hal", long, 1, 0]),
        "flight recorder of 64 MiB, for long, 1 thread": (flight, ["hal", long, 1, 0]),
        f"on with stacks c:20 through {SYMBOLS:,} symbols (chain), 1 thread": (stacks, ["chain", fewer, 1, 0]),
    }
    if "heaptrack" in rivals:
        cases["heaptrack (stacks), malloc, 1 thread"] = (heaptrack, ["malloc", fewer, 1, 20])
    if "memray" in rivals:
        cases["memray, malloc, 1 thread"] = (memray(), ["malloc", fewer, 1, 20])
        cases["memray --native, malloc, 1 thread"] = (memray("--native"), ["malloc", fewer, 1, 20])
    medians = measure_all(cases, options.rounds)
    results = measure_results(options.large, max(1, options.rounds // 2))
    text = report(medians, results, rivals, options)
    (WORK / "results.json").write_text(json.dumps({"cost": medians, "results": results, "rivals": rivals}, indent=2))
    (ROOT / "docs" / "benchmarks.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
