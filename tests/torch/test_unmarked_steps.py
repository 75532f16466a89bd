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


def test_steps_of_a_profilers_schedule_come_before_those_of_the_optimizer(tmp_path):
    found = run(tmp_path, "unmarked.py", "profiled")
    assert "each of the 7 steps ends with a step of the profiler" in " ".join(found.report.split()), found.report
    assert found.analyze()["steps_from"] == "profiler_step"


def test_operators_that_come_again_are_steps_where_nothing_else_shows_a_loop(tmp_path):
    found = run(tmp_path, "unmarked.py", "functional")
    report = " ".join(found.report.split())
    assert "each of the 29 steps ends where the same operators come again" in report, found.report
    assert (
        "Leak: 8.5 KiB more with every step" in report and f"unmarked.py:{line_of('# the answer')} functional" in report
    )
    answers = found.analyze()
    assert answers["steps_from"] == "operator_pattern"
    (group,) = [group for group in answers["leaks"]["leaks"] if group["pool"] == "PTA"]
    assert group["count"] >= 26 and group["bytes_per_step"] == 32 * 64 * 4 + 512
    assert group["held_by"][0]["path"].startswith("local 'answers' of functional ("), group["held_by"]


def test_sound_code_without_modules_has_no_leak(tmp_path):
    report = run(tmp_path, "unmarked.py", "functional_clean").report
    assert "No leaks found in 29 steps" in report, report
