"""The sanitizer of torch_npu itself, on the stand-in device, with kernels of others told by marks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

PROGRAM = """
    import msmemscope
    msmemscope.config(output="out")
    msmemscope.start()
    import torch, torch_npu
    msmemscope.enable_npu_sanitizer()
    x = torch.ones(1024, device="npu")
    y = torch.zeros(1024, device="npu")
    torch.npu.synchronize()

    def kernel(name):
        mark = f"sanitizer-op: name={name};read=x:{x.data_ptr():#x}:4096;write=y:{y.data_ptr()}:4096"
        torch.npu.mstx.mark(mark)

    kernel("alone")
    other = torch.npu.Stream()
    with torch.npu.stream(other):
        kernel("unsynchronised")
    torch.npu.synchronize()
    with torch.npu.stream(other):
        kernel("synchronised")
    torch.npu.synchronize()
    try:
        with torch.npu.stream(other):
            y.add_(1)
        y.mul_(2)
    except torch.cuda._sanitizer.CUDASanitizerErrors as error:
        print("and in operators", len(error.errors))
    torch.npu.mstx.mark("sanitizer-op: read=x:1:1")
    msmemscope.stop()
"""


def test_marks_tell_the_sanitizer_of_kernels_and_are_shown(tmp_path):
    run = run_program(tmp_path / "run", PROGRAM, mode="api")
    assert "and in operators 1" in run.stdout, run.stdout + run.stderr
    assert run.stderr.count("during kernel:\nunsynchronised\n") == 1, run.stderr
    assert "failed" not in run.stdout, run.stdout
    assert "a mark for the sanitizer names no kernel" in run.stderr
    marks = [row["Name"] for row in run.rows("MSTX") if row["Event Type"] == "Mark"]
    names = [mark.split("name=")[1].split(";")[0] for mark in marks if "name=" in mark]
    assert names == ["alone", "unsynchronised", "synchronised"]
