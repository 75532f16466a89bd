"""The package in the situations that programs with PyTorch bring about: workers, ranks, consoles, pinned memory."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from programs import LACK_OF_MEMORY
from running import run_program

TWO_CARDS = {"STANDIN_DEVICES": "2"}


def test_every_cpu_tensor_is_seen(tmp_path):
    """PyTorch's own profiler sees all memory of its allocator; so do we."""
    run = run_program(
        tmp_path / "run",
        """
        import threading
        import torch
        import msmemscope
        from torch.profiler import profile, ProfilerActivity

        def work(seed):
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(2):
                loss = model(torch.randn(7, 30)).pow(2).mean()
                loss.backward()
                optimizer.step()
            torch.tensor([1.0] * 111).clone().resize_(500)
            torch.load(path)
        path = "tensor.pt"
        torch.save(torch.arange(1234), path)
        work(0)
        msmemscope.config(events="alloc,free", device="cpu", output="out")
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            msmemscope.start()
            work(1)
            thread = threading.Thread(target=work, args=(2,))
            thread.start()
            thread.join()
            msmemscope.stop()
        for event in profiler.profiler.kineto_results.events():
            if event.name() == "[memory]" and event.nbytes() > 0:
                print("bytes", event.nbytes())
        """,
    )
    expected = Counter(int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("bytes"))
    found = Counter(int(row.attributes["size"]) for row in run.rows("MALLOC", "HOST") if "shadow" not in row["Attr"])
    missing = expected - found
    assert sum(expected.values()) > 100
    assert not missing, f"not seen: {missing}"


def test_pinned_memory_is_counted_apart(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import msmemscope
        import torch, torch_npu
        msmemscope.config(events="alloc,free", device="npu,cpu", output="out")
        msmemscope.start()
        plain = torch.zeros(3000, dtype=torch.uint8)
        pinned = plain.pin_memory()
        on_device = pinned.npu()
        torch.npu.synchronize()
        assert pinned.is_pinned() and bool((on_device.cpu() == 0).all())
        msmemscope.stop()
        """,
    )
    assert "3000" in [row.attributes["size"] for row in run.rows("MALLOC", "HOST")]
    pinned = run.rows("MALLOC", "HOST_PINNED")
    assert pinned and all(int(row.attributes["size"]) >= 3000 for row in pinned)
    assert run.rows("MALLOC", "PTA")


def test_workers_of_a_data_loader(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import msmemscope
        import torch, torch_npu

        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 32
            def __getitem__(self, index):
                return torch.full((100,), float(index))

        if __name__ == "__main__":
            msmemscope.config(events="alloc,free,launch", output="out")
            msmemscope.start()
            total = torch.zeros((), device="npu")
            for context in ("fork", "spawn"):
                loader = torch.utils.data.DataLoader(
                    Numbers(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=context
                )
                for batch in loader:
                    total += batch.npu().sum()
            print("total", int(total))
            msmemscope.stop()
        """,
    )
    assert "total 99200" in run.stdout
    assert run.rows("FREE", "PTA")
    assert len(run.files("recording.trace")) == 1, "workers do not touch the device and leave nothing"


RANK = """
    import os
    {first}
    import torch, torch_npu
    import torch.distributed as distributed
    rank = int(os.environ["LOCAL_RANK"])
    torch.npu.set_device(rank)
    {begin}
    distributed.init_process_group("gloo")
    tensor = torch.full((1 << 20,), float(rank), device="npu")
    host = tensor.cpu()
    distributed.all_reduce(host)
    assert float(host[0]) == 1.0
    distributed.destroy_process_group()
    {end}
"""


def ranks(run):
    """Devices and large blocks of each process."""
    rows = [row for row in run.rows("MALLOC", "PTA") if int(row.attributes["size"]) >= 4 << 20]
    return sorted((row["Device Id"], row["Process Id"]) for row in rows)


def test_ranks_of_torchrun(tmp_path):
    for mode, parts in {
        "api": {
            "first": "import msmemscope",
            "begin": "msmemscope.config(output='out'); msmemscope.start()",
            "end": "msmemscope.stop()",
        },
        "cli": {"first": "", "begin": "", "end": ""},
    }.items():
        directory = tmp_path / mode
        launcher = """
        import subprocess, sys
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "rank.py"]
        sys.exit(subprocess.run(command).returncode)
        """
        directory.mkdir()
        run = run_program(
            directory / "run", launcher, mode=mode, environment=TWO_CARDS, files={"rank.py": RANK.format(**parts)}
        )
        found = ranks(run)
        assert [device for device, _ in found] == ["0", "1"], mode
        assert len({process for _, process in found}) == 2, mode


def test_run_as_a_module(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch, torch_npu
        torch.ones(1 << 20, device="npu").sum().item()
        """,
        mode="cli",
        as_module=True,
    )
    assert run.rows("MALLOC", "PTA")
    assert run.rows("OP_LAUNCH", "ATEN_START")


def test_in_a_console_without_restarting_it(tmp_path):
    """A notebook is a console: the package comes after PyTorch, and results are wanted at once."""
    run = run_program(
        tmp_path / "run",
        '''
        import code, sys
        sys.ps1 = ">>> "
        lines = """
        import torch, torch_npu
        import msmemscope
        msmemscope.config(events="alloc,free,launch", output="out")
        msmemscope.start()
        first = torch.ones(1 << 20, device="npu")
        msmemscope.stop()
        print("after one cell", len(list(msmemscope.recording_directory().rglob("*.csv"))))
        msmemscope.start()
        second = torch.ones(1 << 21, device="npu")
        msmemscope.stop()
        """
        console = code.InteractiveConsole()
        for line in lines.strip().splitlines():
            assert not console.push(line.strip())
        ''',
    )
    assert "after one cell 1" in run.stdout
    assert "Results in" in run.stderr, "results are told after each cell"
    assert len(run.files("memscope_dump_*.csv")) == 1, "later scopes continue the same files"
    sizes = {int(row.attributes["size"]) >> 20 for row in run.rows("MALLOC", "PTA")}
    assert {4, 8} <= sizes


def test_snapshots_before_and_after_a_lack_of_memory_in_a_program_that_imports_nothing(tmp_path):
    run = run_program(
        tmp_path / "run",
        f"\n    import torch, torch_npu\n{LACK_OF_MEMORY}",
        mode="cli",
    )
    assert "survived" in run.stdout
    before, after = run.rows("SNAPSHOT")
    assert (before["Name"], after["Name"]) == ("OOM_Snapshot", "OOM_Snapshot After")
    assert int(before.attributes["allocated"]) >= 4 << 20
