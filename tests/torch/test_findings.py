"""Programs with planted faults: each fault is found, at the right line, and its corrected twin gives no finding."""

import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from programs import IS_OLD

FAULTS = Path(__file__).resolve().parent / "faults"
PROGRAM = Path(os.environ.get("MSMEMSCOPE", Path(__file__).resolve().parents[2] / "target/release/msmemscope"))
GIBIBYTE = 1 << 30


class Run:
    """A finished run under the tool."""

    def __init__(self, result, output):
        self.output, self.report, self.status = result.stdout, result.stderr, result.returncode
        self.directory = output

    def analyze(self, *options):
        command = [PROGRAM, "analyze", self.directory, "--json", *options]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        processes = json.loads(result.stdout)["processes"]
        assert len(processes) == 1
        return processes[0]

    def rows(self, device="device_0"):
        rows = []
        for path in self.directory.glob(f"*/{device}/dump/memscope_dump_*.csv"):
            with open(path, newline="") as file:
                rows.extend(csv.DictReader(file))
        return rows

    def database_rows(self, device="device_0"):
        rows = []
        for path in self.directory.glob(f"*/{device}/dump/memscope_dump_*.db"):
            with sqlite3.connect(path) as connection:
                connection.row_factory = sqlite3.Row
                rows.extend(map(dict, connection.execute("SELECT * FROM memscope_dump")))
        return rows


def run(directory, program, *arguments, options=(), succeeds=True, **variables):
    output = directory / "output"
    environment = {**os.environ, "STANDIN_RUN_DIR": str(directory / "cards"), **variables}
    (directory / "cards").mkdir()
    command = [PROGRAM, "-o", output, *options, "--", sys.executable, str(FAULTS / program), *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not succeeds or result.returncode == 0, result.stdout + result.stderr
    return Run(result, output)


def lines(program, mark):
    """Numbers of the lines of a program that carry a mark."""
    text = (FAULTS / program).read_text().splitlines()
    found = {number for number, line in enumerate(text, 1) if f"# {mark}" in line}
    assert found, mark
    return found


def line_of(site, program):
    """The innermost line of a program in the Python frames of a site."""
    return next((frame["line"] for frame in site["python"] if frame["file"].endswith("/" + program)), None)


def leaks(answers):
    return answers["leaks"]["leaks"] + answers["leaks"]["after_finalize"]


LEAKS = ["list_leak.py", "closure_leak.py", "graph_leak.py", "driver_leak.py", "driver_leak_without_steps.py"]
POOLS = dict.fromkeys(LEAKS, "PTA") | {"driver_leak.py": "HAL", "driver_leak_without_steps.py": "HAL"}


@pytest.mark.parametrize("program", LEAKS)
def test_a_leak_is_found_at_its_line(tmp_path, program):
    finished = run(tmp_path, program)
    found = leaks(finished.analyze("--analysis=leaks"))
    assert {line_of(leak["site"], program) for leak in found} == lines(program, "FAULT")
    assert {leak["pool"] for leak in found} == {POOLS[program]}
    assert "\nLeak: " in finished.report
    largest = found[0]["site"]["line"].split()[0]
    assert f"{Path(largest.rsplit(':')[0]).name}:{largest.rsplit(':')[1]}" in finished.report
    if "without_steps" not in program:
        # Nine steps; the first does not count, and the last has not seen another one end. Where the first step
        # brings the device up it does not belong to it yet.
        assert all(leak["steps"] in (6, 7) for leak in found)


@pytest.mark.parametrize("program", LEAKS)
def test_the_corrected_program_leaks_nothing(tmp_path, program):
    finished = run(tmp_path, program, "clean")
    answers = finished.analyze("--analysis=leaks")
    assert leaks(answers) == []
    assert answers["leaks"]["retained_once"] == []
    assert "Leak: " not in finished.report and "No leaks found" in finished.report


def test_pools_of_other_frameworks_leak_at_their_lines(tmp_path):
    answers = run(tmp_path, "pool_leak.py").analyze("--analysis=leaks")
    found = {leak["pool"]: leak for leak in leaks(answers)}
    assert set(found) == {"ATB", "MINDSPORE"}
    for pool, size in [("ATB", 1 << 20), ("MINDSPORE", 2 << 20)]:
        leak = found[pool]
        assert {line_of(leak["site"], "pool_leak.py")} != {None}
        called_at = {frame["line"] for frame in leak["site"]["python"] if frame["function"] == "<module>"}
        assert called_at == lines("pool_leak.py", f"FAULT: {pool}")
        assert (leak["count"], leak["bytes"], leak["bytes_per_step"]) == (7, 7 * size, size)


def test_corrected_pools_leak_nothing(tmp_path):
    answers = run(tmp_path, "pool_leak.py", "clean").analyze("--analysis=leaks")
    assert leaks(answers) == [] and answers["leaks"]["retained_once"] == []


@pytest.mark.parametrize("variant", [(), ("clean",)], ids=["faulty", "clean"])
def test_fluctuation_is_what_the_framework_counts(tmp_path, variant):
    finished = run(tmp_path, "fluctuation.py", *variant)
    (pool,) = [pool for pool in finished.analyze("--analysis=leaks")["fluctuation"] if pool["pool"] == "PTA"]
    ratios = {step: least / most for step, least, most in json.loads(finished.output) if step >= 2}
    smallest, largest = min(ratios, key=ratios.get), max(ratios.values())
    assert pool["steps"] == len(ratios)
    assert (pool["smallest"]["step"], pool["smallest"]["ratio"]) == (smallest, pytest.approx(ratios[smallest]))
    assert pool["largest"]["ratio"] == pytest.approx(largest)
    assert smallest == (2 if variant else 5)
    assert f"{ratios[smallest] * 100:.4f}" in finished.report


def leaks_between_marks(path):
    command = [PROGRAM, "analyze", path, "--json", "--marks=look here", "--mark-index=0"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (process,) = json.loads(result.stdout)["processes"]
    (device,) = [device for device in process["marks"]["devices"] if device["device"] == "0"]
    assert device["outcome"] == "complete" and device["marks"] == 3
    return device["leaks"]


def test_leaks_between_marks_are_the_same_in_all_files(tmp_path):
    finished = run(tmp_path, "marks.py", options=["--data-format=csv,db"])
    (csv_file,) = finished.directory.glob("*/device_0/dump/*.csv")
    (database,) = finished.directory.glob("*/device_0/dump/*.db")
    (recording,) = finished.directory.glob("msmemscope_*")
    found = leaks_between_marks(recording)
    by_pool = {leak["pool"]: leak for leak in found}
    # The segment that the pool took from the driver for the tensor is the pool's business.
    assert set(by_pool) == {"HAL", "PTA"} and len(found) == 2
    tensor, scratch = by_pool["PTA"], by_pool["HAL"]
    assert line_of(tensor["site"], "marks.py") in lines("marks.py", "FAULT: PTA")
    assert line_of(scratch["site"], "marks.py") in lines("marks.py", "FAULT: HAL")
    assert tensor["size_bytes"] >= 2_800_000 and scratch["size_bytes"] >= 3 << 20
    places = [(leak["pool"], leak["address"], leak["size_bytes"]) for leak in found]
    for path in (csv_file, database):
        content = path.read_bytes()
        assert [(leak["pool"], leak["address"], leak["size_bytes"]) for leak in leaks_between_marks(path)] == places
        assert path.read_bytes() == content


def test_no_leaks_between_marks_in_the_corrected_program(tmp_path):
    assert leaks_between_marks(run(tmp_path, "marks.py", "clean").directory) == []


INEFFICIENT = {
    "early": "early_allocation",
    "late": "late_deallocation",
    "idle": "temporary_idleness",
    "unused": "never_used",
}


@pytest.mark.parametrize("kind", INEFFICIENT)
def test_inefficient_use_is_found_at_its_lines(tmp_path, kind):
    finished = run(tmp_path, "inefficient.py", kind, options=["--analysis=inefficient"])
    report = finished.analyze("--analysis=inefficient", "--min-size=1MiB")["inefficient"]
    found = {finding["kind"]: finding for finding in report["findings"]}
    assert INEFFICIENT[kind] in found, report
    finding = found[INEFFICIENT[kind]]
    assert {line_of(finding["site"], "inefficient.py")} == lines("inefficient.py", f"FAULT: {kind}")
    assert finding["count"] == 1 and finding["largest_bytes"] >= 4_000_000
    if kind != "unused":
        (used,) = lines("inefficient.py", f"USE: {kind}")
        assert f"inefficient.py:{used} " in finding["use_line"]
    attributes = [row["Attr"] for row in finished.rows() if row["Event"] == "MALLOC" and "size:40" in row["Attr"]]
    flagged = [attribute for attribute in attributes if f"inefficient_type:{INEFFICIENT[kind]}" in attribute]
    assert len(flagged) == (0 if kind == "unused" else 1), attributes
    expected = {INEFFICIENT[kind]} | ({"late_deallocation"} if kind == "idle" else set())
    assert set(found) <= expected


def test_corrected_use_is_not_inefficient(tmp_path):
    finished = run(tmp_path, "inefficient.py", "clean", options=["--analysis=inefficient"])
    report = finished.analyze("--analysis=inefficient", "--min-size=1MiB")["inefficient"]
    assert report["accesses"] > 0
    assert report["findings"] == []


def attributes(row):
    return dict(re.findall(r'"?(\w+)"?:"?([^,}"]*)"?', row["Attr"]))


@pytest.mark.parametrize("verdict", ["demand", "growth", "fragmentation", "neighbour", "leak"])
def test_the_reason_why_memory_ran_out_is_said(tmp_path, verdict):
    finished = run(tmp_path, "out_of_memory.py", verdict, STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    assert "out of memory:" in finished.output, finished.report
    report = finished.analyze("--analysis=oom")["out_of_memory"]
    failure = report["details"][-1]
    assert failure["verdict"] == {"neighbour": "other_processes"}.get(verdict, verdict), failure["explanation"]
    assert not failure["recovered"] and failure["card"][1] == GIBIBYTE
    called_at = {frame["line"] for frame in failure["site"]["python"] if frame["file"].endswith("out_of_memory.py")}
    assert called_at & lines("out_of_memory.py", f"FAULT: {verdict}")
    assert "Out of memory on device 0" in finished.report
    assert failure["advice"]


@pytest.mark.parametrize("reason", ["demand", "growth", "fragmentation", "neighbour", "leak", "oversize", "limit"])
def test_enough_memory_gives_no_report(tmp_path, reason):
    finished = run(tmp_path, "out_of_memory.py", reason, "clean", STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    assert "out of memory" not in finished.output
    report = finished.analyze("--analysis=oom")["out_of_memory"]
    # A cache that is given back before a second try is worth a note.
    assert all(failure["recovered"] for failure in report["details"])
    assert "Out of memory" not in finished.report
    assert ("a later attempt got its memory" in " ".join(finished.report.split())) == bool(report["details"])
    refused = bool(report["details"])
    assert [row["Name"] for row in finished.rows() if row["Event"] == "SNAPSHOT"] == ["OOM_Snapshot"] * refused


def test_a_request_larger_than_the_card_is_told_with_its_line(tmp_path):
    finished = run(tmp_path, "out_of_memory.py", "oversize", STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    failure = finished.analyze("--analysis=oom")["out_of_memory"]["details"][-1]
    (line,) = lines("out_of_memory.py", "FAULT: oversize")
    assert failure["verdict"] == "demand"
    assert f"out_of_memory.py:{line}" in failure["advice"][0] and "2.0 GiB at once" in failure["advice"][0]
    assert len(failure["advice"]) == 1, "nothing else would help"


def test_a_limit_of_the_job_is_told_though_the_driver_refused_nothing(tmp_path):
    finished = run(tmp_path, "out_of_memory.py", "limit", STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    assert "out of memory:" in finished.output, finished.report
    report = finished.analyze("--analysis=oom")["out_of_memory"]
    assert (report["failures"], report["limit_failures"]) == (0, 1)
    assert report["details"][-1]["verdict"] == "own_limit"
    assert "Out of memory on device 0" in finished.report and "set_per_process_memory_fraction" in finished.report


def test_advice_fits_the_settings_of_the_job(tmp_path):
    finished = run(
        tmp_path,
        "out_of_memory.py",
        "fragmentation",
        STANDIN_MEMORY_BYTES=str(GIBIBYTE),
        PYTORCH_NPU_ALLOC_CONF="max_split_size_mb:200",
    )
    failure = finished.analyze("--analysis=oom")["out_of_memory"]["details"][-1]
    assert failure["verdict"] == "fragmentation"
    assert "now max_split_size_mb:200" in failure["advice"][0]


def test_what_was_alive_survives_the_abort(tmp_path):
    finished = run(
        tmp_path,
        "out_of_memory.py",
        "demand",
        "abort",
        options=["--analysis=oom:5", "--data-format=csv,db", "--call-stack=python"],
        succeeds=False,
        STANDIN_MEMORY_BYTES=str(GIBIBYTE),
    )
    assert finished.status != 0
    assert "Out of memory on device 0" in finished.report
    rows = [row for row in finished.rows() if row["Event"] == "OOM_DETAIL"]
    triggers = [row for row in rows if row["Event Type"] == "OOM_TRIGGER"]
    recent = [row for row in rows if row["Event Type"] == "OOM_RECENT_ALLOC"]
    largest = [row for row in rows if row["Event Type"] == "OOM_TOP_ALLOC"]
    assert triggers and len(recent) == len(largest) == 5
    assert {"func", "req_size", "flag"} <= set(attributes(triggers[-1]))
    times = [int(attributes(row)["timestamp"]) for row in recent]
    sizes = [int(attributes(row)["size"]) for row in largest]
    assert times == sorted(times, reverse=True) and sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 100 << 20
    assert all("out_of_memory.py" in row["Call Stack(Python)"] for row in recent + triggers)
    before = next(row for row in finished.rows() if row["Event"] == "SNAPSHOT")
    assert (before["Name"], before["Timestamp(ns)"]) == ("OOM_Snapshot", triggers[0]["Timestamp(ns)"])
    assert int(attributes(before)["reserved"]) >= 600 << 20, "from before the framework gave anything back"
    assert "out_of_memory.py" in before["Call Stack(Python)"]
    stored = finished.database_rows()
    columns = ["ID", "Event", "Event Type", "Name", "Timestamp(ns)", "Ptr"]
    shown = [[str(row[column]) for column in columns] for row in finished.rows()]
    assert [[str(row[column]) for column in columns] for row in stored] == shown
    assert [attributes(row) for row in stored if row["Event"] == "OOM_DETAIL"] == [attributes(row) for row in rows]


def owners(uses):
    return {use["owner"]: use["bytes"] for use in uses}


def test_owners_are_those_the_program_knows(tmp_path):
    options = ["--analysis=decompose", "--data-format=csv,db"]
    finished = run(tmp_path, "training.py", options=options, TASK_QUEUE_ENABLE="2", STANDIN_WORKSPACE_BYTES="4096")
    known = json.loads(finished.output.splitlines()[-1])
    allocated = known.pop("allocated")
    stated = {}
    for row in finished.rows():
        if row["Event"] == "MALLOC":
            stated[row["Event Type"], int(row["Ptr"], 16)] = attributes(row)["owner"]
    for owner, addresses in known.items():
        assert addresses, owner
        assert {stated["PTA", address] for address in addresses} == {owner}
    # Releases of torch_npu before 2.6 tell nobody about their workspaces.
    workspaces = set() if IS_OLD else {"PTA_WORKSPACE"}
    assert {owner for (pool, _), owner in stated.items() if pool == "PTA_WORKSPACE"} == workspaces
    assert all(owner.startswith("CANN@") for (pool, _), owner in stated.items() if pool == "HAL")
    stored = {attributes(row)["owner"] for row in finished.database_rows() if row["Event"] == "MALLOC"}
    assert stored == set(stated.values())

    pools = {pool["pool"]: pool for pool in finished.analyze("--step=2")["owners"]["pools"] if pool["device"] == "0"}
    caching = pools["PTA"]
    for moment in ("at_peak", "at_step"):
        assert {owner for owner in known if owner.startswith("PTA@model")} <= set(owners(caching[moment])), moment
    assert sum(owners(caching["at_peak"]).values()) == caching["peak_bytes"] >= allocated
    # At the end of a step everything of the model is there but the activations, which the backward pass has used up.
    assert owners(caching["at_step"])["PTA@model@weight"] == owners(caching["at_peak"])["PTA@model@weight"]
    for shown in ("owner", "weight", "gradient", "optimizer_state", "activation", "ops"):
        assert shown in finished.report


FSDP2 = pytest.param("fsdp2", marks=pytest.mark.skipif(IS_OLD, reason="FSDP2 of PyTorch before 2.6 is for CUDA only"))


@pytest.mark.parametrize("component", ["model", FSDP2])
def test_owners_of_distributed_parameters_are_those_of_their_shards(tmp_path, component):
    # What the stand-in device computes does not matter here.
    finished = run(
        tmp_path, "sharded.py", component, options=["--analysis=decompose"], STANDIN_UNKNOWN_OPERATORS="quiet"
    )
    known = json.loads(finished.output.splitlines()[-1])
    stated = {}
    for row in finished.rows():
        if row["Event"] == "MALLOC" and row["Event Type"] == "PTA":
            stated[int(row["Ptr"], 16)] = attributes(row)["owner"]
    # Gradients are made in whatever region the framework is in at that time.
    gradients = {stated[address] for address in known.pop("gradient")}
    assert gradients and all("gradient" in owner.split("@") for owner in gradients), gradients
    for owner, addresses in known.items():
        assert addresses and {stated[address] for address in addresses} == {owner}
    regions = {owner for owner in stated.values() if owner.startswith("PTA@fsdp2@")}
    assert bool(regions) == (component == "fsdp2")
    if component == "fsdp2":
        assert any(owner.startswith("PTA@fsdp2@activation") for owner in regions), regions


@pytest.mark.parametrize("mode", ["moving", "building", "calling"])
def test_weights_are_known_before_any_optimizer_makes_a_step(tmp_path, mode):
    finished = run(
        tmp_path, "model_too_large.py", mode, options=["--analysis=decompose,oom"], STANDIN_MEMORY_BYTES=str(GIBIBYTE)
    )
    assert "out of memory:" in finished.output, finished.report
    weights = int(finished.output.splitlines()[-1])
    assert weights >= 300 << 20
    failure = finished.analyze("--analysis=oom")["out_of_memory"]["details"][-1]
    held = owners(failure["owners"])["PTA@model@weight"]
    # At most the module that was just being moved or built is not known yet.
    assert weights - (32 << 20) <= held <= weights + (32 << 20)
    assert "PTA@model@weight" in finished.report


def test_running_out_of_memory_is_told_though_nobody_asked(tmp_path):
    finished = run(
        tmp_path, "out_of_memory.py", "demand", options=["--analysis=none"], STANDIN_MEMORY_BYTES=str(GIBIBYTE)
    )
    assert "out of memory:" in finished.output
    said = " ".join(finished.report.split())
    assert "Out of memory on device 0" in said and "the job needs more memory" in said
    assert re.search(r"out_of_memory\.py:\d+ reserve asked for", said)
    listed = finished.report.split("Memory then, by line:\n")[1].split("\n\n")[0]
    assert re.search(r"out_of_memory\.py:\d+ reserve", listed), "one row per line instead of blocks"
    assert "Largest blocks then" not in finished.report
    assert not [row for row in finished.rows() if row["Event Type"] in ("OOM_RECENT_ALLOC", "OOM_TOP_ALLOC")]
    assert "Leak: " not in finished.report and "Inefficient" not in finished.report


def test_labels_of_the_user_end_the_owner(tmp_path):
    program = tmp_path / "labelled.py"
    program.write_text(
        "import torch, torch_npu\n"
        "import msmemscope.describe as describe\n"
        "torch.ones(1, device='npu')\n"
        "with describe.describer(owner='mine'):\n"
        "    inside = torch.ones(1000, device='npu')\n"
        "named = torch.ones(2000, device='npu')\n"
        "describe.describer(named, owner='yours')\n"
        "print(inside.data_ptr(), named.data_ptr())\n"
    )
    package = str(PROGRAM.parents[2] / "python")
    path = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])
    finished = run(tmp_path, program, options=["--analysis=decompose"], PYTHONPATH=path)
    inside, named = map(int, finished.output.split())
    stated = {
        int(row["Ptr"], 16): attributes(row)["owner"]
        for row in finished.rows()
        if row["Event"] == "MALLOC" and row["Event Type"] == "PTA"
    }
    assert (stated[inside], stated[named]) == ("PTA@ops@aten@mine", "PTA@ops@aten@yours")
