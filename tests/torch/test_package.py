"""The Python package with the real torch_npu: nothing preloaded, preloaded, and from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest
from programs import IS_OLD

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import PROGRAM, run_program

TRAINING = """
    import threading
    import msmemscope
    import torch, torch_npu

    msmemscope.config(events="alloc,free,launch,access", analysis="decompose", output="out")
    msmemscope.start()
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64).npu()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        inputs = torch.randn(32, 64).npu()
        model(inputs).relu().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        msmemscope.step()
    def work():
        torch.ones(3, device="npu").mul_(2)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.npu.synchronize()
    msmemscope.stop()
"""

OPTIONS = ("--events=alloc,free,launch,access", "--analysis=decompose", "--collect-mode=deferred")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {
        mode: run_program(tmp_path_factory.mktemp(mode) / "run", TRAINING, mode=mode, options=OPTIONS)
        for mode in ("api", "preload", "cli")
    }


def pool_history(run):
    """Sizes given and freed, with owners, in order, by number instead of address."""
    numbers = {}
    return [
        (
            row["Event"],
            numbers.setdefault(row["Ptr"], len(numbers)),
            row.attributes["size"],
            row.attributes.get("owner"),
            row.attributes.get("shadow"),
        )
        for row in run.rows()
        if row["Event Type"] == "PTA" and row["Event"] in ("MALLOC", "FREE")
    ]


def operators(run, thread=None):
    return [row["Name"] for row in run.rows("OP_LAUNCH", "ATEN_START") if thread in (None, row["Thread Id"])]


def test_all_modes_see_the_same(runs):
    expected = pool_history(runs["api"])
    assert len(expected) > 40
    assert pool_history(runs["preload"]) == expected
    assert pool_history(runs["cli"]) == expected
    assert operators(runs["preload"]) == operators(runs["api"])
    assert operators(runs["cli"]) == operators(runs["api"])


def test_driver_events_are_the_truth(runs):
    for mode, run in runs.items():
        truth = [address for kind, address, _, _ in run.truth() if kind == "HalAlloc"]
        assert [int(row["Ptr"], 16) for row in run.rows("MALLOC", "HAL")] == truth, mode


def test_owners(runs):
    owners = {row.attributes["owner"] for row in runs["api"].rows("MALLOC", "PTA")}
    assert {"PTA@model@weight", "PTA@model@gradient", "PTA@model@optimizer_state", "PTA@ops@aten"} <= owners


def test_a_thread_that_ran_before_is_seen_except_for_its_accesses(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import queue, threading
        import torch, torch_npu
        import msmemscope
        work, done = queue.Queue(), queue.Queue()
        def serve():
            while (size := work.get()) is not None:
                done.put(torch.ones(size, device="npu"))
        thread = threading.Thread(target=serve, name="early")
        thread.start()
        def beat():
            threading.Event().wait()
        beat.__module__ = "ipykernel.heartbeat"  # as in a notebook: nobody wants to read about it
        threading.Thread(target=beat, name="Heartbeat", daemon=True).start()
        msmemscope.config(events="alloc,free,launch,access", output="out")
        msmemscope.start()
        work.put(5), done.get()
        work.put(None)
        thread.join()
        msmemscope.stop()
        """,
    )
    assert run.rows("ACCESS") == []
    if IS_OLD:
        # Its profiler's callbacks cannot be used: operators are seen like accesses, and that is said.
        assert "operators of threads that ran before the start are not seen: early\n" in run.stderr
    else:
        assert operators(run).count("torch._ops.aten.ones.default") == 1
        assert "accesses of threads that ran before the start are not seen: early\n" in run.stderr


def test_operators_begin_and_end_on_every_thread(runs):
    run = runs["api"]
    ends = [row["Name"] for row in run.rows("OP_LAUNCH", "ATEN_END")]
    assert sorted(ends) == sorted(operators(run))
    threads = {row["Thread Id"] for row in run.rows("OP_LAUNCH", "ATEN_START")}
    assert len(threads) == 3, "main thread, autograd and the one that the program started"
    assert "torch._ops.aten.addmm.default" in operators(run)
    assert "torch._ops.aten.mm.default" in operators(run)
    assert "torch._ops.aten.mul_.Tensor" in operators(run)


def test_an_empty_trace_shows_no_imports_of_ours(tmp_path):
    code = """
        import msmemscope
        import torch, torch_npu
        msmemscope.config(events="launch,access,traceback", analysis="decompose", output="out")
        msmemscope.start()
        msmemscope.stop()
    """
    run = run_program(tmp_path / "run", code)
    assert [name.rpartition(": ")[2] for name in run.calls()] == ["<module>"]


def test_stacks_have_no_frame_of_the_way_through_the_tool(tmp_path):
    code = """
        import msmemscope
        import torch, torch_npu
        msmemscope.config(events="alloc,free,access", call_stack="python:2", output="out")
        msmemscope.start()
        def work():
            return torch.ones(10, device="npu") * 2
        work()
        msmemscope.stop()
    """
    run = run_program(tmp_path / "run", code)
    blocks = run.rows("MALLOC", "PTA")
    assert len(blocks) == 2
    for row in blocks + run.rows("ACCESS"):
        frames = row["Call Stack(Python)"].strip().splitlines()
        assert [frame.rpartition(": ")[2].strip('"') for frame in frames] == ["work", "<module>"], frames


def test_accesses(runs):
    by_operator = {}
    for row in runs["api"].rows("ACCESS"):
        attributes = row.attributes
        by_operator.setdefault(row["Name"], []).append((row["Event Type"], attributes["dtype"], attributes["shape"]))
    addmm = by_operator["torch._ops.aten.addmm.default"][:4]
    assert [kind for kind, _, _ in addmm] == ["READ", "READ", "READ", "WRITE"]
    assert addmm[1] == ("READ", "torch.float32", "torch.Size([32, 64])")
    assert ("WRITE", "torch.float32", "torch.Size([3])") in by_operator["torch._ops.aten.mul_.Tensor"]
    assert "torch._ops.aten.t.default" not in by_operator, "a view touches no memory"
    assert "torch._ops.aten.empty.memory_format" not in by_operator


def test_labels_of_tensors(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch
        import torch_npu
        import msmemscope
        import msmemscope.describe as describe
        from msmemscope.exceptions import UnsupportedTargetError

        msmemscope.config(events="alloc,free", analysis="decompose", output="out")
        early = torch.empty(1000, device="npu")
        describe.describer(early, owner="early")
        msmemscope.start()
        whole = torch.empty(2000, device="npu")
        describe.describer(whole[500:], owner="view")
        describe.describer(whole, owner="whole")
        try:
            describe.describer(torch.eye(3).to_sparse(), owner="sparse")
        except UnsupportedTargetError as error:
            print(error)
        msmemscope.stop()
        """,
    )
    assert {row.attributes["owner"] for row in run.rows("MALLOC", "PTA")} == {"PTA@early", "PTA@view@whole"}
    assert "Unsupported tensor type: Tensor" in run.stdout


def test_scopes_share_files_whatever_is_analysed(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch
        import torch_npu
        import msmemscope

        model = torch.nn.Linear(64, 64).npu()
        for analysis in ("leaks", "leaks,inefficient", "inefficient,decompose"):
            msmemscope.config(analysis=analysis, data_format="csv,db", output="out")
            for _ in range(2):
                msmemscope.start()
                model(torch.randn(32, 64).npu()).sum().backward()
                msmemscope.step()
                msmemscope.stop()
        """,
    )
    assert len(run.files("memscope_dump_*.csv")) == len(run.files("memscope_dump_*.db")) == 1
    assert len(run.rows("SYSTEM", "STEP")) == 6
    mallocs = run.rows("MALLOC", "PTA")
    assert all("owner" in row.attributes for row in mallocs)
    assert any("inefficient_type" in row.attributes for row in mallocs)


def test_what_was_made_before_the_forward_pass_is_no_activation(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch
        import torch_npu
        import msmemscope

        class Masked(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(100, 100)
                self.register_buffer("mask", torch.ones(300, 100))

            def forward(self, inputs):
                return self.linear(inputs) * self.mask

        msmemscope.config(analysis="decompose", output="out")
        msmemscope.start()
        model = Masked().npu()
        inputs = torch.ones(300, 100).npu()
        result = model(inputs)
        print(model.mask.data_ptr(), inputs.data_ptr(), result.data_ptr())
        result.sum().backward()
        msmemscope.stop()
        """,
    )
    owners = {int(row["Ptr"], 16): row.attributes["owner"] for row in run.rows("MALLOC", "PTA")}
    mask, inputs, result = (owners[int(address)] for address in run.stdout.split())
    assert (mask, inputs, result) == ("PTA@ops@aten", "PTA@ops@aten", "PTA@model@activation")


def test_documented_samples(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch
        import torch_npu
        import msmemscope
        import msmemscope.describe as describe

        model = torch.nn.Linear(4, 4).npu()
        msmemscope.config(call_stack="c:10,python:5", events="launch,alloc,free", level="0", device="npu",
                          analysis="leaks,decompose", watch="op0,op1,full-content", data_format="csv", output="out")
        msmemscope.start()
        with msmemscope.RecordFunction("forward_pass"):
            output = model(torch.ones(2, 4).npu())
        t = torch.randn(10, 10).to("npu:0")
        describe.describer(t, owner="test4")
        test_tensor = torch.randn(2, 3).to("npu:0")
        msmemscope.watcher.watch(test_tensor, name="test", dump_nums=2)
        msmemscope.watcher.watch(test_tensor.data_ptr(), length=1000, name="test", dump_nums=2)
        torch.npu.synchronize()
        msmemscope.watcher.remove(test_tensor)
        msmemscope.watcher.remove(test_tensor.data_ptr(), length=1000)
        msmemscope.take_snapshot()
        msmemscope.take_snapshot(device_mask=0)
        try:
            torch.empty(1 << 40, device="npu")
        except RuntimeError:
            pass
        print("after")
        msmemscope.stop()
        """,
        environment={"STANDIN_DEVICES": "2"},
    )
    names = [(row["Name"], row["Device Id"]) for row in run.rows("SNAPSHOT")]
    everywhere = [("Memory Snapshot", "0"), ("Memory Snapshot", "1"), ("Memory Snapshot", "0")]
    assert names == [*everywhere, ("OOM_Snapshot", "0"), ("OOM_Snapshot After", "0")]
    assert any("test4" in row.attributes["owner"] for row in run.rows("MALLOC", "PTA"))
    assert run.calls() == ["forward_pass"]
    stacks = [row["Call Stack(Python)"] for row in run.rows("MALLOC", "PTA") if "shadow" not in row.attributes]
    assert all("script.py" in stack for stack in stacks), "nothing of ours stands between"
    shadows = [row for row in run.rows("MALLOC", "PTA") if row.attributes.get("shadow") == "true"]
    assert len(shadows) == 2, "weight and bias were there before the start"


def test_too_late_for_the_pool(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch, torch_npu
        first = torch.ones(4).npu()
        import msmemscope
        msmemscope.config(output="out")
        msmemscope.start()
        second = torch.empty(30_000_000, device="npu")
        msmemscope.stop()
        """,
    )
    assert run.stderr.count("torch_npu had allocated device memory before msmemscope was imported") == 1
    assert run.rows("MALLOC", "PTA") == []
    assert len(run.rows("MALLOC", "HAL")) == 1
    for arguments in (["analyze"], ["check", "--no-leaks"], ["info"]):
        command = [PROGRAM, *arguments, run.output]
        later = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "PyTorch's pool was not seen: torch_npu had allocated" in " ".join(later.stdout.split()), later
        assert later.returncode == (3 if arguments[0] == "check" else 0), later


def test_host_tensors_without_a_device(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import threading
        import torch
        import msmemscope
        msmemscope.config(events="alloc,free,launch,access", device="cpu", output="out")
        msmemscope.start()
        kept = torch.zeros(1000)
        views = kept.view(10, 100).split(5)
        joined = torch.cat(views)
        del joined
        thread = threading.Thread(target=lambda: torch.empty(2000))
        thread.start()
        thread.join()
        loader = torch.utils.data.DataLoader(list(range(8)), num_workers=1)
        assert len(list(loader)) == 8
        msmemscope.stop()
        """,
    )
    sizes = [row.attributes["size"] for row in run.rows("MALLOC", "HOST")]
    assert sizes.count("4000") == 2
    assert "8000" in sizes
    freed = [row for row in run.rows("FREE", "HOST") if "shadow" not in row.attributes]
    assert {"4000", "8000"} <= {row.attributes["size"] for row in freed}
    cat = [row for row in run.rows("ACCESS") if row["Name"] == "torch._ops.aten.cat.default"]
    assert [row["Event Type"] for row in cat] == ["READ", "READ", "WRITE"]


def test_unusual_modules_and_optimizers_go_on_working(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch
        import msmemscope

        class Unhashable(torch.nn.Linear):
            __hash__ = None

        class Stateless(torch.optim.SGD):
            def step(self):
                self.state = None

        msmemscope.config(analysis="decompose", output="out")
        msmemscope.start()
        model = Unhashable(4, 4)
        optimizer = Stateless([torch.nn.Parameter(torch.zeros(4))])
        print(model(torch.ones(4)).shape)
        optimizer.step()
        print("trained")
        msmemscope.stop()
        """,
    )
    assert "torch.Size([4])" in run.stdout and "trained" in run.stdout
    assert "weights of a module cannot be seen: TypeError: unhashable type: 'Unhashable'" in run.stderr
    assert "memory of an optimizer cannot be seen: AttributeError" in run.stderr
