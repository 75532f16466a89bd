"""Runs programs on the stand-in device and reads what was recorded about them. Also used by the tests with PyTorch."""

from __future__ import annotations

import csv
import os
import re
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
STANDIN = Path(os.environ.get("STANDIN_HOME", ROOT / "target" / "standin"))
PROGRAM = PACKAGE / "msmemscope" / "bin" / "msmemscope.bin"
LIBRARIES = PACKAGE / "msmemscope" / "lib64"

#: Longer than anything here takes, even on a busy machine.
TIME_LIMIT_SECONDS = 600


class Row(dict):
    """A row of a result file, with the attributes taken apart."""

    @property
    def attributes(self):
        return dict(re.findall(r"(\w+):((?:\[[^\]]*\]|[^,{}\[(]|\([^)]*\))*)", self["Attr"].strip("{}")))


class Run:
    """One program that ran, and everything it left."""

    def __init__(self, directory: Path, completed: subprocess.CompletedProcess):
        self.directory = directory
        self.status = completed.returncode
        self.stdout = completed.stdout
        self.stderr = completed.stderr

    @property
    def output(self) -> Path:
        return self.directory / "out"

    def files(self, pattern: str):
        return sorted(self.output.rglob(pattern))

    def rows(self, event=None, kind=None):
        """Rows of all csv files, in time order."""
        rows = []
        for path in self.files("*_dump_*.csv"):
            with path.open(newline="") as file:
                rows.extend(Row(row) for row in csv.DictReader(file))
        rows = [row for row in rows if event in (None, row["Event"]) and kind in (None, row["Event Type"])]
        return sorted(rows, key=lambda row: (int(row["Timestamp(ns)"]), int(row["ID"])))

    def calls(self):
        """Names in the Python trace, in the order of their begins."""
        rows = []
        for path in self.files("python_trace_*.csv"):
            with path.open(newline="") as file:
                rows.extend(csv.DictReader(file))
        return [row["FuncInfo"] for row in sorted(rows, key=lambda row: int(row["StartTime(ns)"]))]

    def truth(self):
        """What the device itself logged: (kind, address, size, device) in order."""
        kinds = {1: "HalAlloc", 2: "HalFree", 3: "HalCreate", 4: "HalRelease"}
        records = []
        for path in (self.directory / "truth").glob("*.truth"):
            with path.open("rb") as file:  # sparse: only the front of it is used
                (lines,) = struct.unpack_from("<Q", file.read(64), 16)
                file.seek(0)
                data = file.read(lines * 64)
            for line in range(1, lines):
                kind, _, sequence, _, address, size, _, device, result = struct.unpack_from(
                    "<IIQQQQQii", data, line * 64
                )
                if kind in kinds and result == 0:
                    records.append((sequence, kinds[kind], address, size, device))
        return [record[1:] for record in sorted(records)]


def _older_program(directory: Path, name: str) -> str:
    """The program under another name, which it looks at."""
    link = directory / name
    link.symlink_to(PROGRAM)
    return str(link)


def run_program(
    directory: Path,
    code,
    *,
    mode="api",
    options=(),
    environment=None,
    python=sys.executable,
    check=True,
    as_module=False,
    files=None,
    program="msmemscope",
):
    """Runs Python code in a directory of its own, on the stand-in device; ``files`` lie beside it.

    Mode ``api`` has nothing preloaded, ``preload`` the documented libraries, ``cli`` the program in front.
    """
    (directory / "truth").mkdir(parents=True)
    script = directory / "script.py"
    script.write_text(textwrap.dedent(code))
    for name, text in (files or {}).items():
        (directory / name).write_text(textwrap.dedent(text))
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("MSMEMSCOPE", "LD_PRELOAD"))}
    search = (str(PACKAGE), str(Path(__file__).parent), str(STANDIN / "python"))
    variables.update(
        LD_LIBRARY_PATH=str(STANDIN / "lib64"),
        ASCEND_HOME_PATH=str(STANDIN),
        ASCEND_OPP_PATH=str(STANDIN / "opp"),
        PYTHONPATH=os.pathsep.join(search),
        PYTHONDONTWRITEBYTECODE="1",
        STANDIN_LOG=str(directory / "truth"),
        **(environment or {}),
    )
    command = [python, "-m", "script"] if as_module else [python, str(script)]
    if mode == "preload":
        names = ("atb_abi_1", "atb_abi_0", "ascend_kernel", "ascend_mstx", "leaks_ascend_hal")
        variables["LD_PRELOAD"] = ":".join(str(LIBRARIES / f"lib{name}_hook.so") for name in names)
    elif mode == "cli":
        command = [str(PROGRAM), f"--output={directory / 'out'}", *options, "--", *command]
        command[0] = str(PROGRAM) if program == "msmemscope" else _older_program(directory, program)
    completed = subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS
    )
    result = Run(directory, completed)
    if check:
        assert result.status == 0, f"{result.stdout}\n{result.stderr}"
    return result


#: Runs pytest with our plugin, which is not installed here.
PYTEST = """
    import sys
    import pytest
    status = pytest.main(["-p", "msmemscope_pytest", "-p", "no:cacheprovider", "-q", "-rA", *{arguments!r}])
    print("imported", "msmemscope" in sys.modules)
    sys.exit(status)
"""


def run_pytest(directory: Path, tests, *arguments, **settings):
    """Runs tests in a directory, with the plugin of the package; see :func:`run_program`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "test_it.py").write_text(textwrap.dedent(tests))
    code = PYTEST.format(arguments=[str(directory / "test_it.py"), f"--rootdir={directory}", *arguments])
    return run_program(directory / "run", code, check=False, **settings)
