"""The examples run on the device, and train exactly as they do on the CPU."""

import os
import re
import subprocess
import sys

import pytest
from programs import EXAMPLES, IS_OLD, OUT_OF_MEMORY, run_example
from test_findings import PROGRAM

TRAINING = [
    ("mlp.py", "--optimizer", "sgd"),
    ("mlp.py", "--optimizer", "adam"),
    ("mlp.py", "--optimizer", "adamw"),
    ("cnn.py",),
    ("gpt.py",),
]


def losses(output):
    return [float(loss) for loss in re.findall(r"loss (\S+)", output)]


@pytest.mark.parametrize("arguments", TRAINING, ids=" ".join)
def test_training_equals_the_cpu(arguments):
    device, entries = run_example(*arguments, "--steps", "8")
    cpu, nothing = run_example(*arguments, "--steps", "8", "--device", "cpu")
    assert losses(device) == pytest.approx(losses(cpu), abs=5e-5)
    assert losses(device)[-1] < losses(device)[0]
    assert any(entry.kind == "alloc" for entry in entries)
    assert not any(entry.kind == "alloc" for entry in nothing)


def test_training_is_the_same_without_asynchrony():
    first, _ = run_example("gpt.py", "--steps", "4")
    second, _ = run_example("gpt.py", "--steps", "4", ASCEND_LAUNCH_BLOCKING="1")
    assert losses(first) == losses(second)


def test_mixed_precision_and_dropout_learn():
    output, entries = run_example("gpt.py", "--steps", "8", "--amp", "--dropout", "0.1")
    assert losses(output)[-1] < losses(output)[0] - 0.3
    operators = {entry.text for entry in entries if entry.kind == "operator"}
    assert {"aclnnForeachNonFiniteCheckAndUnscale", "aclnnAmpUpdateScale", "aclnnDropoutDoMask"} <= operators


def test_inference_generates_what_the_cpu_generates():
    device, _ = run_example("inference.py", "--steps", "20")
    cpu, _ = run_example("inference.py", "--steps", "20", "--device", "cpu")
    assert device == cpu


def test_out_of_memory_is_an_exception_and_the_program_goes_on():
    output, entries = run_example("out_of_memory.py", STANDIN_MEMORY_BYTES="2G")
    assert f"{OUT_OF_MEMORY}: NPU out of memory" in output
    assert "blocks 7 " in output
    refused = [entry for entry in entries if entry.kind == "alloc" and entry.result == 6]
    assert refused and all(entry.size > 256 << 20 for entry in refused)


def test_expandable_segments_map_physical_memory():
    output, entries = run_example("expandable_segments.py")
    assert output.rstrip().endswith("reserved 0")
    created = [entry for entry in entries if entry.kind == "create"]
    assert {entry.size for entry in created} == {20 << 20, 2 << 20} or {entry.size for entry in created} == {20 << 20}
    for kind, opposite in (("create", "release"), ("map", "unmap")):
        count = {name: sum(entry.kind == name and entry.result == 0 for entry in entries) for name in (kind, opposite)}
        assert count[kind] == count[opposite] > 0


@pytest.mark.skipif(IS_OLD, reason="modules and operators of old releases are seen in another way")
def test_the_first_example_of_readme_prints_what_readme_shows(tmp_path):
    readme = (EXAMPLES.parent / "README.md").read_text()
    (block,) = re.findall(
        r"^```\n\$ msmemscope -- python (examples/train\.py\n.*?)^```$", readme, re.MULTILINE | re.DOTALL
    )
    script, *shown = block.splitlines()
    source = (EXAMPLES / "train.py").read_text()
    assert "msmemscope" not in source, "an unmodified script"
    (loop,) = re.findall(r"^```python\n(for batch .*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert source.endswith(loop)
    (tmp_path / "cards").mkdir()
    environment = {**os.environ, "STANDIN_RUN_DIR": str(tmp_path / "cards"), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    command = [PROGRAM, "-o", tmp_path / "output", "--", sys.executable, script]
    finished = subprocess.run(command, env=environment, cwd=EXAMPLES.parent, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    printed = [line.rstrip() for line in finished.stderr.splitlines() if not re.match(r"\[\w", line)]
    start = next(number for number, line in enumerate(printed) if line.startswith("Leak: "))
    assert [line for line in shown if line] == [line for line in printed[start:] if line][: sum(map(bool, shown))]
