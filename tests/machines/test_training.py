"""A training with the real torch_npu on another machine, recorded exactly."""

import os
import re
from collections import defaultdict

import pytest
from machine import PYTHON, ROOT, STANDIN, attributes, record, recordings, truth

pytestmark = pytest.mark.skipif("MACHINE_TORCH" not in os.environ, reason="this machine has no torch_npu")

POOL = {"region_register": "MALLOC", "region_unregister": "FREE"}
DRIVER = {"alloc": "MALLOC", "free": "FREE", "create": "MALLOC", "release": "FREE"}


def told(rows, event_type):
    """Sizes given and freed by address, in order."""
    history = defaultdict(list)
    for row in rows:
        if row["Event"] in ("MALLOC", "FREE") and row["Event Type"] == event_type and "shadow" not in attributes(row):
            history[int(row["Ptr"], 16)].append((row["Event"], int(attributes(row)["size"])))
    return dict(history)


def happened(entries, names):
    """The same as the device has logged it."""
    history, sizes = defaultdict(list), {}
    for entry in entries:
        if entry.result == 0 and entry.kind in names:
            if names[entry.kind] == "MALLOC":
                sizes[entry.address] = entry.size
            history[entry.address].append((names[entry.kind], sizes[entry.address]))
    return dict(history)


def test_a_training_is_recorded_exactly_and_its_leak_found(place, show):
    finished = record(
        place,
        [PYTHON, ROOT / "examples/gpt.py", "--leak", "--steps=5"],
        "--call-stack=c:8,python:8",
        PYTHONPATH=str(STANDIN / "python"),
        ASCEND_OPP_PATH=str(STANDIN / "opp"),
        ATB_HOME_PATH=str(STANDIN / "atb/cxx_abi_1"),
        LD_LIBRARY_PATH=f"{STANDIN / 'lib64'}:{STANDIN / 'atb/cxx_abi_1/lib'}",
        STANDIN_UNKNOWN_OPERATORS="error",
        TORCH_CPP_LOG_LEVEL="ERROR",
        OMP_NUM_THREADS="1",
    )
    said = finished.stdout + finished.stderr
    losses = [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", said)]
    assert len(losses) == 5 and losses[-1] < losses[0]
    (recorded,) = recordings(place)
    rows, entries = recorded.rows(), truth(place)
    on_device = [entry for entry in entries if entry.device == 0 or entry.library == "ms_tools_ext"]
    assert told(rows, "HAL") == happened(on_device, DRIVER) != {}
    assert told(rows, "PTA") == happened(on_device, POOL) != {}
    assert "Leak: " in said and "'kept'" in said, said
    show(f"{len(rows)} events, losses {losses}")
    show(next(line for line in said.splitlines() if line.startswith("Leak: ")))
