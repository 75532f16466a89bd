"""Reports name who holds memory: variables, closures, hooks, caches, graphs, at leaks, at the peak, at failures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import IS_OLD
from test_findings import PROGRAM, line_of, lines, run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

pytestmark = pytest.mark.skipif(IS_OLD, reason="modules and operators of old releases are seen in another way")
FAULT = "holders.py"


def paths_by_mark(groups):
    """Ways of holding, by the mark at the line of a program that made the blocks."""
    marks = {
        number: mark
        for mark in ("list", "global", "closure", "hook", "attribute", "functools", "generator", "traceback", "graph")
        for number in lines(FAULT, mark)
    }
    found = {}
    for group in groups:
        frames = [frame["line"] for frame in group["site"]["python"] if frame["file"].endswith("/" + FAULT)]
        mark = next((marks[number] for number in frames if number in marks), None)
        found.setdefault(mark, []).extend(re.sub("of [0-9]+", "of N", held["path"]) for held in group["held_by"])
    return found


def test_every_way_of_holding_is_named(tmp_path):
    answers = run(tmp_path, FAULT, "kept").analyze()
    found = paths_by_mark(answers["leaks"]["leaks"])
    expected = {
        "list": ["local 'history' of main (", " > list of N"],
        "global": ["global 'cache' (", " > dict of N"],
        "closure": ["global 'callbacks' (", " > list of N > closure of report_later.<locals>.report (", ", 'logits'"],
        "hook": ["local 'model' of main (", " > forward hook on inner.1 > method Probe.save > Probe.acts > list of N"],
        "attribute": ["local 'model' of main (", " > Recorder.outputs > list of N"],
        "functools": ["functools cache of table ("],
        "generator": ["local 'running' of main (", " > list of N > generator > local 'batch' of batches ("],
        "traceback": [
            "local 'errors' of main (",
            " > list of N > traceback of ValueError > local 'scratch' of fail (",
        ],
        "graph": ["local 'losses' of main (", " > list of N > autograd graph"],
    }
    for mark, parts in expected.items():
        assert any(all(part in path for part in parts) for path in found.get(mark, [])), (mark, found)

    (peak,) = [pool for pool in answers["moments"]["pools"] if pool["pool"] == "PTA"]
    at_peak = {line_of(line["site"], FAULT): line["held_by"] for line in peak["lines"]}
    weights = [held["path"] for held_by in at_peak.values() for held in held_by if "parameters" in held["path"]]
    assert any(path.endswith("parameters of Recorder") for path in weights), at_peak


def test_the_same_work_without_keeping_anything_holds_nothing(tmp_path):
    answers = run(tmp_path, FAULT, "clean").analyze()
    assert [group for group in answers["leaks"]["leaks"] if group["pool"] == "PTA"] == []
    text = str([line["held_by"] for pool in answers["moments"]["pools"] for line in pool["lines"]])
    for holder in ("history", "callbacks", "losses", "Probe", "functools", "autograd graph"):
        assert holder not in text


def test_looking_can_be_turned_off(tmp_path):
    found = run(tmp_path, FAULT, "kept", options=("--holders=off",))
    groups = [group for group in found.analyze()["leaks"]["leaks"] if group["pool"] == "PTA"]
    assert groups and all(group["held_by"] == [] for group in groups)


OUT_OF_MEMORY = """
    import torch, torch_npu

    def grow():
        batches = []
        while True:
            batches.append(torch.empty(64 << 20, dtype=torch.uint8, device="npu"))

    try:
        grow()
    except RuntimeError:
        print("full")
"""


def analyze(run):
    """The answers about a run of :func:`running.run_program`."""
    command = [PROGRAM, "analyze", run.output, "--json"]
    (process,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["processes"]
    return process


def test_out_of_memory_names_variables_that_are_gone_afterwards(tmp_path):
    variables = {"STANDIN_MEMORY_BYTES": str(1 << 30)}
    one = run_program(tmp_path / "run", OUT_OF_MEMORY, mode="cli", environment=variables)
    assert one.stdout == "full\n"
    failure = analyze(one)["out_of_memory"]["details"][-1]
    (held,) = failure["held_by"]
    assert "local 'batches' of grow (script.py:5) > list of " in held["path"]
    assert held["bytes"] > 512 << 20
    assert {block["held_by"] for block in failure["recent"] if block["pool"] == "PTA"} == {held["path"]}


def test_on_request_nothing_is_kept_and_nobody_is_asked(tmp_path):
    one = run_program(
        tmp_path / "run",
        """
        import gc, sys, weakref
        import torch, torch_npu
        import msmemscope
        msmemscope.config(output="out")
        msmemscope.start()

        class Shy(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                print("asked", function)
                return super().__torch_function__(function, types, args, kwargs or {})

        def work():
            kept = torch.ones(1000, device="npu")
            shy = torch.ones(2000, device="npu").as_subclass(Shy)
            weights = torch.ones(3000, device="npu", requires_grad=True)
            weights.grad = torch.ones(3000, device="npu")
            looped = [torch.ones(4000, device="npu")]
            looped.append(looped)
            del looped
            reference = weakref.ref(kept)
            def counts():
                return [sys.getrefcount(thing) for thing in (kept, shy, weights, Shy, work)]
            before = counts()
            print(msmemscope.record_holders() >= 5, counts() == before, gc.isenabled())
            del kept
            print(reference())

        gc.disable()
        gc.collect()
        gc.enable()
        work()
        gc.collect()
        print(msmemscope.record_holders())
        kept_at_stop = torch.ones(5000, device="npu")
        msmemscope.stop()
        """,
    )
    assert one.stdout.splitlines() == ["True True True", "None", "0"], one.stdout
    (pool,) = [pool for pool in analyze(one)["moments"]["pools"] if pool["pool"] == "PTA"]
    paths = [held["path"] for line in pool["lines"] for held in line["held_by"]]
    names = {re.sub(r" \(.*?\)", "", path) for path in paths}
    assert {"local 'shy' of work", "local 'weights' of work", "local 'weights' of work > gradient"} <= names, paths
    assert any(name.startswith("reference cycle of list that gc.collect() would free") for name in names), paths
