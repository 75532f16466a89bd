"""Operators have their rows on the device on which they work, whichever is the thread's."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

PROGRAM = """
    import msmemscope
    import torch, torch_npu

    msmemscope.config(events="{events}", output="out")
    msmemscope.start()
    first = torch.zeros(10, device="npu")
    other = torch.zeros(10, device="npu:1")      # npu:0 is the current one
    other.add_(1)
    third = other * 3
    back = first.exp()
    torch.npu.set_device(1)
    own = torch.ones(10, device="npu").cos()
    distant = first.sin()
    torch.npu.synchronize()
    msmemscope.stop()
"""


@pytest.mark.parametrize("events", ["alloc,free,launch", "alloc,free,launch,access"])
def test_operators_lie_on_their_device(tmp_path, events):
    run = run_program(tmp_path / "run", PROGRAM.format(events=events), environment={"STANDIN_DEVICES": "2"})
    devices = {}
    for row in run.rows("OP_LAUNCH"):
        name = row["Name"].removeprefix("torch._ops.aten.").partition(".")[0]
        devices.setdefault((name, row["Event Type"]), []).append(row["Device Id"])
    for kind in ("ATEN_START", "ATEN_END"):
        found = {name: of for (name, each), of in devices.items() if each == kind}
        assert "N/A" not in [device for of in found.values() for device in of], found
        zeros = found.get("zeros") or found["zero_"]
        assert zeros == ["0", "1"], found
        assert (found["add_"], found["mul"], found["exp"]) == (["1"], ["1"], ["0"])
        assert (found["cos"], found["sin"]) == (["1"], ["0"])


def test_only_the_chosen_device_is_shown_with_its_operators(tmp_path):
    code = """
        import msmemscope
        import torch, torch_npu
        msmemscope.config(device="npu:1", output="out")
        msmemscope.start()
        torch.zeros(10, device="npu:1")
        msmemscope.stop()
    """
    run = run_program(tmp_path / "run", code, environment={"STANDIN_DEVICES": "2"})
    assert {row["Device Id"] for row in run.rows("OP_LAUNCH")} == {"1"}
    assert len(run.rows("MALLOC", "PTA")) == 1
