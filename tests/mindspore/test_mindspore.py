"""The real MindSpore on the stand-in device under the tool (`make test-mindspore`)."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = Path(os.environ.get("MSMEMSCOPE", ROOT / "target/release/msmemscope"))
JOBS = HERE / "jobs.py"

sys.path.insert(0, str(ROOT / "tests" / "torch"))
from truth import read  # noqa: E402

#: MindSpore says much on its way; only errors are of interest here.
SETTINGS = {"GLOG_v": "3", "OMP_NUM_THREADS": "1", "STANDIN_UNKNOWN_OPERATORS": "error"}
TIME_LIMIT_SECONDS = 300


class Run:
    """A job that ran, and what it left."""

    def __init__(self, directory, completed):
        self.directory, self.status = directory, completed.returncode
        self.printed, self.said = completed.stdout, completed.stderr

    def lines(self, word):
        """What the job has printed behind a word."""
        return re.findall(rf"^{word} (.*)$", self.printed, re.MULTILINE)

    def rows(self, device=0, **columns):
        rows = []
        for path in self.directory.glob(f"output/*/device_{device}/dump/memscope_dump_*.csv"):
            with open(path, newline="") as file:
                rows.extend(csv.DictReader(file))
        rows.sort(key=lambda row: (int(row["Timestamp(ns)"]), int(row["ID"])))
        return [row for row in rows if all(row[name.replace("_", " ")] == value for name, value in columns.items())]

    def analyze(self):
        result = subprocess.run(
            [PROGRAM, "analyze", self.directory / "output", "--json"], capture_output=True, text=True, check=True
        )
        (process,) = json.loads(result.stdout)["processes"]
        return process

    def truth(self):
        return read(self.directory / "log")


def attributes(row):
    return dict(re.findall(r"(\w+):([^,}]*)", row["Attr"]))


def run(directory, job, *options, is_recorded=True, succeeds=True, **variables):
    """Runs a job of jobs.py in a directory of its own: MindSpore leaves files where it is when memory runs out."""
    for name in ("cards", "log", "work"):
        (directory / name).mkdir(parents=True)
    environment = {
        **os.environ,
        **SETTINGS,
        "STANDIN_RUN_DIR": str(directory / "cards"),
        "STANDIN_LOG": str(directory / "log"),
        "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        **variables,
    }
    front = [PROGRAM, "-o", directory / "output", *options, "--"] if is_recorded else []
    completed = subprocess.run(
        [*front, sys.executable, str(JOBS), job],
        cwd=directory / "work",
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIME_LIMIT_SECONDS,
    )
    assert not succeeds or completed.returncode == 0, completed.stdout + completed.stderr
    return Run(directory, completed)


def line_of(marker):
    """Number of the line of jobs.py that plants a fault, in the function that stands before it."""
    lines = JOBS.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"def {marker}("))
    return next(number for number, line in enumerate(lines, 1) if number > start and "# FAULT" in line)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(tmp_path_factory.mktemp("train"), "train", "--level=op,kernel")


def test_training_gives_the_same_losses_with_and_without_recording(trained, tmp_path):
    alone = run(tmp_path, "train", is_recorded=False)
    losses = [float(line.split()[1]) for line in alone.lines("loss")]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2
    assert trained.lines("loss") == alone.lines("loss")


def test_rows_are_the_messages_that_mindspore_has_sent(trained):
    told = [entry for entry in trained.truth() if entry.kind in ("region_register", "region_unregister")]
    rows = trained.rows(Event_Type="MINDSPORE")
    assert all(row["Event"] in ("MALLOC", "FREE") for row in rows)
    begun = [(f"{entry.address:x}", entry.size) for entry in told if entry.kind == "region_register"]
    recorded = [
        (attributes(row)["addr"].removeprefix("0x").lstrip("0"), int(attributes(row)["size"]))
        for row in rows
        if row["Event"] == "MALLOC"
    ]
    assert len(begun) > 50
    assert sorted(recorded) == sorted(begun)
    ended = [f"{entry.address:x}" for entry in told if entry.kind == "region_unregister"]
    freed = [attributes(row)["addr"].removeprefix("0x").lstrip("0") for row in rows if row["Event"] == "FREE"]
    # Rows close what is alive at the end; MindSpore itself says nothing about it.
    assert len(freed) >= len(ended)
    assert not set(ended) - set(freed)


def test_what_is_in_use_is_what_mindspore_says(trained):
    (memory,) = trained.lines("memory")
    allocated, reserved = map(int, memory.split())
    process = trained.analyze()
    pools = {pool["pool"]: pool for pool in process["summary"]["pools"]}
    assert pools["MINDSPORE"]["end_used_bytes"] == allocated
    assert pools["MINDSPORE"]["peak_total_bytes"] == reserved


def test_kernels_of_mindspore_are_recorded_and_compared(trained, tmp_path):
    launched = {entry.text for entry in trained.truth() if entry.kind == "kernel_launch"}
    recorded = {row["Name"] for row in trained.rows(Event="KERNEL_LAUNCH")}
    assert launched and launched <= recorded
    other = run(tmp_path, "train", "--level=op,kernel")
    compared = subprocess.run(
        [PROGRAM, "compare", trained.directory / "output", other.directory / "output", "--level=kernel"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert compared.returncode == 0, compared.stderr
    # Which kernel a block is freed at is another one in every run: MindSpore's threads do not wait for each other.
    assert re.search(r"(\d+) and \1 kernel launches, \1 aligned, 0 only in base", compared.stdout), compared.stdout


def test_a_leak_is_found_by_its_steps_at_its_line(tmp_path):
    leaking = run(tmp_path / "leak", "blocking_leak")
    found = leaking.analyze()["leaks"]["leaks"]
    (group,) = [group for group in found if group["pool"] == "MINDSPORE"]
    assert group["site"]["line"].startswith(f"{JOBS}:{line_of('leak')}"), group["site"]["line"]
    assert "Leak: 1.0 MiB more with every step" in leaking.said


def test_leaks_are_found_without_lines_and_corrected_jobs_have_none(tmp_path):
    leaking = run(tmp_path / "leak", "leak")
    # Without waiting, a block may come into being in the step after the one that asked for it.
    assert re.search(r"Leak: 1\.\d MiB more with every step", leaking.said), leaking.said
    # Lines wrap where the terminal ends.
    said = " ".join(leaking.said.split())
    assert "from a line that was not recorded (mindspore.runtime.launch_blocking() names it)" in said, said
    assert "--call-stack" not in said
    clean = run(tmp_path / "clean", "clean")
    assert "No leaks found in 8 steps" in clean.said
    # Steps and reports do not wait for aclFinalize, which MindSpore never calls.
    assert not any(entry.kind == "acl_finalize" for entry in clean.truth())
    assert "aclFinalize" not in clean.said


def test_blocks_have_the_owner_that_the_job_names(tmp_path):
    named = run(tmp_path, "owners", "--analysis=decompose")
    owners = [attributes(row).get("owner") for row in named.rows(Event="MALLOC", Event_Type="MINDSPORE")]
    assert "MINDSPORE@weights" in owners, owners


@pytest.mark.parametrize("device", [0, 3])
def test_memory_belongs_to_the_device_that_has_it(tmp_path, device):
    chosen = run(tmp_path, "train", DEVICE=str(device))
    assert chosen.rows(device=device, Event_Type="MINDSPORE")
    assert not chosen.rows(device=3 - device)


@pytest.mark.parametrize(
    ("job", "verdict", "words"),
    [
        ("grow", "growth", "one line of code holds more and more memory"),
        ("demand", "demand", "the job needs more memory than there is"),
        ("limit", "own_limit", "a limit that the job has set itself"),
    ],
)
def test_running_out_of_memory_is_told_although_the_driver_never_refuses(tmp_path, job, verdict, words):
    failed = run(tmp_path, job, succeeds=False, STANDIN_MEMORY_BYTES="2G")
    alone = run(tmp_path / "alone", job, is_recorded=False, succeeds=False, STANDIN_MEMORY_BYTES="2G")
    assert failed.status == alone.status != 0
    assert failed.lines("memory") == alone.lines("memory")
    assert not any(entry.result == 6 for entry in failed.truth()), "the driver has not refused anything"
    report = failed.analyze()["out_of_memory"]
    (failure,) = report["details"]
    assert (failure["function"], failure["verdict"]) == ("MindSpore", verdict)
    said = " ".join(failed.said.split())
    assert f"Out of memory on device 0: {words}" in said, said
    assert "the pool of MindSpore refused memory" in said
    if job == "grow":
        assert f"blocks allocated at {JOBS}:{line_of('grow')}" in said, said
    (row,) = failed.rows(Event_Type="OOM_TRIGGER")
    assert attributes(row) == {"func": "MindSpore", "req_size": "0", "flag": str(int(verdict == "own_limit"))}


def test_ranges_of_its_own_mstx_are_not_sent(tmp_path):
    marked = run(tmp_path, "marks")
    assert not any("range" in entry.kind for entry in marked.truth())
    assert "No steps were seen" in marked.said


def test_snapshots_have_the_numbers_of_mindspore(tmp_path):
    taken = run(tmp_path, "snapshot")
    (memory,) = taken.lines("memory")
    allocated, reserved = memory.split()
    (row,) = taken.rows(Event="SNAPSHOT")
    numbers = attributes(row)
    assert (numbers["allocated"], numbers["reserved"]) == (allocated, reserved)
