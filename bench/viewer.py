#!/usr/bin/env python3
"""Part of `make bench`: how fast the viewer shows and answers. Writes docs/benchmarks-viewer.md.

Records a training-like run, opens it with `msmemscope view` twice and asks over HTTP
as the page does: the first picture, zooming and panning, what holds memory, flame graphs, tables.
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
TARGETS = "first picture 2 s, answers 100 ms, reopening 0.5 s, memory 1024 MiB"


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
        """Seconds from the start until an answer is enough."""
        while not is_enough(self.ask(question)[0]):
            time.sleep(0.02)
        return time.monotonic() - self.started

    def mebibytes(self):
        """The most memory so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait()


def is_picture(curve):
    return any(curve.get("max") or [])


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
        yield "table", f"table/blocks?{window}&sort=bytes&descending=1"


def measure(millions):
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as directory:
        subprocess.run([GENERATOR, directory, str(millions)], check=True)
        viewer = Viewer(directory)
        figures = {"address": viewer.until_address, "first": viewer.until("curve?width=1000", is_picture)}
        figures["read"] = viewer.until("session", lambda session: session["complete"])
        answers = {}
        for name, question in questions(viewer):
            viewer.ask(question) if name == "curve" else None
            answers.setdefault(name, []).append(viewer.ask(question)[1])
        figures["answers"] = {name: (statistics.median(times), max(times)) for name, times in answers.items()}
        figures["mebibytes"] = viewer.mebibytes()
        viewer.stop()
        again = Viewer(directory)
        figures["again"] = again.until("curve?width=1000", is_picture)
        figures["again_complete"] = again.until("session", lambda session: session["complete"])
        again.stop()
    return figures


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--millions", type=int, nargs="+", default=[1, 10])
    arguments.add_argument("--only-print", action="store_true")
    options = arguments.parse_args()
    build = ["cargo", "build", "--release", "-p", "msmemscope-viewer", "--example", "viewer_input"]
    if shutil.which("cargo") and subprocess.run(build, cwd=ROOT, check=False).returncode != 0:
        sys.exit("the generator does not build")
    measured = {millions: measure(millions) for millions in options.millions}
    columns = " | ".join(f"{millions} million events" for millions in measured)
    lines = [
        "# The viewer: from recording to picture",
        "",
        f"A training-like run of one process, {os.cpu_count()} CPUs ({platform.machine()}), load "
        f"{os.getloadavg()[0]:.1f}. Made by `bench/viewer.py`. Targets for 10 million events: {TARGETS}.",
        "",
        f"| | {columns} |",
        "|---|" + "---|" * len(measured),
    ]

    def row(name, value):
        cells = " | ".join(value(figures) for figures in measured.values())
        lines.append(f"| {name} | {cells} |")
        print(lines[-1], flush=True)

    row("address printed", lambda figures: f"{figures['address']:.2f} s")
    row("first picture", lambda figures: f"{figures['first']:.2f} s")
    row("everything read and analysed", lambda figures: f"{figures['read']:.1f} s")
    for name in next(iter(measured.values()))["answers"]:
        row(
            f"{name}, median and slowest",
            lambda figures, name=name: " / ".join(f"{1000 * seconds:.0f} ms" for seconds in figures["answers"][name]),
        )
    row("most memory", lambda figures: f"{figures['mebibytes']:.0f} MiB")
    row("opened again, first picture", lambda figures: f"{figures['again']:.2f} s")
    row("opened again, complete", lambda figures: f"{figures['again_complete']:.2f} s")
    if not options.only_print:
        (ROOT / "docs" / "benchmarks-viewer.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
