"""A recording as a snapshot of PyTorch: PyTorch's own tools read it, and it says what PyTorch itself says."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "target/release/msmemscope"

JOB = """
import json, os, pickle, sys
import torch, torch_npu

def fill(number):
    for size in range(number):
        kept.append(torch.empty(1000 * (size + 1), device="npu"))

torch.npu.memory._record_memory_history()
kept = []
fill(40)
large = torch.empty(30 << 20, dtype=torch.uint8, device="npu")
del kept[::3]
torch.npu.synchronize()
pickle.dump(torch.npu.memory._snapshot(), open(sys.argv[2], "wb"))
segments = torch.npu.memory_snapshot()
json.dump(
    [
        [segment["address"], segment["total_size"], segment["allocated_size"],
         sorted(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")]
        for segment in segments
    ],
    open(sys.argv[1], "w"),
)
os._exit(0)
"""


def test_pytorch_reads_a_snapshot_with_its_own_numbers(tmp_path):
    job, truth, output = tmp_path / "job.py", tmp_path / "truth.json", tmp_path / "output"
    job.write_text(JOB)
    own = tmp_path / "own.pickle"
    command = [PROGRAM, f"--output={output}", "--", sys.executable, job, truth, own]
    subprocess.run(command, check=True, capture_output=True, env=os.environ)
    file = tmp_path / "snapshot.pickle"
    subprocess.run([PROGRAM, "export", output, "--to=torch-snapshot", "-o", file], check=True, capture_output=True)
    snapshot = pickle.loads(file.read_bytes())
    told = [
        [
            segment["address"],
            segment["total_size"],
            segment["allocated_size"],
            sorted(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated"),
        ]
        for segment in snapshot["segments"]
    ]
    assert sorted(told) == sorted(json.loads(truth.read_text()))
    # Both snapshots, ours and PyTorch's own, are recordings as well.
    for snapshot_file in (file, own):
        command = [PROGRAM, "analyze", snapshot_file, "--json"]
        (answers,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["processes"]
        (pool,) = [pool for pool in answers["summary"]["pools"] if pool["pool"] == "PTA"]
        assert pool["end_used_bytes"] == sum(segment[2] for segment in told)
        assert pool["allocations"] - pool["frees"] == sum(len(segment[3]) for segment in told)
        assert pool["peak_total_bytes"] == sum(segment[1] for segment in told)
        # PyTorch's own has no frames here.
        assert snapshot_file == own or f"{job}:7 fill" in json.dumps(answers["moments"])
    lines = {
        (frame["filename"], frame["line"])
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        for frame in block["frames"]
        if frame["name"] == "fill"
    }
    assert lines == {(str(job), 7)}
    # The tools need no card.
    reader = "; ".join(
        [
            "import pickle, sys, torch.cuda._memory_viz as viz",
            "snapshot = pickle.load(open(sys.argv[1], 'rb'))",
            "print(viz.segsum(snapshot), viz.trace(snapshot))",
            "print(viz.segments(snapshot, str), viz.memory(snapshot, str))",
        ]
    )
    plain = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    result = subprocess.run([sys.executable, "-c", reader, file], env=plain, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"segments: {len(told)}" in result.stdout
    assert "job.py:7:fill" in result.stdout
