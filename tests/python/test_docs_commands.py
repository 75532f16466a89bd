"""What README and the guides tell readers to type is typed here, as it stands on the page.

Every page gets a directory with the files it speaks of: scripts that train on the stand-in device, recordings of
them, dumps. Its blocks of shell commands run there one after the other, in one shell. What cannot run on any machine,
or takes a framework, is listed with who runs it instead.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import LIBRARIES, PROGRAM, ROOT, STANDIN, TIME_LIMIT_SECONDS
from test_docs import FENCE, PAGES, page_id

#: Commands that are not run here, with the reason or who runs them.
ELSEWHERE = {
    r"^make |^cargo build": "the doors themselves, one of which this test is behind",
    r"pip install|msmemscope-0\.2\.0-x86_64\.run|msmemscope/set_env\.sh": "scripts/test-wheel, scripts/test-installer",
    r"ascend-toolkit/set_env\.sh|^sudo |^rsync |<install path>": "needs CANN, root, another machine or its own path",
    r"mpirun": "there is none here; tests/torch/test_ranks.py starts its ranks by hand",
    r"FillScalar|token0/": "tests/torch/test_kernels.py, tests/python/test_atb.py",
    r"--level=op,kernel --data-format=csv": "tests/torch/test_kernels.py",
    r"^msmemscope ctl |; msmemscope ctl ": "needs a job that runs: crates/front/cli/tests/suite/controlling.rs",
    r"target/demo": "scripts/demo, with tests/python/test_readme.py",
    r"tests/frameworks": "make test-frameworks",
}
#: Commands that take the real torch_npu: tests/torch/test_pages.py types them.
WITH_TORCH = r"torchrun|torch-venv/bin/python|examples/|aten::"
#: Whole scripts that are not run: jobs of schedulers and containers.
FOREIGN_SCRIPTS = re.compile(r"^#!/bin/bash|^docker run", re.MULTILINE)
#: Paths of a reader's machine, and their places in the directory of a page.
PLACES = {"/shared/": "shared/", "/tmp/results": "results", "/home/me/": "home/", "[options] ": ""}
#: Exit statuses that are no failure: a check of a leaking job, a doctor on a machine without a card.
STATUSES = {"check": {0, 1, 3}, "doctor": {0, 1}}

#: Directories with a dump of steps, operators and kernels in them.
DIRECTORIES_OF_DUMPS = ("path1", "path2", "base", "other")
TRAINING = """\
import msmemscope
import small_framework as framework

framework.begin()
pool = framework.Pool()
kept = []
for _ in range(10):
    kept.append(pool.block(4096))
    pool.release(pool.block(512))
    framework.mark("my mark")
    msmemscope.step()
framework.end()
"""
COLUMNS = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr"


def dump():
    """A csv file of ten steps with an operator, its kernel and a block each."""
    rows = []
    for step in range(10):
        rows += [
            ("MSTX", "Range_start", "step start", "N/A", ""),
            ("OP_LAUNCH", "ATEN_START", "add", "N/A", ""),
            ("KERNEL_LAUNCH", "KERNEL_LAUNCH", "add_kernel", "N/A", ""),
            ("MALLOC", "PTA", "N/A", "0x1000", f"{{allocation_id:{step + 1},size:512}}"),
            ("OP_LAUNCH", "ATEN_END", "add", "N/A", ""),
            ("FREE", "PTA", "N/A", "0x1000", f"{{allocation_id:{step + 1},size:512}}"),
            ("MSTX", "Range_end", "step start", "N/A", ""),
        ]
    lines = [
        f'{number},{event},{kind},{name},{1000 + number * 10},7,7,0,{address},"{attributes}"'
        for number, (event, kind, name, address, attributes) in enumerate(rows, 1)
    ]
    return "\n".join([COLUMNS, *lines, ""])


def blocks(page):
    """The page's blocks of shell commands, each as a list of commands; of a session those behind a `$`."""
    for language, block in FENCE.findall(page.read_text()):
        is_session = not language
        if (is_session or language in ("sh", "bash")) and not FOREIGN_SCRIPTS.search(block):
            lines = block.replace("\\\n", " ").splitlines()
            if is_session:
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            commands = [re.sub(r"(^|\s)# .*", "", line).strip() for line in lines]
            yield [command for command in commands if command]


def typed(command):
    """A command as it is typed here."""
    for path, place in PLACES.items():
        command = command.replace(path, place)
    if re.search(r"\bmsmemscope view\b", command):
        # It serves until somebody has seen enough.
        command = f"timeout --preserve-status --signal=INT 3 {command} --no-browser"
    if not shutil.which("man"):
        command = command.replace("| man -l -", ">/dev/null")
    return command


def runs_here(command):
    return not any(re.search(pattern, command) for pattern in (*ELSEWHERE, WITH_TORCH))


PAGES_WITH_COMMANDS = [page for page in PAGES if any(map(runs_here, sum(blocks(page), [])))]


class Shell:
    """A reader's shell on the stand-in device."""

    def __init__(self, directory, programs):
        self.directory = directory
        self.environment = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(directory / "home"),
            "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": str(STANDIN / "lib64"),
            "ASCEND_HOME_PATH": str(STANDIN),
            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests' / 'python'}",
        }

    def run(self, commands):
        """Runs commands one after the other; returns the exit status of each, and what they said."""
        notes = self.directory / "statuses"
        script = "".join(f"{command}\necho $? >>'{notes}'\n" for command in commands)
        completed = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_SECONDS,
        )
        statuses = [int(line) for line in notes.read_text().split()]
        return statuses, completed.stdout.decode(errors="replace")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """An installation as the documents describe it: the launcher, the program and the libraries."""
    home = tmp_path_factory.mktemp("installed")
    (home / "bin").mkdir()
    (home / "lib64").symlink_to(LIBRARIES)
    for name in ("msmemscope", "msleaks"):
        shutil.copy(ROOT / "packaging" / "msmemscope", home / "bin" / name)
    (home / "bin" / "msmemscope.bin").symlink_to(PROGRAM)
    return home / "bin"


@pytest.fixture(scope="module")
def scene(tmp_path_factory, programs):
    """The files that pages speak of."""
    directory = tmp_path_factory.mktemp("scene")
    dumps = ("a.csv", "b.csv", "dump.csv", *(f"{place}/memscope_dump_1.csv" for place in DIRECTORIES_OF_DUMPS))
    for place in ("home/.config/fish/completions", "shared", *DIRECTORIES_OF_DUMPS):
        (directory / place).mkdir(parents=True)
    for name in ("train.py", "serve.py"):
        (directory / name).write_text(TRAINING)
    (directory / "train.sh").write_text("python train.py\n")
    for name in dumps:
        (directory / name).write_text(dump())
    commands = [
        "msmemscope --quiet --events=alloc,free,launch --output=results -- python train.py",
        "cp -r results memscopeDumpResults",
        "cp -r results shared/run17",
        "mkdir memscopeDumpResults/flight && cp -r results/msmemscope_*_ascend memscopeDumpResults/flight/1-oom",
        "mv base other results",
    ]
    statuses, said = Shell(directory, programs).run(commands)
    assert statuses == [0] * len(commands), said
    (directory / "statuses").unlink()
    return directory


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=page_id)
def test_what_a_page_says_can_be_typed(page, scene, programs, tmp_path):
    directory = tmp_path / "reader"
    shutil.copytree(scene, directory, symlinks=True)
    commands = [command for command in sum(blocks(page), []) if runs_here(command)]
    statuses, said = Shell(directory, programs).run(map(typed, commands))
    failed = [
        f"{command}: {status}"
        for command, status in zip(commands, statuses)
        if status not in next((allowed for word, allowed in STATUSES.items() if f" {word} " in command), {0})
    ]
    assert not failed and len(statuses) == len(commands), said


def test_a_command_that_fails_is_found(scene, programs, tmp_path):
    directory = tmp_path / "reader"
    shutil.copytree(scene, directory, symlinks=True)
    statuses, said = Shell(directory, programs).run(["msmemscope analyze nowhere", "msmemscope --version"])
    assert statuses == [2, 0], said


def test_every_reason_is_needed():
    commands = [command for page in PAGES for command in sum(blocks(page), [])]
    assert [pattern for pattern in ELSEWHERE if not any(re.search(pattern, command) for command in commands)] == []
