"""What the tool records of a real framework is what the device and the framework say themselves."""

import csv
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from programs import EXAMPLES, IS_OLD, OUT_OF_MEMORY
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


# Runs an example and marks, whenever it reports a step, what the framework says about its memory.
STEPS_WITH_STATISTICS = """
import runpy, sys
script, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, script.rpartition("/")[0])
import common, mstx, torch, torch_npu
def report(step, loss):
    statistics = torch.npu.memory_stats()
    allocated, reserved = (statistics[f"{kind}_bytes.all.current"] for kind in ("allocated", "reserved"))
    mstx.mark(f"allocated {allocated} reserved {reserved}")
common.report = report
runpy.run_path(script, run_name="__main__")
"""


def run_recorded(directory, arguments, *options, **variables):
    """Runs a Python program with the tool in front; returns how it went, and the device's own log."""
    log, output = directory / "log", directory / "output"
    log.mkdir(parents=True)
    environment = {**os.environ, "STANDIN_LOG": str(log), **variables}
    command = [PROGRAM, "-o", output, *options, "--", sys.executable, *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result, read(log)


def rows_of(directory, device):
    """The rows of one device in the order of time."""
    rows = []
    for path in directory.glob(f"output/*/device_{device}/dump/memscope_dump_*.csv"):
        with open(path, newline="") as file:
            rows.extend(csv.DictReader(file))
    return sorted(rows, key=lambda row: int(row["Timestamp(ns)"]))


def record(directory, arguments, **variables):
    """Runs a Python program with the tool in front; returns the rows of device 0 and the device's own log."""
    result, entries = run_recorded(directory, arguments, **variables)
    rows = rows_of(directory, 0)
    assert rows, result.stderr
    return rows, entries


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


@pytest.mark.parametrize(
    "example",
    [("mlp.py",), ("cnn.py",), ("gpt.py", "--amp"), ("inference.py",), ("expandable_segments.py",)],
    ids=" ".join,
)
def test_recorded_events_are_the_events_of_the_device(tmp_path, example):
    arguments = [str(EXAMPLES / example[0]), *example[1:], "--steps", "3"]
    rows, entries = record(tmp_path, arguments)
    on_device = [entry for entry in entries if entry.device == 0 or entry.library == "ms_tools_ext"]
    assert recorded(rows, "HAL") == expected(on_device, DRIVER)
    assert recorded(rows, "PTA") == expected(on_device, POOL)
    assert recorded(rows, "PTA")


def assert_statistics_agree(rows):
    """What marks say about the framework's memory is what the rows before them say; returns the number of marks."""
    last, checked = None, 0
    for row in rows:
        if row["Event"] in ("MALLOC", "FREE") and row["Event Type"] == "PTA":
            last = attributes(row)
        elif found := re.search(r"allocated (\d+) reserved (\d+)", row["Name"]):
            assert (last["used"], last["total"]) == found.groups()
            checked += 1
    return checked


def test_totals_agree_with_the_statistics_of_the_framework(tmp_path):
    rows, _ = record(tmp_path, ["-c", STATISTICS])
    assert assert_statistics_agree(rows) == 6


@pytest.mark.parametrize("example", ["mlp.py", "cnn.py", "gpt.py"])
def test_totals_agree_with_the_statistics_of_the_framework_at_every_step(tmp_path, example):
    rows, _ = record(tmp_path, ["-c", STEPS_WITH_STATISTICS, str(EXAMPLES / example), "--steps", "4"])
    assert assert_statistics_agree(rows) == 4


def totals(entries):
    """For every block of the pool: what the pool held, as it said itself just before."""
    reserved, found = {}, []
    for entry in entries:
        if entry.kind == "heap_register":
            reserved[entry.thread] = entry.size
        elif entry.kind in POOL:
            found.append((POOL[entry.kind], entry.address, reserved[entry.thread]))
    return found


def test_every_event_of_the_pool_tells_what_the_pool_holds(tmp_path):
    rows, entries = record(tmp_path, [str(EXAMPLES / "gpt.py"), "--steps", "2"])
    told = [
        (row["Event"], int(row["Ptr"], 16), int(attributes(row)["total"]))
        for row in rows
        if row["Event Type"] == "PTA" and "shadow" not in attributes(row)
    ]
    assert sorted(told) == sorted(totals(entries))


WORKSPACES = """
import torch, torch_npu
torch.npu.set_device(0)
x = torch.ones(64, 64, device="npu")
for _ in range(5):
    x = (x @ x) / 64
print(float(x.sum()))
"""


@pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 tells nobody about its workspaces")
def test_workspaces_are_a_pool_of_their_own(tmp_path):
    rows, entries = record(tmp_path, ["-c", WORKSPACES], TASK_QUEUE_ENABLE="2", STANDIN_WORKSPACE_BYTES="1M")
    assert "ptaWorkspace" in {entry.text for entry in entries if entry.kind == "domain_create"}
    pools, workspaces = recorded(rows, "PTA"), recorded(rows, "PTA_WORKSPACE")
    assert len([size for history in workspaces.values() for event, size in history if event == "MALLOC"]) >= 5
    seen = defaultdict(list)
    for address, history in [*pools.items(), *workspaces.items()]:
        seen[address].extend(history)
    assert dict(seen) == expected(entries, POOL)


@pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 tells nobody about its workspaces")
def test_workspaces_may_be_as_large_as_operands_say(tmp_path):
    rows, _ = record(tmp_path, ["-c", WORKSPACES], TASK_QUEUE_ENABLE="2", STANDIN_WORKSPACE_BYTES="x256")
    histories = recorded(rows, "PTA_WORKSPACE").values()
    sizes = [size for history in histories for event, size in history if event == "MALLOC"]
    assert 4 * 2**20 <= max(sizes) < 8 * 2**20, "256 times 64 x 64 numbers of 4 bytes"


SEVERAL_DEVICES = """
import torch, torch_npu
first = torch.ones(1 << 20, device="npu:0")
second = first.to("npu:1") + torch.ones(1 << 20, device="npu:1")
assert float(second.sum()) == 2 << 20
host = torch.ones(1 << 20).pin_memory()
"""


def test_every_device_has_its_own_events(tmp_path):
    _, entries = run_recorded(tmp_path, ["-c", SEVERAL_DEVICES], "--device", "npu,cpu")
    for device in (0, 1):
        on_device = [entry for entry in entries if entry.device == device]
        assert recorded(rows_of(tmp_path, device), "HAL") == expected(on_device, DRIVER) != {}
        assert recorded(rows_of(tmp_path, device), "PTA")
    pinned = recorded(rows_of(tmp_path, "cpu"), "HOST_PINNED")
    assert [history[0] for history in pinned.values()] == [("MALLOC", 4 << 20)]


def test_without_caching_every_tensor_is_seen_by_the_driver(tmp_path):
    code = "import torch, torch_npu; x = torch.ones(1000, device='npu'); y = x + x; torch.npu.synchronize(); del x, y"
    rows, entries = record(tmp_path, ["-c", code], PYTORCH_NO_NPU_MEMORY_CACHING="1")
    assert recorded(rows, "HAL") == expected([entry for entry in entries if entry.device == 0], DRIVER) != {}
    assert recorded(rows, "PTA") == {}


def test_out_of_memory_names_the_line_that_asked(tmp_path):
    arguments = [str(EXAMPLES / "out_of_memory.py")]
    result, entries = run_recorded(tmp_path, arguments, STANDIN_MEMORY_BYTES="1G")
    assert f"{OUT_OF_MEMORY}: NPU out of memory" in result.stdout
    assert any(entry.kind == "alloc" and entry.result == 6 for entry in entries)
    line = next(
        number
        for number, text in enumerate((EXAMPLES / "out_of_memory.py").read_text().splitlines(), 1)
        if "blocks.append" in text
    )
    assert f"out_of_memory.py:{line}" in result.stderr
    rows = rows_of(tmp_path, 0)
    assert recorded(rows, "HAL") == expected([entry for entry in entries if entry.device == 0], DRIVER)


def test_the_leak_of_the_demo_is_found_at_its_line(tmp_path):
    result, _ = run_recorded(tmp_path, [str(EXAMPLES / "gpt.py"), "--leak", "--steps", "6"])
    source = (EXAMPLES / "transformer.py").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "return self.to_letters(" in text)
    assert "\nLeak: " in result.stderr
    assert f"transformer.py:{line} Transformer.forward" in result.stderr
    clean, _ = run_recorded(tmp_path / "clean", [str(EXAMPLES / "gpt.py"), "--steps", "6"])
    assert "No leaks found in 6 steps." in clean.stderr
