#!/usr/bin/env python3
"""Part of `make bench`: many ranks and huge recordings. Writes docs/benchmarks-fleet.md.

Merges ten thousand summaries; takes one process with many events through finishing, analysing, exporting and viewing;
asks the dataset with DuckDB and, where `make test-fleet` has installed it, with Spark. The most memory is that of the
whole program; of the viewer it is what the system cannot take back, without its columns in files.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import run as recording

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
PROGRAM = RELEASE / "msmemscope"
ONE_PROCESS = RELEASE / "examples" / "viewer_input"
MANY_RANKS = RELEASE / "examples" / "made_fleet"
FLEET_PYTHON = ROOT / "target" / "fleet-venv" / "bin" / "python"
SUMMARIES = 10_000
RANKS = 64
STEPS = 200
QUESTIONS = ["peak", "growth", "leaked_blocks", "owners_at_peak", "outliers"]
ASK = """
import sys, time
sys.path.insert(0, sys.argv[1])
from msmemscope import fleet
for name in sys.argv[4:]:
    begin = time.monotonic()
    rows = len(fleet.query(name, sys.argv[2], engine=sys.argv[3]))
    print(name, rows, time.monotonic() - begin, flush=True)
"""


def cost(arguments):
    """Seconds of waiting, processor seconds and mebibytes of a run of the program."""
    begin = time.monotonic()
    process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{arguments[0]} failed: {said.decode(errors='replace')}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def private_mebibytes(process_id):
    """Memory that the system cannot take back: without files, of which it keeps in memory what it has room for."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def view(path):
    """The same for the viewer, until everything is read and analysed; memory without its columns in files."""
    begin = time.monotonic()
    command = [PROGRAM, "view", "--no-browser", "--port=0", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        address = server.stdout.readline().split()[0].partition("#")[0]
        while True:
            with urllib.request.urlopen(f"{address}api/session") as answer:
                if json.load(answer)["complete"]:
                    break
            time.sleep(0.2)
        seconds = time.monotonic() - begin
        mebibytes = private_mebibytes(server.pid)
        server.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
    return seconds, usage.ru_utime + usage.ru_stime, mebibytes


def record(millions):
    """What it costs a job to be recorded through this many events: nanoseconds for each, and mebibytes."""
    recording.build()
    work = ["hal", millions * 500_000, 1, 0]
    without, recorded = recording.plain(work), recording.ours()(work)
    shutil.rmtree(recording.WORK / "recording", ignore_errors=True)
    lost = " ".join(recorded["losses"]) or "nothing"
    added_mebibytes = recorded["resident_mib"] - without["resident_mib"]
    return recorded["ns"] - without["ns"], added_mebibytes, recorded["bytes_per_event"], lost


def merge(home):
    """What it costs to merge many summaries, and how large they are."""
    subprocess.run([MANY_RANKS, home / "one", "1", "1000", "0"], check=True)
    cost(["finish", home / "one" / "rank0"])
    text = (home / "one" / "rank0" / "summary.json").read_text()
    for rank in range(SUMMARIES):
        own = home / "many" / f"host{rank // 8}" / f"rank{rank}"
        own.mkdir(parents=True)
        said = text.replace('"rank":0,', f'"rank":{rank},').replace('"world_size":1,', f'"world_size":{SUMMARIES},')
        (own / "summary.json").write_text(said)
    return cost(["fleet", home / "many"]), view(home / "many"), len(text)


def ask(python, dataset, engine):
    """Seconds of every question."""
    command = [python, "-c", ASK, ROOT / "python", dataset, engine, *QUESTIONS]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        return {}
    return {line.split()[0]: float(line.split()[2]) for line in completed.stdout.splitlines()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=int, default=100)
    arguments.add_argument("--only-print", action="store_true")
    options = arguments.parse_args()
    for package, example in [("made-recordings", ONE_PROCESS.name), ("made-recordings", MANY_RANKS.name)]:
        build = ["cargo", "build", "--release", "-p", package, "--example", example]
        if shutil.which("cargo") and subprocess.run(build, cwd=ROOT, check=False).returncode != 0:
            sys.exit("a generator does not build")
    lines = [
        "# Many ranks and huge recordings: what they cost",
        "",
        f"{os.cpu_count()} CPUs ({platform.machine()}), load {os.getloadavg()[0]:.1f}. Made by `bench/fleet.py`.",
        "Targets: 10,000 summaries in 10 s and 500 MiB; Parquet 1 million events per second of a core.",
        "",
    ]
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as directory:
        home = Path(directory)
        (seconds, _, mebibytes), (view_seconds, _, view_mebibytes), size = merge(home)
        said = (
            f"`fleet` of {SUMMARIES:,} summaries of {size / 1024:.0f} KiB: {seconds:.1f} s, {mebibytes:.0f} MiB;"
            f" `view` of them: {view_seconds:.1f} s, {view_mebibytes:.0f} MiB."
        )
        print(said, flush=True)
        millions = options.millions
        lines += [said, "", f"One process, {millions} million events:", ""]
        nanoseconds, mebibytes, bytes_per_event, lost = record(millions)
        lines += [
            f"Recording them, allocations and frees of the driver, takes the job {nanoseconds:.0f} ns each and"
            f" {mebibytes:.1f} MiB; {bytes_per_event:.1f} bytes each are written, {lost} is lost.",
            "",
        ]
        print(lines[-2], flush=True)
        lines += ["| | waiting | processor time | million events per processor second | most memory |"]
        lines += ["|---|---:|---:|---:|---:|"]
        made = home / "recording"
        made.mkdir()
        subprocess.run([ONE_PROCESS, made, str(millions)], check=True)
        dataset = home / "dataset"
        for name, measured in [
            ("finish, csv and summary", lambda: cost(["finish", made])),
            ("analyze", lambda: cost(["analyze", made])),
            ("export, Parquet", lambda: cost(["export", made, "--to=parquet", "-o", dataset])),
            ("view, until all is read", lambda: view(made)),
        ]:
            seconds, processor, mebibytes = measured()
            rate = millions / processor
            lines.append(f"| {name} | {seconds:.0f} s | {processor:.0f} s | {rate:.2f} | {mebibytes:.0f} MiB |")
            print(lines[-1], flush=True)
        stored = sum(path.stat().st_size for path in dataset.rglob("*.parquet"))
        trace = (made / "recording.trace").stat().st_size
        events = millions * 1_000_000
        lines += ["", f"Parquet: {stored / events:.1f} bytes per event; the recording: {trace / events:.1f}.", ""]
        shutil.rmtree(made)
        subprocess.run([MANY_RANKS, home / "job", str(RANKS), str(STEPS), "7"], check=True)
        cost(["export", home / "job", "--to=parquet", "-o", home / "ranks"])
        python = FLEET_PYTHON if FLEET_PYTHON.exists() else sys.executable
        answers = {engine: ask(python, home / "ranks", engine) for engine in ("duckdb", "spark")}
        lines += [f"Questions to {RANKS} ranks of {STEPS} steps each; Spark's first one starts Spark:", ""]
        lines += ["| question | DuckDB | Spark, local |", "|---|---:|---:|"]
        for question in QUESTIONS:
            cells = [answers[engine].get(question) for engine in ("duckdb", "spark")]
            shown = [f"{cell:.2f} s" if cell is not None else "not installed" for cell in cells]
            lines.append(f"| `{question}` | {' | '.join(shown)} |")
            print(lines[-1], flush=True)
    if not options.only_print:
        (ROOT / "docs" / "benchmarks-fleet.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
