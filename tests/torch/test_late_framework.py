"""Recording that begins before torch_npu is there sees the same as recording that begins after."""

import sys
from pathlib import Path

import pytest
from programs import IS_OLD, LACK_OF_MEMORY

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

#: torch_npu comes when it is imported, not with torch.
BY_HAND = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

STARTS = {
    "first": "import msmemscope; msmemscope.config({}); msmemscope.start(); import torch; import torch_npu",
    "between": "import torch; import msmemscope; msmemscope.config({}); msmemscope.start(); import torch_npu",
    "last": "import torch; import torch_npu; import msmemscope; msmemscope.config({}); msmemscope.start()",
}


def snapshots(run):
    assert "survived" in run.stdout
    return [row["Name"] for row in run.rows("SNAPSHOT")]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("events", ["alloc,free", "alloc,free,launch"])
def test_snapshots_at_a_lack_of_memory(tmp_path, start, events):
    begin = STARTS[start].format(f'events="{events}", output="out"')
    run = run_program(tmp_path / "run", f"\n    {begin}\n{LACK_OF_MEMORY}", environment=BY_HAND)
    assert snapshots(run) == ["OOM_Snapshot", "OOM_Snapshot After"]


def test_snapshots_at_a_lack_of_memory_from_the_command_line(tmp_path):
    code = f"\n    import torch, torch_npu\n{LACK_OF_MEMORY}"
    run = run_program(tmp_path / "run", code, mode="cli", options=("--events=alloc,free",), environment=BY_HAND)
    assert snapshots(run) == ["OOM_Snapshot", "OOM_Snapshot After"]


@pytest.mark.skipif(IS_OLD, reason="the mode of old releases sees the operators of the backend in any case")
def test_the_same_operators(tmp_path):
    names = {}
    for start, code in STARTS.items():
        run = run_program(
            tmp_path / start,
            f"""
    {code.format('events="alloc,free,launch", output="out"')}
    tensor = torch.ones(4, 4, device="npu")
    torch.matmul(tensor, tensor.t())
    """,
            environment=BY_HAND,
        )
        names[start] = [row["Name"] for row in run.rows("OP_LAUNCH", "ATEN_START")][-4:]
    assert "torch._ops.aten.matmul.default" in names["last"]
    assert all(found == names["last"] for found in names.values()), names


@pytest.mark.parametrize("import_npu", ["import torch_npu", ""])
def test_operators_of_the_host_alone(tmp_path, import_npu):
    run = run_program(
        tmp_path / "run",
        f"""
    import threading
    import msmemscope, torch
    {import_npu}
    {"torch.npu.set_device(0)" if import_npu else ""}
    msmemscope.config(events="alloc,free,launch", device="cpu", output="out")
    msmemscope.start()
    torch.ones(3) + 1
    thread = threading.Thread(target=lambda: torch.ones(3) * 2)
    thread.start(), thread.join()
    msmemscope.stop()
    """,
    )
    rows = run.rows("OP_LAUNCH", "ATEN_START")
    names = [row["Name"] for row in rows]
    assert "torch._ops.aten.add.Tensor" in names, "of the main thread"
    assert "torch._ops.aten.mul.Tensor" in names
    assert len({row["Device Id"] for row in rows}) == 1


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_tensors_of_the_host_from_the_command_line(tmp_path, autoload):
    run = run_program(
        tmp_path / "run",
        """
    import sys
    import torch
    first = torch.ones(1 << 20)
    rest = [torch.zeros(1 << 18) for _ in range(4)]
    del first
    print(type(torch.__spec__).__name__, "msmemscope" in vars(sys.modules["__main__"]))
    """,
        mode="cli",
        options=("--device=cpu", "--events=alloc,free,launch"),
        environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
    )
    assert run.stdout.split() == ["ModuleSpec", "False"]
    sizes = [int(row.attributes["size"]) for row in run.rows("MALLOC", "HOST")]
    assert sizes.count(4 << 20) == 1 and sizes.count(1 << 20) == 4, run.stderr
    names = [row["Name"] for row in run.rows("OP_LAUNCH", "ATEN_START")]
    assert names.count("torch._ops.aten.zeros.default") == 4, "operators are seen from the first on"


def test_tensors_of_the_host_with_an_import_on_another_thread(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
    import threading
    def work():
        import torch
        print(int(torch.ones(1 << 20).sum()))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """,
        mode="cli",
        options=("--device=cpu",),
    )
    assert run.stdout.split() == [str(1 << 20)]
    assert [row for row in run.rows("MALLOC", "HOST") if row.attributes["size"] == str(4 << 20)], run.stderr


def test_tensors_of_the_host_from_before_the_first_use_of_the_device(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
    import torch, torch_npu
    early = torch.ones(3 << 20, dtype=torch.uint8)
    there = torch.ones(5 << 20, dtype=torch.uint8, device="npu")
    late = torch.ones(7 << 20, dtype=torch.uint8)
    """,
        mode="cli",
        options=("--device=npu,cpu",),
    )
    sizes = [int(row.attributes["size"]) for row in run.rows("MALLOC", "HOST")]
    assert (sizes.count(3 << 20), sizes.count(7 << 20)) == (1, 1), run.stderr
    assert run.rows("MALLOC", "PTA")
