"""Kernels of the real framework: rows equal what the device has logged."""

import csv
import os
import re
import subprocess
import sys
from collections import Counter, namedtuple
from pathlib import Path

import pytest
import truth

PROGRAM = Path(os.environ.get("MSMEMSCOPE", Path(__file__).resolve().parents[2] / "target/release/msmemscope"))
ROOT = Path(__file__).resolve().parents[2]

#: Trains a little on every card named, one after the other in each step.
TRAINING = """
import torch, torch_npu
import sys
torch.manual_seed(0)
cards = [int(card) for card in sys.argv[1].split(",")]
layers = lambda: (torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
models = [torch.nn.Sequential(*layers()).npu(card) for card in cards]
optimizers = [torch.optim.Adam(model.parameters()) for model in models]
for step in range(3):
    for card, model, optimizer in zip(cards, models, optimizers):
        loss = model(torch.ones(8, 16, device=f"npu:{card}")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
for card in cards:
    torch.npu.synchronize(card)
"""

Row = namedtuple("Row", "type name time device stream task process thread")
PHASES = {"kernel_launch": "KERNEL_LAUNCH", "kernel_start": "KERNEL_EXECUTE_START", "kernel_end": "KERNEL_EXECUTE_END"}
#: Clocks of cards are placed on the host's as closely as a busy machine lets compare them.
TOLERATED_NS = 1_000_000


def kernel_rows(output):
    """Rows of kernels in the csv files of a directory, per device."""
    rows = []
    for path in sorted(Path(output).rglob("memscope_dump_*.csv")):
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                if row["Event"] == "KERNEL_LAUNCH":
                    ids = re.fullmatch(r"\{streamId:(\d+),taskId:(\d+)\}", row["Attr"])
                    assert ids, row
                    numbers = int(row["Timestamp(ns)"]), int(row["Device Id"]), int(ids[1]), int(ids[2])
                    rows.append(
                        Row(row["Event Type"], row["Name"], *numbers, row["Process Id"], row["Thread Id"]),
                    )
    return rows


def kernel_truth(log):
    return [entry for entry in truth.read(log) if entry.kind in PHASES]


def assert_equal(rows, entries):
    """The same kernels on each stream, in the same order, at the same times but for the offset of the clocks.

    A launch has the time at which it was called and is logged when the kernel is queued: at best right behind that.
    """

    def by_stream(items, key):
        streams = {}
        for item in items:
            streams.setdefault(key(item), []).append(item)
        return streams

    told = by_stream(rows, lambda row: (row.type, row.device, row.stream))
    expected = by_stream(entries, lambda entry: (PHASES[entry.kind], entry.device, entry.address >> 32))
    assert set(told) == set(expected)
    late = {}
    for stream, happened in expected.items():
        written = sorted(told[stream], key=lambda row: row.time)
        happened = sorted(happened, key=lambda entry: entry.time)
        assert [(row.name, row.task) for row in written] == [(entry.text, entry.address & 0xFFFF) for entry in happened]
        late[stream] = [row.time - entry.time for row, entry in zip(written, happened)]
        if stream[0] != "KERNEL_LAUNCH":
            assert {(row.process, row.thread) for row in written} == {("N/A", "N/A")}
    offset = max(time for stream, times in late.items() if stream[0] == "KERNEL_LAUNCH" for time in times)
    moments = [time - offset for stream, times in late.items() if stream[0] != "KERNEL_LAUNCH" for time in times]
    assert max(map(abs, moments)) < TOLERATED_NS, sorted(moments)


def assert_same_durations(output, entries, is_fine):
    """Kernels ran as long as they did, each of them a while if the card's clock is fine enough to tell."""
    table = run([PROGRAM, "export", output, "--to=kernels", "-o", "-"]).stdout.splitlines()
    ran = [int(row["Ran(ns)"]) for row in csv.DictReader(table)]
    assert not is_fine or 0 not in ran, f"{ran.count(0)} of {len(ran)}"
    moments = {kind: sum(entry.time for entry in entries if entry.kind == kind) for kind in PHASES}
    true = moments["kernel_end"] - moments["kernel_start"]
    assert abs(sum(ran) - true) < true / 20, (sum(ran), true)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "training.py"
    path.write_text(TRAINING)
    return path


def run(command, log=None, **variables):
    environment = dict(os.environ, **variables)
    if log is not None:
        log.mkdir(exist_ok=True)
        environment["STANDIN_LOG"] = str(log)
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return result


#: What a run has written, what the device has logged, and the run itself.
Recorded = namedtuple("Recorded", "output log result")


def record_training(directory, training, **variables):
    output, log = directory / "out", directory / "log"
    command = [PROGRAM, "-o", output, "--level=op,kernel", "--data-format=csv,db", "--"]
    return Recorded(output, log, run([*command, sys.executable, training, "0,1"], log=log, **variables))


@pytest.fixture(scope="module")
def plain_losses(training):
    return run([sys.executable, training, "0,1"]).stdout.splitlines()


@pytest.fixture(scope="module")
def recorded_training(tmp_path_factory, training):
    """With the settings that everybody has."""
    return record_training(tmp_path_factory.mktemp("recorded"), training)


@pytest.mark.parametrize(
    "variables",
    [{}, {"STANDIN_CANN": "8.0", "STANDIN_CLOCK_KHZ": "1000"}],
    ids=["current", "older"],
)
def test_training_on_two_cards(tmp_path, training, recorded_training, plain_losses, variables):
    recorded = record_training(tmp_path, training, **variables) if variables else recorded_training
    losses = [line for line in recorded.result.stdout.splitlines() if line[:1].isdigit()]
    assert losses[:3] == plain_losses
    assert "kernels are not recorded" not in recorded.result.stderr
    rows, entries = kernel_rows(recorded.output), kernel_truth(recorded.log)
    assert_equal(rows, entries)
    assert_same_durations(recorded.output, entries, is_fine="STANDIN_CLOCK_KHZ" not in variables)
    launches = Counter((row.device, row.name.split("_")[0]) for row in rows if row.type == "KERNEL_LAUNCH")
    assert {device for device, _ in launches} == {0, 1}
    assert any("atmul" in name or "Addmm" in name or "Mm" in name for _, name in launches), launches
    names = {row.name for row in rows}
    if "STANDIN_CANN" not in variables:  # Names of older kernels have no tiling and no unit.
        assert any(re.fullmatch(r"LayerNorm\w*_[0-9a-f]{32}_\d+_mix_aiv", name) for name in names), names
    files = list(recorded.output.rglob("memscope_dump_*.csv"))
    assert any("ATEN_START" in path.read_text() for path in files)


def launches_by_operator(output):
    """(kernel, operator) of all launches by card and stream, in order."""
    streams = {}
    for row in csv.DictReader(run([PROGRAM, "export", output, "--to=kernels", "-o", "-"]).stdout.splitlines()):
        kernel = row["Kernel"].split("_")[0]
        streams.setdefault((row["Device Id"], row["Stream Id"]), []).append((kernel, row["Operator"]))
    assert len(list(output.iterdir())) == 1
    return streams


def test_the_operator_of_each_kernel_is_known_whoever_launches_it(tmp_path, training, recorded_training):
    """With its queue, as usual, torch_npu launches on a thread of its own, which runs no operators."""
    at_once = record_training(tmp_path, training, TASK_QUEUE_ENABLE="0")
    rows, entries = kernel_rows(at_once.output), kernel_truth(at_once.log)
    assert_equal(rows, entries)
    assert_same_durations(at_once.output, entries, is_fine=True)
    queued = launches_by_operator(recorded_training.output)
    assert queued == launches_by_operator(at_once.output)
    assert sum(map(len, queued.values())) > 50
    text = run([PROGRAM, "analyze", recorded_training.output]).stdout
    assert all(operator for launches in queued.values() for _, operator in launches)
    assert " by aten." in text and "No operators are named" not in text


#: Captures a graph and runs it three times.
GRAPH = """
import torch, torch_npu
x = torch.ones(64, 64, device="npu")
y = (x @ x).tanh().exp()
torch.npu.synchronize()
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    y = (x @ x).tanh().exp()
for run in range(3):
    x.fill_(run / 64)
    graph.replay()
    torch.npu.synchronize()
    host = x.cpu()
    print(torch.allclose(y.cpu(), (host @ host).tanh().exp(), rtol=1e-3))
"""


def test_kernels_of_a_graph_are_named_whenever_it_runs(tmp_path):
    program = tmp_path / "graph.py"
    program.write_text(GRAPH)
    command = [PROGRAM, "-o", tmp_path / "out", "--level=op,kernel", "--data-format=csv", "--"]
    recorded = run([*command, sys.executable, program], log=tmp_path / "log")
    assert recorded.stdout.split() == ["True"] * 3
    rows = kernel_rows(tmp_path / "out")
    assert_equal(rows, kernel_truth(tmp_path / "log"))
    of_exp = Counter(row.type for row in rows if row.name.startswith("Exp_"))
    assert of_exp == {"KERNEL_LAUNCH": 2, "KERNEL_EXECUTE_START": 1 + 3, "KERNEL_EXECUTE_END": 1 + 3}
    table = csv.DictReader(run([PROGRAM, "export", tmp_path / "out", "--to=kernels", "-o", "-"]).stdout.splitlines())
    cells = [
        (bool(row["Launched(ns)"]), bool(row["Waited(ns)"]), bool(row["Ran(ns)"]))
        for row in table
        if "Exp_" in row["Kernel"]
    ]
    assert cells == [(True, True, True), (True, False, False), *[(False, False, True)] * 3]
    text = " ".join(run([PROGRAM, "analyze", tmp_path / "out"]).stdout.split())
    assert "Captured in graphs: 3 of these launches, which ran 9 times;" in text


#: The second scope has another level than the first.
API = """
import sys
import torch, torch_npu
import msmemscope
x = torch.ones(64, device="npu")
torch.npu.synchronize()
msmemscope.config(events="alloc,free,launch", output=sys.argv[1], data_format="csv")
for level in sys.argv[2:]:
    msmemscope.config(level=level)
    x.sigmoid()
    torch.npu.synchronize()
    msmemscope.start()
    y = x.tanh()
    z = y.exp()
    torch.npu.synchronize()
    msmemscope.stop()
x.sigmoid()
torch.npu.synchronize()
"""


def test_levels_from_python(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(API)
    path = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    run([sys.executable, program, tmp_path / "out", "1", "op,kernel"], log=tmp_path / "log", PYTHONPATH=path)
    rows = kernel_rows(tmp_path / "out")
    for phase in PHASES.values():
        assert [row.name.split("_")[0] for row in rows if row.type == phase] == ["Tanh", "Exp"] * 2
    text = "".join(path.read_text() for path in (tmp_path / "out").rglob("memscope_dump_*.csv"))
    assert [
        text.count(f"ATEN_START,torch._ops.{name}.default") for name in ("aten.tanh", "aten.exp", "aten.sigmoid")
    ] == [1, 1, 0]


#: Three steps, of which the documented flow records one.
STEPS = """
import mstx, torch, torch_npu
x = torch.ones(256, 256, device="npu")
for step in range(3):
    range_id = mstx.range_start("step start", None)
    y = x.tanh()
    {change}
    z = y.sigmoid()
    torch.npu.synchronize()
    mstx.range_end(range_id)
"""


def test_comparing_two_runs_by_kernels(tmp_path):
    """The documented flow: a step of each run with --level=kernel, then --compare --level=kernel on what they wrote."""
    for name, step, change in (("base", 1, "pass"), ("other", 2, "y = y.exp()")):
        program = tmp_path / f"{name}.py"
        program.write_text(STEPS.format(change=change))
        command = [PROGRAM, "-o", tmp_path / name, f"--steps={step}", "--level=kernel", "--data-format=csv,db", "--"]
        run([*command, sys.executable, program], TASK_QUEUE_ENABLE="0")
        names = [row.name.split("_")[0] for row in kernel_rows(tmp_path / name) if row.type == "KERNEL_LAUNCH"]
        assert names == (["Tanh", "Sigmoid"] if name == "base" else ["Tanh", "Exp", "Sigmoid"])

    def found(name, ending):
        return next((tmp_path / name).rglob(ending)) if ending else tmp_path / name

    for ending in ("memscope_dump_*.csv", "memscope_dump_*.db", "recording.trace", ""):
        inputs = [found(name, ending) for name in ("base", "other")]
        if ending == "recording.trace":
            inputs = [path.parent for path in inputs]
        result = tmp_path / f"compared {ending.replace('*', '')}"
        run([PROGRAM, "--compare", f"--input={inputs[0]},{inputs[1]}", "--level=kernel", "-o", result])
        (path,) = result.rglob("memory_compare_*.csv")
        with open(path, newline="") as file:
            lines = [[cell.split("_")[0] for cell in row] for row in csv.reader(file)]
        kernels = [next(cell for cell in row if cell in ("Tanh", "Exp", "Sigmoid")) for row in lines[2:]]
        assert kernels == ["Tanh", "Exp", "Sigmoid"], lines
        (added,) = [row for row in lines[2:] if "Exp" in row]
        assert "N/A" in added, "missing in the base"
    directories = run([PROGRAM, "compare", "--level=kernel", tmp_path / "base", tmp_path / "other"])
    assert "Exp_" in directories.stdout, directories.stdout
    rows_of_step = found("other", "memscope_dump_*.csv")
    table = run([PROGRAM, "analyze", rows_of_step]).stdout
    assert "Kernels: 3 launches of 3 kernels" in table and "Exp_..." in table, table
    launches = run([PROGRAM, "export", rows_of_step, "--to=kernels", "-o", "-"]).stdout.splitlines()
    rows = list(csv.DictReader(launches))
    assert [row["Kernel"].split("_")[0] for row in rows] == ["Tanh", "Exp", "Sigmoid"]
    assert int(rows[0]["Memory change(bytes)"]) == 262656, "its result comes into use before the launch"
    assert all(int(row["Waited(ns)"]) >= 0 and int(row["Ran(ns)"]) > 0 for row in rows)


#: Profiles with torch_npu's own profiler, and computes before and after that.
PROFILED = """
import sys, torch, torch_npu
from torch_npu.profiler import ProfilerActivity, profile
x = torch.ones(64, 64, device="npu")
x.sigmoid()
torch.npu.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as profiler:
    for step in range(2):
        print(float(x.tanh().exp().sum()))
        profiler.step()
    torch.npu.synchronize()
x.sigmoid()
torch.npu.synchronize()
x.cos()
torch.npu.synchronize()
"""


def test_the_profiler_of_the_framework_sees_what_it_sees_without_us(tmp_path):
    program = tmp_path / "profiled.py"
    program.write_text(PROFILED)

    def profile_of(name, *command):
        directory = tmp_path / name
        directory.mkdir()
        result = subprocess.run(
            [*map(str, command), sys.executable, program], cwd=directory, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        (seen,) = directory.rglob("standin_profile.csv")
        return seen.read_text(), result

    plain, _ = profile_of("plain")
    names = [line.split(",")[4].split("_")[0] for line in plain.splitlines() if line.startswith("802,")]
    assert names.count("Tanh") == names.count("Exp") == 2 and "Sigmoid" not in names, plain
    assert int(plain.splitlines()[-1].split(",")[2]) >= 2 * 3 * 2, "starts and ends of its kernels"
    command = [PROGRAM, "-o", tmp_path / "out", "--level=kernel", "--data-format=csv", "--"]
    recorded, result = profile_of("recorded", *command)
    assert recorded == plain
    assert "somebody else in this process has taken the channel of card 0" in result.stderr
    rows = [(row.type, row.name.split("_")[0]) for row in kernel_rows(tmp_path / "out")]
    assert [rows.count(("KERNEL_LAUNCH", name)) for name in ("Tanh", "Exp", "Sigmoid", "Cos")] == [2, 2, 2, 1]
    # The first kernel behind the profile opens the channel again; those that follow are whole.
    assert ("KERNEL_EXECUTE_START", "Cos") in rows and ("KERNEL_EXECUTE_END", "Cos") in rows


#: Forks workers when native threads run and kernels have been recorded, as tokenizers and data loaders do.
FORKED = """
import os, threading, torch, torch_npu
from torch.utils.data import DataLoader, Dataset
class Texts(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.full((4,), float(index))
x = torch.ones(4, device="npu")
torch.npu.synchronize()
(torch.ones(512, 512) @ torch.ones(512, 512)).sum()  # the pool of threads on the host
stop = threading.Event()
thread = threading.Thread(target=stop.wait); thread.start()
for epoch in range(2):
    for batch in DataLoader(Texts(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        print(float((x * batch.npu()).tanh().sum()))
child = os.fork()
if child == 0:
    os._exit(3)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set(); thread.join()
torch.npu.synchronize()
"""


def test_workers_that_are_forked_after_threads_change_nothing(tmp_path):
    """The note on tokenizers in the users' documents: they warn of forks that somebody else has made. We make none."""
    program = tmp_path / "forked.py"
    program.write_text(FORKED)
    plain = run([sys.executable, program])
    command = [PROGRAM, "-o", tmp_path / "out", "--level=1", "--data-format=csv", "--"]
    recorded = run([*command, sys.executable, program], log=tmp_path / "log")
    assert recorded.stdout.splitlines()[: len(plain.stdout.splitlines())] == plain.stdout.splitlines()
    assert "arallelism" not in recorded.stderr and "got forked" not in recorded.stderr
    assert_equal(kernel_rows(tmp_path / "out"), kernel_truth(tmp_path / "log"))
