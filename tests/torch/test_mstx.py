"""Marks and ranges of ``torch.npu.mstx`` are seen, although torch_npu keeps them to itself."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import torch
import torch_npu  # noqa: F401
from running import run_program

PROGRAM = """
    import sys
    {begin}
    import torch, torch_npu
    x = torch.ones(10, device="npu")
    mstx = torch.npu.mstx
    for step in range(3):
        number = mstx.range_start("step start")
        x = x * 2
        mstx.mark("in the middle")
        mstx.range_end(number)
    stream = torch.npu.Stream()
    one, other = mstx.range_start("one", stream), mstx.range_start("other", domain="mine")
    assert one and other and one != other
    mstx.range_end(one)
    mstx.range_end(other, domain="mine")
    mstx.mark("streamed", stream)
    mstx.range_push("outer"); mstx.range_push("inner"); mstx.range_pop(); mstx.range_pop(); mstx.range_pop()
    with mstx.annotate("annotated"):
        pass
    torch.npu.synchronize()
    {end}
    assert mstx.range_start("not recorded") == 0 or not {end!r}
"""
API = {
    "begin": "import msmemscope; msmemscope.config(output='out'); msmemscope.start()",
    "end": "msmemscope.stop()",
}


@pytest.mark.parametrize("mode", ["api", "cli"])
@pytest.mark.skipif(
    not hasattr(torch.npu.mstx, "range_push"),
    reason="mstx of torch_npu before 2.5 has no domains and no nested ranges; marks and ranges are tested below",
)
def test_ranges_of_torch_npu_make_steps(tmp_path, mode):
    code = PROGRAM.format(**API) if mode == "api" else PROGRAM.format(begin="", end="")
    run = run_program(tmp_path / "run", code, mode=mode)
    rows = [(row["Event Type"], row["Name"]) for row in run.rows("MSTX")]
    starts = [name for kind, name in rows if kind == "Range_start" and name != "not recorded"]
    assert starts == ["step start"] * 3 + ["one", "other", "outer", "inner", "annotated"]
    ends = [name for kind, name in rows if kind == "Range_end"]
    assert len(ends) == len(set(ends)) == len(starts)
    marks = [name for kind, name in rows if kind == "Mark"]
    assert marks == ["in the middle"] * 3 + ["streamed"]
    (other,) = [row for row in run.rows("MSTX") if row["Name"] == "other"]
    assert other.attributes["domain"] == "mine"
    assert "Mark steps" not in run.stderr
    assert "3 steps" in run.stderr, run.stderr


EARLY = """
    import torch, torch_npu
    torch.npu.mstx.mark("loading")
    number = torch.npu.mstx.range_start("load")
    weights = torch.ones(10)
    torch.npu.mstx.range_end(number)
    {use}
"""


def test_marks_before_the_first_use_of_a_device_are_seen(tmp_path):
    code = EARLY.format(use="""weights.to("npu")""")
    run = run_program(tmp_path / "run", code, mode="cli", options=["--level=op", "--events=alloc,free,launch"])
    rows = [(row["Event Type"], row["Name"]) for row in run.rows("MSTX")]
    assert [name for kind, name in rows if kind != "Range_end"] == ["loading", "load"]
    assert len(rows) == 3
    assert run.rows("MALLOC", "PTA")


def test_a_process_that_only_imports_torch_npu_leaves_nothing(tmp_path):
    code = """
        import torch, torch_npu
        model = torch.nn.Linear(4, 4)
        model(torch.ones(2, 4)).sum().backward()
    """
    options = ["--level=op", "--events=alloc,free,launch,traceback", "--analysis=decompose"]
    run = run_program(tmp_path / "run", code, mode="cli", options=options)
    assert not run.files("recording.trace") and not run.files("*.csv")
