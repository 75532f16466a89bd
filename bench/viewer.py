#!/usr/bin/env python3
"""Part of `make bench`: how fast the viewer shows and answers. Writes docs/benchmarks-viewer.md.

Makes a training-like recording, opens it with `msmemscope view` and asks over HTTP as the page does: the first picture,
zooming and panning, what holds memory, flame graphs, tables; then opens it again, from the index. Other work on the
machine makes the clock tell little: answers are the quickest of several, and beside the clock stands processor time.
"""

import argparse
import http.client
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target" / "release" / "msmemscope"
GENERATOR = ROOT / "target" / "release" / "examples" / "viewer_input"
INDEX = "viewer.index"
TARGETS = "first picture 2 s, answers 100 ms, reopening 0.5 s, memory 1024 MiB"
REPEATS = 5
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Viewer:
    """A running viewer, asked over one connection."""

    def __init__(self, directory):
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [PROGRAM, "view", directory, "--no-browser"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        url = self.process.stdout.readline().strip()
        self.until_address = time.monotonic() - self.started
        host, self.path = url.removeprefix("http://").split("/", 1)
        self.connection = http.client.HTTPConnection(host, timeout=600)

    def ask(self, question):
        """The answer, and the seconds that it took."""
        started = time.monotonic()
        self.connection.request("GET", f"/{self.path}api/{question}")
        answer = json.loads(self.connection.getresponse().read())
        return answer, time.monotonic() - started

    def until(self, question, is_enough):
        """Seconds from the start until an answer is enough: by the clock, and of processor time."""
        while not is_enough(self.ask(question)[0]):
            time.sleep(0.02)
        return time.monotonic() - self.started, self.processor_seconds()

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def mebibytes(self):
        """The most memory so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait()


def is_picture(curve):
    return any(curve.get("max") or [])


def is_complete(session):
    return session["complete"]


def questions(viewer):
    """Windows as users make them: zooming in, and looking around."""
    recording = viewer.ask("session")[0]["recordings"][0]
    first, last = recording["t0"], recording["t1"]
    chance = random.Random(7)
    for depth in (1, 3, 10, 100, 1000, 10_000):
        span = (last - first) // depth
        start = first + chance.randrange(max(1, last - first - span))
        window = f"t0={start}&t1={start + span}"
        yield "curve", f"curve?{window}&width=1600&by=owner"
        yield "tracks", f"tracks?{window}&width=1600"
        yield "blocks", f"blocks?{window}&width=1600&height=700"
        yield "what holds memory", f"holds?t={start}&by=site"
        yield "flame graph", f"flame?kind=time&t={start}"
        yield "table of blocks", f"table/blocks?{window}&sort=bytes&descending=1"
        yield "table of events", f"table/events?{window}&offset=100"
        yield "steps", "steps?sort=growth_bytes&descending=1"
        yield "chart of steps", "steps/bars?bars=300"
        yield "pool", f"pool?t={start}"


def measure(millions):
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as directory:
        subprocess.run([GENERATOR, directory, str(millions)], check=True)
        viewer = Viewer(directory)
        figures = {"address": viewer.until_address, "first": viewer.until("curve?width=1000", is_picture)}
        figures["read"] = viewer.until("session", is_complete)
        answers, processor = {}, {}
        for name, question in questions(viewer):
            before = viewer.processor_seconds()
            answers.setdefault(name, []).append(min(viewer.ask(question)[1] for _ in range(REPEATS)))
            processor[name] = processor.get(name, 0) + viewer.processor_seconds() - before
        figures["answers"] = {
            name: (statistics.median(times), max(times), processor[name] / len(times) / REPEATS)
            for name, times in answers.items()
        }
        index = Path(directory) / INDEX
        deadline = time.monotonic() + 120
        while not index.exists():
            if time.monotonic() > deadline:
                sys.exit("the index is not written")
            time.sleep(0.1)
        figures["index"] = index.stat().st_size / 2**20
        figures["recording"] = (Path(directory) / "recording.trace").stat().st_size / 2**20
        figures["mebibytes"] = viewer.mebibytes()
        viewer.stop()
        figures["again"] = min(reopen(directory) for _ in range(REPEATS))
    return figures


def reopen(directory):
    viewer = Viewer(directory)
    seconds = viewer.until("session", is_complete)
    viewer.stop()
    return seconds


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=int, nargs="+", default=[1, 10])
    arguments.add_argument("--only-print", action="store_true")
    options = arguments.parse_args()
    build = ["cargo", "build", "--release", "-p", "made-recordings", "--example", "viewer_input"]
    if shutil.which("cargo") and subprocess.run(build, cwd=ROOT, check=False).returncode != 0:
        sys.exit("the generator does not build")
    measured = {millions: measure(millions) for millions in options.millions}
    columns = " | ".join(f"{millions} million events" for millions in measured)
    lines = [
        "# The viewer: from recording to picture",
        "",
        f"A training-like run of one process, {os.cpu_count()} CPUs ({platform.machine()}), load "
        f"{os.getloadavg()[0]:.1f}. Made by `bench/viewer.py`.",
        f"Targets for 10 million events on a machine without other work: {TARGETS}.",
        "",
        f"| | {columns} |",
        "|---|" + "---|" * len(measured),
    ]

    def both(seconds):
        return f"{seconds[0]:.2f} s ({seconds[1]:.2f} s of processor time)"

    def row(name, value):
        cells = " | ".join(value(figures) for figures in measured.values())
        lines.append(f"| {name} | {cells} |")
        print(lines[-1], flush=True)

    row("address printed", lambda figures: f"{figures['address']:.2f} s")
    row("first picture", lambda figures: both(figures["first"]))
    row("everything read and analysed", lambda figures: both(figures["read"]))
    for name in next(iter(measured.values()))["answers"]:
        row(
            f"{name}: median, slowest, processor time",
            lambda figures, name=name: " / ".join(f"{1000 * seconds:.0f} ms" for seconds in figures["answers"][name]),
        )
    row("most memory", lambda figures: f"{figures['mebibytes']:.0f} MiB")
    row("size of the recording", lambda figures: f"{figures['recording']:.0f} MiB")
    row("size of its index", lambda figures: f"{figures['index']:.0f} MiB")
    row("opened again, everything there", lambda figures: both(figures["again"]))
    if not options.only_print:
        (ROOT / "docs" / "benchmarks-viewer.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
