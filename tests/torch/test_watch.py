"""Who corrupts memory is named: on the command line, through Python and without knowing the block."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("MSMEMSCOPE", ROOT / "target/release/msmemscope"))
STOMPS = Path(__file__).with_name("stomps.py")
PACKAGE = ROOT / "python"
#: The package of this source tree comes before what the device brings along.
PYTHON_PATH = os.pathsep.join((str(PACKAGE), os.environ.get("PYTHONPATH", "")))

pytestmark = pytest.mark.skipif(
    not (PACKAGE / "msmemscope/_internal.abi3.so").exists(), reason="the Python package is not built (make python)"
)


class Watched:
    """A program that ran while memory was watched."""

    def __init__(self, directory, options, arguments, **variables):
        self.output = directory / "output"
        environment = {**os.environ, "ASCEND_LAUNCH_BLOCKING": "1", "PYTHONPATH": PYTHON_PATH, **variables}
        command = [PROGRAM, "-o", self.output, *options, "--", sys.executable, *arguments]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        self.printed, self.said = result.stdout, result.stderr
        report = subprocess.run([PROGRAM, "watch-report", "--json", self.output], capture_output=True, text=True)
        assert report.returncode == 0, report.stderr
        self.processes = json.loads(report.stdout)["processes"]
        text = subprocess.run([PROGRAM, "watch-report", self.output], capture_output=True, text=True)
        assert all(len(line) <= 80 for line in text.stdout.splitlines()), text.stdout
        self.text = text.stdout

    @property
    def report(self):
        (process,) = self.processes
        return process["watch"]

    @property
    def corruptions(self):
        named = [corruption for block in self.report["blocks"] for corruption in block["corruptions"]]
        return named + ((self.report["hunt"] or {}).get("corruptions") or [])

    def files(self, pattern):
        return sorted(self.output.glob(f"*/device_0/watch_dump/{pattern}"))


#: How each mode watches the victim: options, further arguments.
MODES = {
    "command line": (["--watch=full,sigmoid_"], []),
    "full content": (["--watch=aten::full:out0，sigmoid_，full-content"], []),
    "python": ([], ["--python"]),
    "auto": (["--watch=auto"], []),
}
#: Damage: the operator that did it, or those between which it happened; offset and length of the damage.
DAMAGES = {
    "past_the_output": ("stomp.spill.default", True, (0, 88)),
    "freed_and_reused": ("stomp.late.default", True, (100, 164)),
    "host_copy_overrun": ("aten.relu_.default", False, (0, 24)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_culprit_is_named(tmp_path, mode, damage):
    options, arguments = MODES[mode]
    operator, is_by_operator, (start, end) = DAMAGES[damage]
    watched = Watched(tmp_path, options, [str(STOMPS), damage, *arguments])
    # A copy past the framework is undeclared in its own tensor as well, which only the hunt looks at.
    origin = f"stomps.py:{line_of(damage, 'victim = ')} {damage}"
    (corruption,) = (entry for entry in watched.corruptions if entry["origin"]["line"].endswith(origin))
    assert corruption["operator"] == f"torch._ops.{operator}"
    assert corruption["is_by_operator"] == is_by_operator
    if not is_by_operator:
        assert (corruption["since_operator"], corruption["since_after"]) == ("torch._ops.aten.mul.Tensor", True)
        assert corruption["operators_since"] == 0
    (span,) = corruption["spans"]
    assert corruption["is_exact"] == (mode == "full content")
    if corruption["is_exact"]:
        assert (span["start"], span["end"]) == (start, end)
    else:
        assert span["start"] <= start and end <= span["end"]
    assert "stomps.py" in corruption["line"], "the line of the program"
    below = [neighbour for neighbour in corruption["neighbours"] if neighbour["is_below"]]
    if damage == "past_the_output":
        assert below[0]["is_written"] and below[0]["distance_bytes"] == 0
        assert "probably writes past its end" in " ".join(watched.text.split())
    moment = f"during {operator}" if is_by_operator else f"between aten.mul.Tensor and {operator}"
    assert moment in " ".join(watched.text.split())
    assert "THAT NO OPERATOR DECLARED" in watched.said, "told at the end of the run as well"


#: Where nothing waits for other streams before the first look at the victim.
RACE_MODES = {"command line": MODES["command line"], "python": MODES["python"]}


@pytest.mark.parametrize("mode", RACE_MODES)
def test_work_that_ends_late_on_another_stream_is_seen(tmp_path, mode):
    options, arguments = RACE_MODES[mode]
    program = [str(STOMPS), "other_stream", *arguments]
    environment = {"ASCEND_LAUNCH_BLOCKING": "0"}
    watched = Watched(tmp_path, options, program, **environment)
    (corruption,) = watched.corruptions
    # Nobody can know any more who began the work; whose memory it was is known.
    assert not corruption["is_by_operator"] and corruption["operators_since"] == 0
    assert corruption["earlier"]["site"]["line"].endswith(
        f"stomps.py:{line_of('other_stream', 'gone = ')} other_stream"
    )
    assert corruption["origin"]["line"].endswith(f"stomps.py:{line_of('other_stream', 'victim = ')} other_stream")
    text = " ".join(watched.text.split())
    assert "work on other streams that memory did not wait for (record_stream)" in text
    assert "for the block that had this memory before may have ended too late" in text
    clean = Watched(tmp_path / "clean", options, [str(STOMPS), "no_other_stream", *arguments], **environment)
    assert clean.corruptions == []


def test_a_hunt_that_waits_for_everything_makes_such_a_race_disappear(tmp_path):
    # As documented: the value is right again, and nothing is reported.
    environment = {**os.environ, "ASCEND_LAUNCH_BLOCKING": "0"}
    plain = subprocess.run([sys.executable, STOMPS, "other_stream"], env=environment, capture_output=True, text=True)
    assert plain.stdout == "896.0\n", plain.stderr
    output = tmp_path / "output"
    command = [PROGRAM, "-o", output, "--watch=auto", "--", sys.executable, STOMPS, "other_stream", "--brief"]
    watched = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert watched.stdout == "384.0\n", watched.stderr
    assert "no change that no operator declared" in watched.stderr


#: A kernel as people see it.
SCATTER = "ScatterNd_0123456789abcdef0123456789abcdef_3"
#: How each mode watches the victim around kernels.
KERNEL_MODES = {
    "python": (["--level=kernel"], ["--python"]),
    "both levels": (["--level=op,kernel", "--watch=full,sigmoid_"], []),
    "from a kernel to a kernel": (["--level=kernel", "--watch=FillScalar:0,Sigmoid,full-content"], []),
    "auto": (["--level=kernel", "--watch=auto"], []),
}


@pytest.mark.parametrize("mode", KERNEL_MODES)
def test_the_kernel_that_did_it_is_named(tmp_path, mode):
    options, arguments = KERNEL_MODES[mode]
    # A hunt does not need it; in that without anything to find, below, everything is waited for.
    blocking = "0" if mode == "auto" else "1"
    arguments = [str(STOMPS), "one_of_several_kernels", *arguments]
    watched = Watched(tmp_path, options, arguments, ASCEND_LAUNCH_BLOCKING=blocking)
    (found,) = watched.corruptions
    assert (found["operator"], found["is_by_operator"], found["call"]) == (SCATTER, True, 1)
    assert found["launched_by"] == "torch._ops.stomp.chain.default"
    assert (found["since_operator"], found["since_after"]) == (SCATTER, False)
    span = {"start": 100, "end": 164} if "full-content" in options[-1] else {"start": 0, "end": 512}
    assert found["spans"] == [span]
    text = " ".join(watched.text.split())
    assert f"during the kernel {SCATTER} (launch 1) of stomp.chain.default, which does not declare to write it" in text
    assert "every launch waited for its stream" in text
    assert ("ASCEND_LAUNCH_BLOCKING was not 1" in text) == (blocking == "0")
    if mode != "auto":
        rows = "".join(path.read_text() for path in watched.files("*.csv")).splitlines()
        names = [*(path.name for path in watched.files("*.bin")), *rows]
        for moment in ("before", "after"):
            assert any(f"{SCATTER}_1-" in name and moment in name for name in names), names


COUNTED = """
import sys, torch, torch_npu
from msmemscope import watcher
x = torch.ones(64, device="npu")
for name, count in (("once", 1), ("thrice", 3)):
    watcher.watch(x, name=name, dump_nums=count)
    for _ in range(4):
        x + 1
    print([block.name for block in watcher.blocks()])
"""


def test_looks_before_kernels_count_to_the_last(tmp_path):
    watched = Watched(tmp_path, ["--level=kernel"], ["-c", COUNTED])
    assert watched.printed.splitlines().count("[]") == 2
    rows = "".join(path.read_text() for path in watched.files("*.csv")).splitlines()
    for name, count in (("once", 1), ("thrice", 3)):
        looks = [row for row in rows if f"-{name}_" in row]
        assert len(looks) == count and "before" in looks[-1], rows
    assert "the next kernel" not in watched.text + "".join(rows)


@pytest.mark.parametrize("mode", ["both levels", "auto"])
def test_kernels_that_do_nothing_wrong_are_not_reported(tmp_path, mode):
    options, arguments = KERNEL_MODES[mode]
    watched = Watched(tmp_path, options, [str(STOMPS), "no_one_of_several_kernels", *arguments])
    assert watched.corruptions == []
    assert watched.report["has_kernels"]
    if mode == "auto":
        assert watched.report["hunt"]["kernels"] > 4


def line_of(function, text):
    lines = STOMPS.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"def {function}("))
    return next(number for number, line in enumerate(lines[first:], first + 1) if text in line)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_clean_runs_report_nothing(tmp_path, mode, damage):
    options, arguments = MODES[mode]
    watched = Watched(tmp_path, options, [str(STOMPS), f"no_{damage}", *arguments])
    if (mode, damage) == ("auto", "host_copy_overrun"):
        # The copy past the framework is no operator, so that even in its own tensor nobody declares it.
        assert [corruption["is_by_operator"] for corruption in watched.corruptions] == [False]
        return
    assert watched.corruptions == []
    assert "no change that no operator declared" in watched.text


def test_rows_and_files_are_named_as_documented(tmp_path):
    watched = Watched(tmp_path, ["--watch=full,sigmoid_"], [str(STOMPS), "no_host_copy_overrun"])
    (path,) = watched.files("*")
    assert path.name.startswith("watch_dump_data_check_sum_0_") and path.suffix == ".csv"
    header, *rows = path.read_text().splitlines()
    assert header == "Tensor info,Check data sum"
    names = [row.rpartition(",")[0].split("_", 2)[2] for row in rows]
    operators = ["aten.mul.Tensor_1", "aten.relu_.default_1", "aten.mul.Tensor_2", "aten.sigmoid_.default_1"]
    looks = [f"torch._ops.{operator}-{{}}_0_{moment}.bin" for operator in operators for moment in ("before", "after")]
    looks = ["torch._ops.aten.full.default_1-{}_0_after.bin", *looks]
    assert names == [look.format("torch._ops.aten.full.default") for look in looks]
    assert len({row.rpartition(",")[2] for row in rows}) == 1 and len(rows[0].rpartition(",")[2]) == 16
    full = Watched(tmp_path / "full", ["--watch=full,sigmoid_,full-content"], [str(STOMPS), "no_host_copy_overrun"])
    assert sorted(file.name.split("_", 2)[2] for file in full.files("*")) == sorted(names)
    assert {file.stat().st_size for file in full.files("*")} == {512}


TRAINING = """
import torch, torch_npu
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                            torch.nn.Dropout(0.1), torch.nn.Linear(64, 8)).npu()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    x, y = torch.randn(16, 64).npu(), torch.randint(0, 8, (16,)).npu()
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    view = x.t()[::2]
    view.mul_(2)
    x[3:5] = 1
print("loss", float(loss))
"""


@pytest.mark.parametrize("level", ["op", "kernel"])
def test_training_declares_everything_it_writes(tmp_path, level):
    watched = Watched(tmp_path, ["--watch=auto", f"--level={level}"], ["-c", TRAINING])
    assert watched.corruptions == []
    hunt = watched.report["hunt"]
    assert hunt["operators"] > 100 and hunt["looks_taken"] == hunt["looks_due"] and hunt["blind_operators"] == 0


#: Ways in which the victim gets its owner, as a line before or around its allocation.
OWNED = """
import sys
import msmemscope.describe as describe
source = open({stomps!r}).read()
if {region}:
    source = source.replace("    victim = torch", "    with describe.describer(owner='precious'): victim = torch")
else:
    source = source.replace("    begin(victim)", "    describe.describer(victim, owner='precious')")
sys.argv = [{stomps!r}, "past_the_output"]
exec(compile(source, {stomps!r}, "exec"))
"""


@pytest.mark.parametrize("region", [True, False])
@pytest.mark.parametrize("owner, is_found", [("precious", True), ("other", False)])
def test_the_hunt_keeps_to_the_blocks_of_an_owner(tmp_path, region, owner, is_found):
    code = OWNED.format(stomps=str(STOMPS), region=region)
    watched = Watched(tmp_path, [f"--watch=auto:1MiB,owner={owner}"], ["-c", code])
    hunt = watched.report["hunt"]
    assert hunt["owner"] == owner and hunt["looks_taken"] == hunt["looks_due"]
    operators = [corruption["operator"] for corruption in watched.corruptions]
    assert operators == (["torch._ops.stomp.spill.default"] if is_found else [])
    assert (hunt["looks_due"] > 0) == is_found
    assert ("NO BLOCK HAD THIS LABEL" in " ".join(watched.text.split())) != is_found
    everything = Watched(tmp_path / "all", ["--watch=auto"], ["-c", code])
    assert everything.report["hunt"]["looks_due"] > 2 * hunt["looks_due"], "more than the victim is alive"


WEIGHTS = """
import ctypes, torch, torch_npu
acl = ctypes.CDLL("libascendcl.so")
model = torch.nn.Linear(64, 64).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
junk = ctypes.create_string_buffer(bytes(range(64)), 64)
for step in range(3):
    optimizer.zero_grad()
    spare = torch.zeros(64, device="npu")
    if step == {step}:
        torch.npu.synchronize()
        target = {victim}.data_ptr()
        assert acl.aclrtMemcpy(ctypes.c_void_p(target), 64, junk, 64, 1) == 0
    spare.add_(1)
    loss = model(torch.ones(8, 64).npu()).sum()
    loss.backward()
    optimizer.step()
"""


MOMENTUM = "optimizer.state[model.weight]['momentum_buffer']"


@pytest.mark.parametrize(
    "owner, victim, step, count",
    [
        ("weight", "model.weight", 0, 1),
        ("weight", "spare", 1, 0),
        ("optimizer_state", MOMENTUM, 1, 1),
        ("optimizer_state", "model.weight", 1, 0),
    ],
)
def test_weights_and_what_optimizers_keep_are_known_owners(tmp_path, owner, victim, step, count):
    watched = Watched(tmp_path, [f"--watch=auto,owner={owner}"], ["-c", WEIGHTS.format(victim=victim, step=step)])
    assert watched.report["hunt"]["looks_due"] > 0
    assert [corruption["is_by_operator"] for corruption in watched.corruptions] == [False] * count


def test_a_small_budget_says_what_was_not_covered(tmp_path):
    watched = Watched(tmp_path, ["--watch=auto:20KiB"], ["-c", TRAINING])
    hunt = watched.report["hunt"]
    assert 0 < hunt["looks_taken"] < hunt["looks_due"] and hunt["longest_gap"] > 1
    assert "Not covered" in watched.text
    assert watched.said.count("the hunt cannot look at all of") == 1
    assert watched.corruptions == []


def test_results_are_those_of_the_plain_program(tmp_path):
    code = "import torch; torch.manual_seed(1)\n" + TRAINING
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    command = [PROGRAM, "-o", tmp_path, "--watch=auto", "--", sys.executable, "-c", code]
    watched = subprocess.run(command, capture_output=True, text=True)
    assert (plain.stdout, plain.returncode) == (watched.stdout, watched.returncode)


def test_without_blocking_launches_it_says_what_cannot_be_trusted(tmp_path):
    watched = Watched(tmp_path, ["--watch=auto"], [str(STOMPS), "past_the_output"], ASCEND_LAUNCH_BLOCKING="0")
    assert "ASCEND_LAUNCH_BLOCKING is not 1" in watched.said
    assert "ASCEND_LAUNCH_BLOCKING was not 1" in " ".join(watched.text.split())
    assert [corruption["operator"] for corruption in watched.corruptions] == ["torch._ops.stomp.spill.default"]
    trusted = Watched(tmp_path / "trusted", ["--watch=auto"], [str(STOMPS), "past_the_output"])
    assert "ASCEND_LAUNCH_BLOCKING" not in trusted.said + trusted.text


KINDS = """
import torch, torch_npu, msmemscope
from msmemscope import watcher
class Own(torch.Tensor):
    pass
parameter = torch.nn.Parameter(torch.ones(300, device="npu"))
own = torch.ones(300, device="npu").as_subclass(Own)
plain, freed, grown = (torch.ones(300, device="npu") for _ in range(3))
watcher.watch(parameter, name="parameter")
watcher.watch(own, name="own", dump_nums=3)
watcher.watch(plain.data_ptr() + 8, length=40, name="piece", dump_nums=1)
watcher.watch(freed, name="freed")
watcher.watch(grown, name="grown")
x = torch.ones(10, device="npu")
x + 1
del freed
x + 2
grown.resize_(10_000)
x + 3
print([block.name for block in watcher.blocks()])
with torch.no_grad():
    parameter.add_(1)
watcher.remove(parameter)
x + 4
print(watcher.blocks())
for wrong in (torch.ones(3), torch.empty(0, device="npu")):
    try:
        watcher.watch(wrong, name="wrong")
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize(
    "option, reason",
    [
        ("nosuch,sigmoid_", "operator 'nosuch' had no output on an NPU that could be watched"),
        ("add:7,sigmoid_", "operator 'add' had no output 7 on an NPU that could be watched"),
        ("sigmoid_", "'sigmoid_' only ends watching, and Python named no block"),
    ],
)
def test_that_nothing_was_watched_is_told(tmp_path, option, reason):
    program = "import torch, torch_npu; (torch.ones(8, device='npu') + 1).sigmoid_()"
    watched = Watched(tmp_path, [f"--watch={option}"], ["-c", program])
    assert f"--watch: nothing was watched: {reason}" in watched.said + watched.printed
    assert watched.text == f"Nothing was watched, although --watch asked for it:\n  {reason}.\n"


ADDRESSES = """
import torch, torch_npu, msmemscope
from msmemscope import watcher
watcher.remove(12345, length=10)
tensor = torch.ones(100, device="npu")
for address, length in ((12345, 10), (tensor.data_ptr() - 1, 1 << 40), (id(tensor), 8)):
    try:
        watcher.watch(address, length=length, name="wild")
    except msmemscope.exceptions.AddressError as error:
        print(type(error).__name__, "no block" in str(error))
print(watcher.blocks())
watcher.watch(tensor.data_ptr() + 12, length=1 << 40, name="long", dump_nums=-1)
expanded = torch.ones(1, device="npu").expand(1 << 20)
watcher.watch(expanded, name="expanded")
tensor + 1
print([block.name for block in watcher.blocks()])
"""


def test_memory_that_nobody_knows_is_not_read(tmp_path):
    watched = Watched(tmp_path / "cli", [], ["-c", ADDRESSES])
    printed = watched.printed.splitlines()
    assert printed[:5] == ["AddressError True"] * 3 + ["()", "['long', 'expanded']"], watched.printed
    for name in ("long", "expanded"):
        assert watched.said.count(f"bytes of '{name}' are watched: there its block ends") == 1, watched.said
        (block,) = (block for block in watched.report["blocks"] if block["name"] == name)
        assert block["looks"] >= 2, "before and after the sum at least"
    assert "wild" not in watched.said


def test_addresses_named_too_early_are_told_when_recording_starts(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch, torch_npu, msmemscope
        tensor = torch.ones(100, device="npu")
        msmemscope.watcher.watch(12345, length=10, name="wild")
        msmemscope.watcher.watch(tensor.data_ptr(), length=40, name="tame")
        msmemscope.config(output="out")
        msmemscope.start()
        print([block.name for block in msmemscope.watcher.blocks()])
        tensor + 1
        msmemscope.stop()
        """,
    )
    assert run.stdout.splitlines()[0] == "['tame']"
    assert run.stderr.count("'wild' cannot be watched: no block") == 1


def test_tensors_of_all_kinds_are_watched_and_count_for_themselves(tmp_path):
    watched = Watched(tmp_path, [], ["-c", KINDS])
    ends = {block["name"]: (block["looks"], block["end"]["reason"]) for block in watched.report["blocks"]}
    assert ends["own"] == (3, "count reached") and ends["piece"] == (1, "count reached")
    assert ends["freed"][1] == "freed" and ends["grown"][1] in ("resized", "freed")
    assert ends["parameter"][1] == "removed"
    parameter = watched.report["blocks"][0]
    assert (parameter["name"], parameter["declared_changes"], parameter["corruptions"]) == ("parameter", 1, [])
    assert "'freed' is watched no longer: it was freed" in watched.said
    assert "'grown' is watched no longer: " in watched.said
    piece = next(block for block in watched.report["blocks"] if block["name"] == "piece")
    assert piece["size_bytes"] == 40


API = """
import torch, torch_npu, msmemscope, sys
sys.argv = ["stomps.py", "past_the_output", "--python"]
msmemscope.config(watch=WATCH, output=OUTPUT) if WATCH else msmemscope.config(output=OUTPUT)
msmemscope.start()
exec(open(STOMPS).read().replace('if __name__ == "__main__":', "if True:"))
msmemscope.stop()
"""


@pytest.mark.parametrize("watch", ["", "full,sigmoid_", "auto"])
def test_the_api_watches_without_the_command_line(tmp_path, watch):
    values = {"WATCH": watch, "OUTPUT": str(tmp_path / "output"), "STOMPS": str(STOMPS)}
    code = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + API
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "ASCEND_LAUNCH_BLOCKING": "1"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    report = subprocess.run(
        [PROGRAM, "watch-report", "--json", tmp_path / "output"], capture_output=True, text=True, check=True
    )
    (process,) = json.loads(report.stdout)["processes"]
    found = [corruption for block in process["watch"]["blocks"] for corruption in block["corruptions"]]
    found += (process["watch"]["hunt"] or {}).get("corruptions") or []
    assert found and {corruption["operator"] for corruption in found} == {"torch._ops.stomp.spill.default"}


SWITCHED_OFF = """
import torch, torch_npu, msmemscope
msmemscope.config(watch="full,sigmoid_", output=OUTPUT)
msmemscope.start()
block = torch.full((64,), 2.0, device="npu")
block.exp()
msmemscope.stop(finish=False)
msmemscope.config(watch="")
msmemscope.start()
block.cos()
named = torch.ones(64, device="npu")
msmemscope.watcher.watch(named, name="named")
named.sin()
msmemscope.stop()
"""


def test_watching_is_switched_off_by_an_empty_value_and_lies_where_the_manual_says(tmp_path):
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "ASCEND_LAUNCH_BLOCKING": "1"}
    code = f"OUTPUT = {str(tmp_path / 'output')!r}\n" + SWITCHED_OFF
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "can only be set once" not in result.stderr
    (link,) = (tmp_path / "output" / "watch_dump").iterdir()
    assert link.name.endswith("_ascend_device_0")
    (path,) = link.glob("watch_dump_data_check_sum_0_*.csv")
    looks = [row.split("torch._ops.aten.", 1)[1] for row in path.read_text().splitlines()[1:] if "aten" in row]
    assert any(look.startswith("exp.default_1-torch._ops.aten.full.default") for look in looks)
    assert not any(look.startswith("cos") for look in looks), "nothing is watched then"
    assert any(look.startswith("sin.default_1-named") for look in looks), "except for what was named"
    assert not any(look.startswith("sin.default_1-torch") for look in looks)


def test_nothing_watched_is_said(tmp_path):
    environment = {**os.environ}
    command = [PROGRAM, "-o", tmp_path / "output", "--", sys.executable, "-c", "import torch; torch.ones(3).npu()"]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    report = subprocess.run([PROGRAM, "watch-report", tmp_path / "output"], capture_output=True, text=True)
    assert report.returncode == 0 and report.stdout.startswith("No memory was watched here")
    missing = subprocess.run([PROGRAM, "watch-report", tmp_path / "nowhere"], capture_output=True, text=True)
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1
