"""What the tool records of a real framework is what the device and the framework say themselves."""

import csv
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from programs import EXAMPLES
from truth import read

PROGRAM = Path(os.environ.get("MSMEMSCOPE", Path(__file__).resolve().parents[2] / "target/release/msmemscope"))

STATISTICS = """
import mstx, torch, torch_npu
kept = []
for step in range(6):
    kept.append(torch.empty((step + 1) * 300_000, device="npu"))
    torch.empty(50_000_000 * (step % 2) + 1, device="npu")
    if step == 3:
        del kept[:2]
    torch.npu.synchronize()
    mstx.mark(f"allocated {torch.npu.memory_allocated()} reserved {torch.npu.memory_reserved()}")
"""


def record(directory, arguments, **variables):
    """Runs a Python program with the tool in front; returns the rows of device 0 and the device's own log."""
    log, output = directory / "log", directory / "output"
    log.mkdir()
    environment = {**os.environ, "STANDIN_LOG": str(log), **variables}
    command = [PROGRAM, "-o", output, "--", sys.executable, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = []
    for path in output.glob("*/device_0/dump/memscope_dump_*.csv"):
        with open(path, newline="") as file:
            rows.extend(csv.DictReader(file))
    assert rows, result.stderr
    rows.sort(key=lambda row: int(row["Timestamp(ns)"]))
    return rows, read(log)


def attributes(row):
    return dict(re.findall(r"(\w+):([^,}]*)", row["Attr"]))


def recorded(rows, kind):
    """Sizes given and freed per address, in order, without the frees that the end of the process implies."""
    history = defaultdict(list)
    for row in rows:
        if row["Event"] in ("MALLOC", "FREE") and row["Event Type"] == kind:
            found = attributes(row)
            if "shadow" not in found:
                history[int(row["Ptr"], 16)].append((row["Event"], int(found["size"])))
    return dict(history)


def expected(entries, names):
    """The same from the device's own log."""
    history, sizes = defaultdict(list), {}
    for entry in entries:
        if entry.result != 0 or entry.kind not in names:
            continue
        if names[entry.kind] == "MALLOC":
            sizes[entry.address] = entry.size
        history[entry.address].append((names[entry.kind], sizes[entry.address]))
    return dict(history)


DRIVER = {"alloc": "MALLOC", "free": "FREE", "create": "MALLOC", "release": "FREE"}
POOL = {"region_register": "MALLOC", "region_unregister": "FREE"}


@pytest.mark.parametrize("example", [("mlp.py",), ("cnn.py",), ("gpt.py", "--amp"), ("inference.py",),
                                     ("expandable_segments.py",)], ids=" ".join)
def test_recorded_events_are_the_events_of_the_device(tmp_path, example):
    arguments = [str(EXAMPLES / example[0]), *example[1:], "--steps", "3"]
    rows, entries = record(tmp_path, arguments)
    on_device = [entry for entry in entries if entry.device == 0 or entry.library == "ms_tools_ext"]
    assert recorded(rows, "HAL") == expected(on_device, DRIVER)
    assert recorded(rows, "PTA") == expected(on_device, POOL)
    assert recorded(rows, "PTA")


def test_totals_agree_with_the_statistics_of_the_framework(tmp_path):
    rows, _ = record(tmp_path, ["-c", STATISTICS])
    last, checked = None, 0
    for row in rows:
        if row["Event"] in ("MALLOC", "FREE") and row["Event Type"] == "PTA":
            last = attributes(row)
        elif row["Event"] == "MSTX":
            allocated, reserved = re.search(r"allocated (\d+) reserved (\d+)", row["Name"]).groups()
            assert (last["used"], last["total"]) == (allocated, reserved)
            checked += 1
    assert checked == 6
