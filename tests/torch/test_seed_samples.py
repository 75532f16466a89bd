"""Every documented code sample runs on the device as ``npu:0``, and leaves the documented files and fields.

Samples that watch memory blocks have tests of their own. What the samples leave open is filled in: a small
``train()``, paths, and the imports they forget.
"""

import csv
import json
import sqlite3
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

EVENT_COLUMNS = [
    "ID",
    "Event",
    "Event Type",
    "Name",
    "Timestamp(ns)",
    "Process Id",
    "Thread Id",
    "Device Id",
    "Ptr",
    "Attr",
    "Call Stack(Python)",
    "Call Stack(C)",
]
TRACE_COLUMNS = ["FuncInfo", "StartTime(ns)", "EndTime(ns)", "Thread Id", "Process Id"]

USER_CODE = """
import torch
import torch_npu
model = torch.nn.Linear(8, 8).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
input_data = torch.randn(4, 8).npu()
def train():
    optimizer.zero_grad()
    model(input_data).sum().backward()
    optimizer.step()
    torch.npu.synchronize()
train1 = train2 = train3 = train
"""


@pytest.fixture
def sample(tmp_path):
    """Runs a sample after the user's code; ``first`` comes before it, as imports do."""

    def execute(code, *, first="import msmemscope", **settings):
        return run_program(tmp_path / "run", f"{first}\n{USER_CODE}\n{code}", **settings)

    return execute


def columns(path):
    with path.open(newline="") as file:
        return next(csv.reader(file))


def owners(run):
    return {row.attributes.get("owner", "") for row in run.rows("MALLOC", "PTA")}


def test_collection_with_all_settings(sample):
    run = sample(
        """
msmemscope.config(call_stack="c:10,python:5", events="launch,alloc,free", level="0", device="npu",
                  analysis="leaks,decompose", watch="op0,op1,full-content", data_format="db", output="out")
msmemscope.start()   # Start collection.
train()              # train() is the user code.
msmemscope.stop()    # Stop collection.
"""
    )
    assert run.files("*.csv") == []
    (path,) = run.files("memscope_dump_*.db")
    with sqlite3.connect(path) as database:
        assert [row[1] for row in database.execute("PRAGMA table_info(memscope_dump)")] == EVENT_COLUMNS
        kinds = dict(
            database.execute('SELECT "Event" || \' \' || "Event Type", count(*) FROM memscope_dump GROUP BY 1')
        )
        (python, native), *_ = database.execute(
            'SELECT "Call Stack(Python)", "Call Stack(C)" FROM memscope_dump'
            " WHERE \"Event\" = 'MALLOC' AND \"Event Type\" = 'PTA' AND \"Attr\" NOT LIKE '%shadow%'"
        )
    assert {"MALLOC PTA", "FREE PTA", "OP_LAUNCH ATEN_START", "OP_LAUNCH ATEN_END"} <= set(kinds)
    assert {"SYSTEM START_TRACE", "SYSTEM STOP_TRACE"} <= set(kinds)
    assert "script.py(" in python and len(python.splitlines()) <= 5
    assert "libtorch_npu.so" in native and len(native.splitlines()) >= 10


def test_python_trace(sample):
    run = sample(
        """
msmemscope.tracer.start()  # Enable Tracer.
train()                   # train() is the user code.
msmemscope.tracer.stop()   # Disable Tracer.
""",
    )
    (path,) = [path for path in run.directory.rglob("python_trace_*.csv")]
    assert columns(path) == TRACE_COLUMNS
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert any(row["FuncInfo"].endswith(": train") and "script.py(" in row["FuncInfo"] for row in rows)
    assert path.name.startswith(f"python_trace_{rows[0]['Thread Id']}_")


def test_python_trace_through_events(sample):
    run = sample(
        """
msmemscope.config(events="traceback", output="out")
msmemscope.start()
train()
msmemscope.stop()
"""
    )
    assert any(call.endswith(": train") for call in run.calls())


def test_record_function(sample):
    run = sample(
        """
msmemscope.config(output="out")
msmemscope.start()
with msmemscope.RecordFunction("forward_pass"):
    output = model(input_data)

@msmemscope.RecordFunction("forward_pass")
def forward_pass(data):
    return model(data)

forward_pass(input_data)
msmemscope.stop()
"""
    )
    assert run.calls() == ["forward_pass", "forward_pass"]


def test_snapshots(sample):
    run = sample(
        """
msmemscope.config(output="out")
msmemscope.take_snapshot(device_mask=0)   # Collect a memory snapshot.
msmemscope.take_snapshot(device_mask=[0, 1])
msmemscope.take_snapshot(device_mask=(0, 1))
msmemscope.take_snapshot(name="test_tuple")
""",
        environment={"STANDIN_DEVICES": "2"},
    )
    rows = run.rows("SNAPSHOT")
    assert [(row["Name"], row["Device Id"]) for row in rows] == [
        ("Memory Snapshot", "0"),
        *[("Memory Snapshot", "0"), ("Memory Snapshot", "1")] * 2,
        ("test_tuple", "0"),
        ("test_tuple", "1"),
    ]
    attributes = rows[0].attributes
    assert int(attributes["allocated"]) > 0
    assert int(attributes["total"]) >= int(attributes["free"]) > 0


def test_steps(sample):
    run = sample(
        """
msmemscope.config()
msmemscope.start()  # Start collection.
for i in range(10):
    train()      # train() is the user code.
    msmemscope.step() # Enter step information.
msmemscope.stop()  # Stop collection.
"""
    )
    (path,) = (run.directory / "memscopeDumpResults").rglob("memscope_dump_*.csv")
    assert columns(path) == EVENT_COLUMNS
    with path.open(newline="") as file:
        steps = [row["Name"] for row in csv.DictReader(file) if (row["Event"], row["Event Type"]) == ("SYSTEM", "STEP")]
    assert steps == [str(number) for number in range(1, 11)]


def test_steps_by_mstx_ranges(sample):
    run = sample(
        """
for epoch in range(15):
    id = mstx.range_start("step start", None) # Mark the start of a step and enable memory analysis.
    train()
    mstx.range_end(id) # Mark the end of a step.
""",
        first="import mstx",
        mode="cli",
    )
    assert len(run.rows("MSTX", "Range_start")) == 15
    assert len(run.rows("MSTX", "Range_end")) == 15
    assert {row["Name"] for row in run.rows("MSTX", "Range_start")} == {"step start"}
    assert "Gap Analysis" in run.stderr
    assert "Leak: " not in run.stderr


@pytest.mark.parametrize(
    ("code", "label"),
    [
        ("@describe.describer(owner='test1')\ndef train1():\n    return model(input_data)\nkept = train1()", "test1"),
        ("with describe.describer(owner='test2'):\n    train2()", "test2"),
        (
            "describe.describer(owner='test3').__enter__()\ntrain3()\ndescribe.describer(owner='test3').__exit__()",
            "test3",
        ),
        ("t = torch.randn(10,10).to('npu:0')\ndescribe.describer(t, owner='test4')", "test4"),
    ],
    ids=["decorator", "with", "enter-exit", "tensor"],
)
def test_labels(sample, code, label):
    run = sample(
        "msmemscope.config(analysis='decompose', output='out')\nmsmemscope.start()\nbefore = torch.ones(3).npu()\n"
        f"{code}\nafter = torch.ones(3).npu()\nmsmemscope.stop()",
        first="import msmemscope\nimport msmemscope.describe as describe",
    )
    rows = [row for row in run.rows("MALLOC", "PTA") if "shadow" not in row["Attr"]]
    labelled = [row.attributes["owner"].endswith(f"@{label}") for row in rows]
    assert any(labelled)
    assert not labelled[0] and not labelled[-1], "only what was meant"


LEAK_BETWEEN_MARKS = """
import ctypes
runtime, address = ctypes.CDLL("libascendcl.so"), ctypes.c_void_p()
leaked = []
for number in range(3):
    mstx.mark("test", None)
    leaked.append(torch.empty(30 << 20, dtype=torch.uint8, device="npu"))
    runtime.aclrtMallocAlign32(ctypes.byref(address), ctypes.c_size_t(4 << 20), 0)
"""


def offline(run, code):
    """Runs a sample of the offline analyses in a process of its own; gives the rows found and what was printed."""
    (path,) = run.files("memscope_dump_*.csv")
    code = f"import json\ninput_path = {str(path)!r}\n{code}\nprint('ROWS', json.dumps(findings.rows))\n"
    printed = run_program(run.directory / "offline", code).stdout
    return json.loads(printed.rpartition("ROWS ")[2]), printed


def test_leaks_between_marks(sample):
    run = sample(LEAK_BETWEEN_MARKS, first="import mstx", mode="cli")
    rows, printed = offline(
        run,
        """
import msmemscope
findings = msmemscope.check_leaks(input_path=input_path,mstx_info="test",start_index=0)

from msmemscope.analyzer import LeaksAnalyzer, LeaksConfig
leaks_config = LeaksConfig(
    input_path=input_path,
    mstx_info="test",
    start_index=0
)
leaks_analyzer=LeaksAnalyzer()
assert leaks_analyzer.analyze(leaks_config) == findings
assert msmemscope.analyze("leaks", input_path=input_path, mstx_info="test",start_index=0) == findings
""",
    )
    assert "====== ERROR: Detected memory leaks on device 0 ======" in printed
    assert "Direct Hal memory leak of 4 Mb(s) at 0x" in printed
    assert {row["pool"]: row["size_bytes"] for row in rows} == {"HAL": 4 << 20, "PTA": (30 << 20) + 512}


def test_inefficient_memory(sample):
    run = sample(
        """
early = torch.empty(1 << 20, device="npu")
temporary = torch.ones(1 << 20, device="npu")
del temporary
for _ in range(3):
    input_data.add_(1)
early.add_(1)
torch.npu.synchronize()
""",
        first="",
        mode="cli",
        options=["--analysis=inefficient"],
    )
    found = [
        row.attributes["inefficient_type"] for row in run.rows("MALLOC", "PTA") if "inefficient_type" in row["Attr"]
    ]
    assert any("early_allocation" in kinds for kinds in found)
    rows, printed = offline(
        run,
        """
import msmemscope
findings = msmemscope.check_inefficient(input_path=input_path,mem_size=0,
              inefficient_type=["early_allocation","late_deallocation","temporary_idleness"],idle_threshold=3000
              )
from msmemscope.analyzer import InefficientConfig, InefficientAnalyzer
ineff_config = InefficientConfig(
    input_path=input_path,
    mem_size=0,
    inefficient_type=["early_allocation","late_deallocation","temporary_idleness"],
    idle_threshold=3000
)
ineff_analyzer=InefficientAnalyzer()
assert ineff_analyzer.analyze(ineff_config) == findings
assert msmemscope.analyze("inefficient", input_path=input_path, mem_size=1 << 40).rows == []
""",
    )
    assert "Inefficient memory" in printed
    assert any(row["kind"] == "early_allocation" and row["largest_bytes"] >= 4 << 20 for row in rows)


def test_scopes_in_a_program_started_by_the_command_line(sample):
    run = sample(
        """
ignored = torch.ones(100_000, device="npu")
msmemscope.start()
train()
msmemscope.stop()
ignored_too = torch.ones(200_000, device="npu")
""",
        mode="cli",
        options=["--collect-mode=deferred"],
    )
    sizes = {row.attributes["size"]: row["Attr"] for row in run.rows("MALLOC", "PTA")}
    assert "shadow:true" in sizes["400384"], "it was alive when the scope began"
    assert "800256" not in sizes
    assert run.rows("OP_LAUNCH", "ATEN_START")


def test_python_half_with_the_documented_preload(sample):
    run = sample(
        """
msmemscope.config(events="launch,alloc,free", level="op", output="out")
msmemscope.start()
train()
msmemscope.stop()
""",
        mode="preload",
    )
    assert run.rows("OP_LAUNCH", "ATEN_START")
    assert run.rows("FREE", "PTA")


def test_the_older_name(tmp_path):
    run = run_program(
        tmp_path / "run",
        f"import msleaks\n{USER_CODE}\nmsleaks.config()\nmsleaks.start()\ntrain()\nmsleaks.stop()\n",
    )
    (path,) = (run.directory / "leaksDumpResults").rglob("leaks_dump_*.csv")
    assert columns(path) == EVENT_COLUMNS
