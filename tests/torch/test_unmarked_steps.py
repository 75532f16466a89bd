"""Steps of jobs that mark nothing come from the loops that they turn."""

import pytest
from programs import IS_OLD
from test_findings import FAULTS, run

pytestmark = pytest.mark.skipif(IS_OLD, reason="modules and operators of old releases are seen in another way")


def line_of(text):
    source = (FAULTS / "unmarked.py").read_text().splitlines()
    return next(number for number, line in enumerate(source, 1) if text in line)


def test_a_step_of_the_optimizer_ends_a_step_and_finds_the_leak(tmp_path):
    found = run(tmp_path, "unmarked.py", "accumulation")
    assert "8 steps" in found.report
    answers = found.analyze()
    (group,) = [group for group in answers["leaks"]["leaks"] if group["pool"] == "PTA"]
    assert f"unmarked.py:{line_of('# the leak')}" in group["site"]["line"]
    steps = [row for row in found.rows() if row["Event Type"] == "STEP"]
    assert len(steps) == 8, "the files say so, too"


def test_the_slower_of_two_optimizers_counts(tmp_path):
    assert "6 steps" in run(tmp_path, "unmarked.py", "alternating").report


def test_calls_of_the_model_are_the_steps_of_inference(tmp_path):
    found = run(tmp_path, "unmarked.py", "serving")
    assert "9 steps" in found.report
    (peak,) = [pool for pool in found.analyze()["moments"]["pools"] if pool["pool"] == "PTA"]
    modules = {module for line in peak["lines"] for module in line["modules"]}
    assert modules & {"0", "1", "2"}, modules
