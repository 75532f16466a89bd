"""Two recordings of real programs side by side: what differs is told, and nothing else."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("MSMEMSCOPE", Path(__file__).resolve().parents[2] / "target/release/msmemscope"))

#: One line per change that a run may have.
CODE = """
import sys
import torch, torch_npu
change = sys.argv[1]
x = torch.ones(256, 256, device="npu")
y = x.add(1)
if change != "removed":
    y = y.sigmoid()
if change == "reordered":
    y = y.relu().tanh()
else:
    y = y.tanh().relu()
if change == "extra":
    buffer = torch.zeros(1 << 20, dtype=torch.uint8, device="npu")
z = y.mul(2)
"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A recording per change, in native, csv and db form."""
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(CODE)

    def record(change):
        output = tmp_path_factory.mktemp(change) / "output"
        command = [PROGRAM, "-o", output, "--events=alloc,free,launch", "--level=op", "--data-format=csv,db"]
        command += ["--", sys.executable, program, change]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return output

    made = {}

    def get(change):
        if change not in made:
            made[change] = record(change.rstrip("2"))
        return made[change]

    return get


def compare(directory, base, other, *options):
    result = subprocess.run(
        [PROGRAM, "compare", "--json", "-o", directory, *options, base, other], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    with open(answer["file"], newline="") as file:
        _, header, *rows = csv.reader(file)
    assert header[0] == "Event"
    different = [(row[1].removeprefix("torch._ops.aten."), *row[3:]) for row in rows if row[5] != "0" or "N/A" in row]
    return answer["comparison"], different


def test_identical_runs_have_no_differences(recordings, tmp_path):
    comparison, different = compare(tmp_path, recordings("plain"), recordings("plain2"))
    assert different == []
    assert comparison["names"] == comparison["owners"] == comparison["peak_sites"] == comparison["sites"] == []
    (device,) = comparison["devices"]
    assert device["items"]["base"] == device["items"]["other"] > 5
    assert device["peak_bytes"]["base"] == device["peak_bytes"]["other"] > 0


#: Bytes that the pool adds to what a tensor needs.
PADDING = 512
RESULT, BUFFER = str(256 * 256 * 4 + PADDING), str((1 << 20) + PADDING)
EXPECTED = {
    "extra": [("zeros.default", "N/A", BUFFER, BUFFER)],
    "removed": [("sigmoid.default", RESULT, "N/A", "-" + RESULT)],
    "reordered": [("tanh.default", RESULT, "N/A", "-" + RESULT), ("tanh.default", "N/A", RESULT, RESULT)],
}


@pytest.mark.parametrize("change", EXPECTED)
@pytest.mark.parametrize("form", ["native", "csv", "db"])
def test_one_change_gives_exactly_that_change(recordings, tmp_path, change, form):
    def side(name):
        output = recordings(name)
        if form == "native":
            return output
        (path,) = output.glob(f"*/device_0/dump/memscope_dump_*.{form}")
        return path

    comparison, different = compare(tmp_path, side("plain"), side(change))
    if change == "reordered":
        # Either of the two may be the one that has moved.
        different = sorted(("tanh.default" if row[0] == "relu.default" else row[0], *row[1:]) for row in different)
    assert sorted(different) == sorted(EXPECTED[change])
    (device,) = comparison["devices"]
    for which in ("base", "other"):
        assert device["inside_bytes"][which] + device["outside_bytes"][which] == device["end_bytes"][which]
    if change == "extra" and form == "native":
        site = comparison["peak_sites"][0]
        line = next(number for number, text in enumerate(CODE.splitlines(), 1) if "buffer = " in text)
        assert f"program.py:{line}" in site["name"]
        assert site["bytes"] == {"base": 0, "other": int(BUFFER)}
