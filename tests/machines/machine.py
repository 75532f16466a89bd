"""Another Linux in a directory, with the tool installed in it: runs commands there and reads what they leave.

``make test-aarch64`` and ``make test-old-glibc`` prepare one and say by variables where it is: ``MACHINE_ROOT`` the
directory, ``MACHINE_ENVIRONMENT`` a virtual environment in it that has the wheel, ``MACHINE_STANDIN`` a stand-in device
for it, ``MACHINE_COMPILER`` the words that start a C compiler for it, ``MACHINE_ARCHITECTURE`` its processor.
The checkout has the same name inside and outside, so files need no translation; tests run outside, where nothing is
emulated.
"""

import contextlib
import csv
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/torch"))
from truth import read_file  # noqa: E402

PLACE = os.environ["MACHINE_ROOT"]
ENVIRONMENT = os.environ["MACHINE_ENVIRONMENT"]
STANDIN = Path(os.environ["MACHINE_STANDIN"])
COMPILER = shlex.split(os.environ["MACHINE_COMPILER"])
#: Whether an emulator runs what is inside.
IS_EMULATED = os.environ["MACHINE_ARCHITECTURE"] != os.uname().machine
PROGRAM = f"{ENVIRONMENT}/bin/msmemscope"
PYTHON = f"{ENVIRONMENT}/bin/python"
#: Emulated programs are slow; whatever takes longer than this hangs.
TIME_LIMIT_SECONDS = int(os.environ.get("MACHINE_TIME_LIMIT_SECONDS", "300"))


def start(command, *, directory=None, **variables):
    """Starts a command inside; its process is the command itself."""
    environment = {
        "PATH": f"{ENVIRONMENT}/bin:/usr/bin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": str(STANDIN / "lib64"),
        "ASCEND_HOME_PATH": str(STANDIN),
        "STANDIN_ADDRESS_BYTES": "4G",
        **({"STANDIN_LOG": str(log_of(directory))} if directory else {}),
        **variables,
    }
    words = [f"{name}={value}" for name, value in environment.items()]
    inside = [ROOT / "scripts/inside-root", PLACE, "/usr/bin/env", "-i", *words, *map(str, command)]
    return subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Finished:
    """How a command ended and what it said."""

    def __init__(self, process):
        try:
            self.stdout, self.stderr = process.communicate(timeout=TIME_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            self.stdout, self.stderr = process.communicate()
            raise AssertionError(f"no end after {TIME_LIMIT_SECONDS} s:\n{self.stdout}\n{self.stderr}") from None
        self.status = process.returncode


def run(command, *, status=0, **settings):
    """Runs a command inside; see :func:`start`."""
    finished = Finished(start(command, **settings))
    assert finished.status == status, f"exit status {finished.status}\n{finished.stdout}\n{finished.stderr}"
    return finished


def record(directory, command, *options, **settings):
    """Runs a command under the tool; results go to ``output`` in the directory, the device's own log to ``log``."""
    return run(recording(directory, command, *options), directory=directory, **settings)


def recording(directory, command, *options):
    """The words that record a command."""
    log_of(directory).mkdir(parents=True, exist_ok=True)
    return [PROGRAM, f"--output={directory / 'output'}", *options, "--", *command]


def compile_program(source, destination, *libraries, flags=("-O1",)):
    """Builds a C program of the tests for the machine; sources are shown as they are named from the checkout."""
    words = [*COMPILER, "-g", *flags, "-pthread", f"-ffile-prefix-map={ROOT}/=", f"-I{STANDIN / 'include'}", source]
    words += [f"-L{STANDIN / 'lib64'}", *(f"-l{name}" for name in libraries), "-ldl", "-o", destination]
    subprocess.run(words, check=True, timeout=TIME_LIMIT_SECONDS)
    return destination


def log_of(directory):
    """Where the device writes down what it did."""
    return Path(directory) / "log"


def children(process):
    """Processes that a process has started and that live."""
    try:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(word) for word in text.split()]


def kill(process_id):
    """Ends a process that a test has started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


# What the device says


def truth(directory):
    """All that the device did, in order. A process that is killed at its first call leaves a file without a header."""
    entries = []
    for path in log_of(directory).glob("*.truth"):
        with path.open("rb") as file:
            if file.read(8) != b"STANDIN1":
                continue
        entries.extend(read_file(path))
    return sorted(entries, key=lambda entry: entry.sequence)


def true_calls(entries, process_id):
    """Calls on memory of the driver that one process has made: (event, address, size) by thread, in order."""
    calls, sizes = defaultdict(list), {}
    for entry in entries:
        if entry.process != process_id or entry.result != 0 or entry.kind not in ("alloc", "free"):
            continue
        if entry.kind == "alloc":
            sizes[entry.address] = entry.size
        event = "MALLOC" if entry.kind == "alloc" else "FREE"
        calls[entry.thread].append((event, entry.address, sizes[entry.address]))
    return dict(calls)


# What the tool says


def attributes(row):
    """Attributes of a row."""
    return dict(re.findall(r"(\w+):([^,}]*)", row["Attr"]))


class Recorded:
    """The directory of one process's results."""

    def __init__(self, path):
        self.path = path
        self.process_id = int(re.search(r"_(\d+)_\d+_ascend$", path.name)[1])

    def is_finished(self):
        """Whether its results are written."""
        return (self.path / ".finished").exists()

    def rows(self):
        """Rows of all cards in the order of time."""
        rows = []
        for path in self.path.glob("device_*/dump/*.csv"):
            with path.open(newline="") as file:
                rows.extend(csv.DictReader(file))
        return sorted(rows, key=lambda row: (int(row["Timestamp(ns)"]), int(row["ID"])))

    def calls(self):
        """The same as :func:`true_calls`, without the frees that were added at the end."""
        calls = defaultdict(list)
        for row in self.rows():
            if row["Event Type"] == "HAL" and "shadow" not in attributes(row):
                call = (row["Event"], int(row["Ptr"], 16), int(attributes(row)["size"]))
                calls[int(row["Thread Id"])].append(call)
        return dict(calls)


def recordings(directory):
    """Everything that was recorded into the directory of a test."""
    return [Recorded(path) for path in sorted((directory / "output").glob("*_ascend"))]


def assert_nothing_lost(recorded, happened, may_be_inside_a_call):
    """Holds calls by thread against the truth; a thread that was killed may have been inside one."""
    for thread in recorded.keys() | happened.keys():
        written, true = recorded.get(thread, []), happened.get(thread, [])
        common = min(len(written), len(true))
        assert written[:common] == true[:common]
        assert abs(len(written) - len(true)) <= may_be_inside_a_call, f"{len(written)} recorded, {len(true)} happened"
