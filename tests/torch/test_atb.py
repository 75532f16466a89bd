"""torch_npu's own functions that run on ATB: the processor's results, rows of every operation, and watched memory."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401 - torch_npu needs it
import torch_npu
from test_watch import PROGRAM, PYTHON_PATH, Watched

LAYER = Path(__file__).with_name("atb_layer.py")
OPERATIONS = [
    "RopeOperation",
    "ReshapeAndCacheOperation",
    "PagedAttentionOperation",
    "LinearOperation",
    "PagedAttentionOperation",
    "SelfAttentionOperation",
    "SelfAttentionOperation",
    "ReshapeAndCacheOperation",
    "GroupTopkOperation",
]
#: Half precision of numbers around one.
CLOSE = 2e-3

pytestmark = pytest.mark.skipif(
    not hasattr(torch_npu, "_npu_matmul_add_fp32"), reason="this torch_npu has no functions that run on ATB"
)


def run(*command):
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    result = subprocess.run([*command, sys.executable, LAYER], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_results_are_those_of_the_processor_and_every_operation_has_its_rows(tmp_path):
    plain = run()
    differences = [float(line.rsplit(" ", 1)[1]) for line in plain.splitlines()]
    assert len(differences) == len(OPERATIONS) and max(differences) < CLOSE, plain
    recorded = run(PROGRAM, "-o", tmp_path, "--events=alloc,free,launch,access", "--")
    assert recorded == plain
    (dump,) = tmp_path.rglob("memscope_dump_*.csv")
    rows = list(csv.DictReader(dump.open()))
    for kind in ("ATB_START", "ATB_END"):
        assert [row["Name"] for row in rows if row["Event Type"] == kind] == OPERATIONS
    accesses = [row for row in rows if row["Event"] == "ACCESS" and "type:ATB" in row["Attr"]]
    assert {row["Name"] for row in accesses} > set(OPERATIONS)  # Their kernels say what they touch, too.
    # All caches are written, and lie in blocks of PyTorch's pool.
    written = [row for row in accesses if row["Name"] == OPERATIONS[1] and row["Event Type"] == "WRITE"]
    assert len(written) == 3 and all("allocation_id:" in row["Attr"] for row in written)


def test_who_changes_what_an_operation_has_written_is_named(tmp_path):
    options = ["--watch=0/1_ReshapeAndCacheOperation,0/3_LinearOperation,full-content"]
    watched = Watched(tmp_path, options, [str(LAYER), "damage"])
    (corruption, *others) = watched.corruptions
    assert not others and "ReshapeAndCacheOperation" in watched.text, watched.text
    assert watched.files("*.bin"), watched.said
    clean = Watched(tmp_path / "clean", options, [str(LAYER)])
    assert clean.corruptions == [] and clean.report["blocks"], clean.text


def test_a_hunt_knows_what_operations_declare(tmp_path):
    damaged = Watched(tmp_path, ["--watch=auto"], [str(LAYER), "damage"])
    assert damaged.corruptions, damaged.text
    clean = Watched(tmp_path / "clean", ["--watch=auto"], [str(LAYER)])
    assert clean.corruptions == [], clean.text
