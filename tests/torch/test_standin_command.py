"""`msmemscope standin`: one command runs anything on the stand-in device, in an environment that knows none of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import IS_OLD, OUT_OF_MEMORY
from test_recording import PROGRAM

ROOT = Path(__file__).resolve().parents[2]
OURS = ("ASCEND_", "STANDIN_", "LD_LIBRARY_PATH", "PYTHONPATH")


def run_on_standin(*options, code, tool=(), **variables):
    """Runs Python code as a user would who only knows the command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    command = [PROGRAM, "standin", *options, "--", *tool, sys.executable, "-c", code]
    return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True)


def test_the_device_is_as_the_options_say():
    code = """import torch, torch_npu
print(torch.npu.device_count(), torch.npu.mem_get_info()[1], torch.npu.get_device_name())"""
    default = run_on_standin(code=code)
    assert default.stdout.split() == ["8", str(64 << 30), "Ascend910B1"], default.stderr
    chosen = run_on_standin("--devices", "3", "--memory=5GiB", "--soc", "Ascend910B2", code=code)
    assert chosen.stdout.split() == ["3", str(5 << 30), "Ascend910B2"], chosen.stderr


def test_memory_ends_where_the_option_says():
    code = "import torch, torch_npu; torch.empty(2 << 30, dtype=torch.uint8, device='npu')"
    result = run_on_standin("--memory", "1GiB", code=code)
    assert result.returncode == 1
    assert f"{OUT_OF_MEMORY}: NPU out of memory" in result.stderr


@pytest.mark.skipif(IS_OLD, reason="torch_npu before 2.6 tells nobody about its workspaces")
def test_operators_ask_for_the_workspace_of_the_option(tmp_path):
    code = "import torch, torch_npu; x = torch.ones(64, 64, device='npu'); print(float((x @ x).sum()))"
    tool = (PROGRAM, "-o", tmp_path, "--")
    without = run_on_standin(code=code, tool=tool, TASK_QUEUE_ENABLE="2")
    assert without.returncode == 0 and "PyTorch workspace" not in without.stderr
    result = run_on_standin("--workspace", "1MiB", code=code, tool=tool, TASK_QUEUE_ENABLE="2")
    assert result.returncode == 0 and "PyTorch workspace" in result.stderr


UNKNOWN_OPERATOR = """
import torch, torch_npu
torch.linalg.svdvals(torch.ones(3, 3, device="npu"))
torch.npu.synchronize()
print("done")
"""


@pytest.mark.parametrize("how, says, goes_on", [("warn", True, True), ("quiet", False, True), ("error", True, False)])
def test_unknown_operators_are_treated_as_the_option_says(how, says, goes_on):
    result = run_on_standin("--unknown-operators", how, code=UNKNOWN_OPERATOR)
    assert ("is not computed" in result.stderr) == says
    assert ("it is refused" in result.stderr) == (how == "error")
    assert (result.stdout == "done\n") == goes_on == (result.returncode == 0)


def test_status_and_arguments_are_those_of_the_command():
    result = run_on_standin(code="import os, sys; print(os.path.isdir(os.environ['STANDIN_RUN_DIR'])); sys.exit(7)")
    assert (result.returncode, result.stdout, result.stderr) == (7, "True\n", "")
    shared = run_on_standin(code="import os; print(os.environ['STANDIN_RUN_DIR'])").stdout.strip()
    assert shared and not os.path.exists(shared)


@pytest.mark.parametrize(
    "options",
    [
        ("--devices", "0"),
        ("--devices", "33"),
        ("--devices", "two"),
        ("--memory", "much"),
        ("--memory", "0"),
        ("--memory", "1MiB"),
        ("--workspace", "-1"),
        ("--soc", ""),
        ("--unknown-operators", "shout"),
        ("--cards", "2"),
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_one_line(options):
    result = run_on_standin(*options, code="print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1 and options[0] in result.stderr


def test_too_little_disk_ends_the_installation_at_once(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    df = tools / "df"
    df.write_text("#!/bin/sh\necho Avail\necho 7000000\n")
    df.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [ROOT / "scripts/torch-venv", tmp_path / "venv"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1 and "8 GB of free disk are needed" in result.stderr
    assert list((tmp_path / "venv").iterdir()) == []


def test_variables_that_cannot_be_read_are_told():
    code = "import torch, torch_npu; print(torch.npu.device_count())"
    result = run_on_standin(code=code, STANDIN_DEVICES="abc", STANDIN_MEMORY_BYTES="lots")
    assert result.stdout.split() == ["8"]
    assert result.stderr.count("STANDIN_DEVICES=abc is not a whole number, the default is used") == 1
    assert "STANDIN_MEMORY_BYTES=lots is not a size such as 64G, the default is used" in result.stderr
