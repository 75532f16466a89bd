"""The hooks against the real frameworks (`make test-frameworks`): every function exists, owners and steps are right."""

import importlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import msmemscope  # noqa: F401 - before torch, as users do
from msmemscope.frameworks import FRAMEWORKS, versions
from msmemscope.hijacker.manager import _plain_class

HERE = Path(__file__).resolve().parent
PROGRAM = Path(os.environ.get("MSMEMSCOPE", HERE.parents[1] / "target/release/msmemscope"))
#: Nothing is downloaded.
SETTINGS = {"HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "npu", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
#: Not installed here: the first is on no package index, the second needs an engine of its own. See docs/frameworks.md.
NOT_INSTALLABLE = {"mindspeed_llm", "vllm_ascend"}


@pytest.mark.parametrize("name", sorted(set(FRAMEWORKS) - NOT_INSTALLABLE))
def test_every_function_that_is_hooked_exists_in_the_installed_version(name):
    framework = FRAMEWORKS[name]
    version = framework.version()
    fitting = [key for key in framework.versions if versions.matches(key, version)]
    assert fitting, f"{name} {version} is not known"
    missing = []
    for key in fitting:
        for kinds in framework.versions[key].values():
            for target in (target for targets in kinds.values() for target in targets):
                holder = importlib.import_module(target.module)
                if target.class_name is not None:
                    holder = _plain_class(getattr(holder, target.class_name, None))
                if not callable(getattr(holder, target.function, None)):
                    missing.append(target.key)
    assert not missing


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(tmp_path, job, *options):
    """What a job printed without the tool and with it, and what the tool said."""
    (tmp_path / "cards").mkdir()
    environment = {**os.environ, **SETTINGS, "STANDIN_RUN_DIR": str(tmp_path / "cards")}
    environment.pop("LD_PRELOAD", None)
    results = []
    for front in ([], [PROGRAM, *options, "-o", tmp_path / "output", "--"]):
        environment["MASTER_PORT"] = str(free_port())
        command = [*front, sys.executable, str(HERE / "jobs.py"), job]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        results.append(result)
    plain, recorded = results
    losses = [re.search(r"^losses (.*)$", result.stdout, re.MULTILINE)[1] for result in (plain, recorded)]
    assert losses[0] == losses[1], "the tool must not change what is computed"
    return recorded


def owners(tmp_path):
    """Owners of all blocks of PyTorch's pool, with how many bytes each had in all."""
    found = {}
    for path in (tmp_path / "output").glob("*/device_0/dump/memscope_dump_*.csv"):
        for line in path.read_text().splitlines():
            if ",MALLOC,PTA," in line:
                owner, size = re.search(r"owner:([^,}\"]*)", line), re.search(r"size:(\d+)", line)
                found[owner[1]] = found.get(owner[1], 0) + int(size[1])
    return found


@pytest.mark.parametrize(
    ("job", "owner"),
    [
        ("trainer", "hf_trainer@evaluate"),
        ("accelerate", None),  # alone, it has nobody to gather from
        ("zero0", None),
        ("zero2", "deepspeed@"),
        ("zero3", "deepspeed@"),
        ("megatron", "megatron@"),
    ],
)
def test_a_job_has_the_owners_and_steps_of_its_framework(tmp_path, job, owner):
    result = run(tmp_path, job, "--analysis=leaks,decompose")
    said = " ".join(result.stderr.split())
    found = owners(tmp_path)
    if owner is not None:
        assert any(owner in each for each in found), found
    if job != "accelerate":  # which has no loop of its own
        assert "each of the 6 steps ends with a step of the framework" in said, said
    assert "is not known: its memory" not in said, said
