"""The first look at the first run of a job that nobody prepared: its problem is named by line, or it is said that there
is none."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import IS_OLD
from test_findings import FAULTS, GIBIBYTE, PROGRAM, run

pytestmark = pytest.mark.skipif(IS_OLD, reason="modules and operators of old releases are seen in another way")

JOBS = "first_screen.py"
MEBIBYTE = 1 << 20
#: Lines that fit on a terminal nobody has enlarged.
SCREEN = 25
FIRST_WORDS = (
    r"(Leak|Perhaps a leak|Growth|Waste|Corrupted memory|Out of memory|No leaks found|No steps were seen|Note"
    r"|The same leaks)\b"
)


#: Where what is kept was made by the model itself.
MARKS = {"watched-outputs": "# ACTIVATION"}


def marked_line(mark):
    source = (FAULTS / JOBS).read_text().splitlines()
    (number,) = [number for number, text in enumerate(source, 1) if text.endswith(mark)]
    return number


def culprit(mode):
    return f"{JOBS}:{marked_line(MARKS.get(mode, f'# CULPRIT {mode}'))} "


def first_screen(report):
    """What we print first, without what the job and its framework print."""
    lines = report.splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(FIRST_WORDS, line))
    # Words to people while the job runs are ours as well.
    before = [line for line in lines[:start] if line.startswith("[msmemscope] ")]
    shown = lines[start : start + SCREEN - len(before)]
    assert all(len(line) <= 80 or "/" in line for line in shown), shown
    return " ".join(" ".join(shown).split())


#: How the report calls what is wrong.
LEAKS = {
    "kept-predictions": r"Leak: [\d.]+ KiB more with every step",
    "kept-losses": r"Leak: [\d.]+ K?i?B more with every step",
    "kept-in-closures": r"Leak: [\d.]+ KiB more with every step",
    "hooked-outputs": r"Leak: a hook keeps what it sees: ",
    "watched-outputs": r"Leak: a hook keeps what it sees: ",
    "growing-cache": r"Leak: a cache is never emptied: ",
    "summed-losses": r"Leak: the graphs made at \S+ ",
    "small-graphs": r"Leak: the graphs made at \S+ ",
    "deep-model": r"Leak: [\d.]+ KiB more with every step",
    "kept-errors": r"Leak: exceptions that are kept hold ",
    "recreated-optimizers": r"Leak: optimizers are made anew, and the states of the old ones kept: ",
    "driver-memory": r"Leak: driver memory of \w+, outside of all pools: 1\.0 MiB more with every step",
}
#: Who holds it, where a variable does.
HOLDERS = {
    "kept-predictions": "local 'predictions' of kept_predictions",
    "kept-losses": "local 'losses' of kept_losses",
    "kept-in-closures": "local 'callbacks' of kept_in_closures",
    "hooked-outputs": "local 'outputs' of hooked_outputs",
    "watched-outputs": "Watcher.outputs['0.down'] > list of",
    "growing-cache": "local 'cache' of growing_cache",
    "summed-losses": "local 'total' of summed_losses",
    "small-graphs": "local 'total' of small_graphs",
    "deep-model": "local 'outputs' of deep_model",
    "kept-errors": "local 'errors' of kept_errors",
    "recreated-optimizers": "local 'history' of recreated_optimizers",
}


@pytest.mark.parametrize("mode", LEAKS)
def test_a_leak_is_named_with_its_line_holder_and_steps(tmp_path, mode):
    found = run(tmp_path, JOBS, mode)
    screen = first_screen(found.report)
    assert re.match(LEAKS[mode], screen), screen
    assert culprit(mode) in screen and re.search(r"steps 2-\d+", screen), screen
    assert "eld by" in screen and HOLDERS.get(mode, "") in screen, screen
    assert "What to do:" in screen, screen
    assert "Direct " not in found.report, "the lines of earlier versions are in the log"
    if mode == "small-graphs":
        keeps_the_loss = marked_line("# HOLDER small-graphs")
        assert re.search(rf"'total' of small_graphs \(\S*{JOBS}:{keeps_the_loss}\) > autograd graph", screen), screen


#: What is wrong though it is no leak.
STANDING = {
    "split-pool": r"Waste: fragmentation of blocks over 1\.0 MiB: \d+ MiB of \d+ MiB that the pool held lay in \d+ "
    r"gaps of at most [\d.]+ MiB, too small for the 40\.0 MiB asked for at \S*first_screen\.py:\d+ split_pool in "
    r"step \d\. They lie between \d+ blocks allocated at \S*",
    "joined-cache": r"Growth: a tensor becomes larger with every step, [\d.]+ KiB each time, from .* allocated at \S*",
    "doubled-states": r"Waste: optimizer states exist twice, [\d.]+ [KM]iB of [\d.]+ [KM]iB too many, made at .*",
    "restarted-optimizer": r"Waste: optimizer states exist twice, [\d.]+ [KM]iB of [\d.]+ [KM]iB too many, made at .*",
    "kept-gradients": r"Waste: gradients of \d+ KiB stay through every forward pass, which is \d+ % of the peak\. "
    r"Held by local 'trainer' of kept_gradients \(\S*",
}


@pytest.mark.parametrize("mode", STANDING)
def test_what_stands_and_should_not_is_named_with_its_line(tmp_path, mode):
    found = run(tmp_path, JOBS, mode)
    screen = first_screen(found.report)
    assert re.match(STANDING[mode] + re.escape(culprit(mode).strip()), screen), screen
    assert "What to do:" in screen and "Leak" not in screen and "No leaks" not in screen, screen


def test_workspace_that_grows_is_told_with_its_steps(tmp_path):
    settings = {"TASK_QUEUE_ENABLE": "2", "STANDIN_WORKSPACE_BYTES": "x2"}
    screen = first_screen(run(tmp_path, JOBS, "growing-shapes", **settings).report)
    growth = r"Growth: the workspace of operators \(scratch memory\) becomes larger and larger, [\d.]+ KiB per step, "
    assert re.match(growth + r"from [\d.]+ [KM]iB in step \d to [\d.]+ MiB in step 1[12]", screen), screen
    # A thread of PyTorch's own asks for it, on which no line of the program runs; what it is needed for is named.
    answer, _, _ = screen.partition("What to do:")
    assert "no call stack" not in answer and culprit("growing-shapes") in answer, screen
    assert "bring them to fixed sizes" in screen and "Leak" not in screen and "No leaks" not in screen, screen


def test_workspace_that_stays_as_large_as_it_is_is_no_growth(tmp_path):
    settings = {"TASK_QUEUE_ENABLE": "2", "STANDIN_WORKSPACE_BYTES": "x2"}
    screen = first_screen(run(tmp_path, JOBS, "growing-shapes-clean", **settings).report)
    assert screen.startswith("No leaks found in ") and "Growth" not in screen, screen


def test_the_clean_twin_of_every_job_has_no_leaks(tmp_path):
    found = run(tmp_path, JOBS, "sound")
    twins = dict(text.split() for text in found.output.splitlines() if re.fullmatch(r"\d+ \w+", text))
    assert {mode.replace("-", "_") for mode in (*LEAKS, *STANDING)} <= set(twins.values()), "each has its twin"
    for process, job in twins.items():
        (report,) = found.directory.glob(f"*_{process}_*/report.txt")
        report = report.read_text()
        assert report.startswith("No leaks found in "), (job, report)
        assert not re.search(r"(Leak|a leak|Growth|Waste): |per step since", report), (job, report)


def test_the_peak_is_made_of_lines(tmp_path):
    found = run(tmp_path, JOBS, "large-batch")
    screen = first_screen(found.report)
    (line,) = [n for n, text in enumerate((FAULTS / JOBS).read_text().splitlines(), 1) if "# ACTIVATION" in text]
    assert re.search(rf"Peak: \d+ MiB .* held by blocks allocated at \S*{JOBS}:{line} Layer.forward", screen), screen
    (peak,) = [pool for pool in found.analyze("--peak")["moments"]["pools"] if pool["pool"] == "PTA"]
    assert peak["lines"][0]["phases"] == ["forward"] and peak["moment"] == "peak"
    assert re.search(r"allocated at module phase .* Layer\.forward 0 \+11 forward ", screen), "modules have room"
    assert sum(line["bytes"] for line in peak["lines"]) + peak["other_bytes"] == peak["used_bytes"]


def test_running_out_of_memory_by_a_leak_is_called_a_leak(tmp_path):
    memory = str(GIBIBYTE // 4)
    found = run(tmp_path, JOBS, "leak-until-full", succeeds=False, STANDIN_MEMORY_BYTES=memory)
    screen = first_screen(found.report)
    assert screen.startswith("Out of memory on device 0 in step ")
    assert "Reason: a leak; most is held by blocks allocated at" in screen, screen
    assert culprit("leak-until-full") in screen, screen


def test_activations_that_do_not_fit_are_named(tmp_path):
    found = run(tmp_path, JOBS, "large-batch", succeeds=False, STANDIN_MEMORY_BYTES=str(GIBIBYTE // 8))
    screen = first_screen(found.report)
    assert re.match(r"Out of memory on device 0 \(forward, in \d+(\.up|\.down)?\): ", screen), screen
    assert "needs more memory than there is" in screen
    assert re.search(rf"is held by \d+ blocks? allocated at \S*{JOBS}:\d+ Layer.forward", screen), screen


def test_a_backward_pass_that_does_not_fit_is_named_by_the_line_that_called_for_it(tmp_path):
    """Autograd has threads of its own, on which no line of the program runs."""
    memory = str(150 * 2**20)
    found = run(tmp_path, JOBS, "backward-full", succeeds=False, STANDIN_MEMORY_BYTES=memory)
    screen, line = first_screen(found.report), f"{culprit('backward-full')}backward_full"
    asked = rf"Out of memory on device 0 \(backward\): \S*{line} asked for 62\.0 MiB for mul\. "
    assert re.match(asked, screen), screen
    assert re.search(rf"Asked for at, innermost first: \S*{line}", screen), screen
    (said,) = [text for text in found.report.splitlines() if text.startswith("[msmemscope] Out of memory")]
    assert re.search(rf"asked for 62\.0 MiB at \S*{line}, ", said), said


def test_gaps_between_tables_are_no_growth_of_the_tables(tmp_path):
    memory = str(800 * 2**20)
    found = run(tmp_path, JOBS, "interleaved", succeeds=False, STANDIN_MEMORY_BYTES=memory)
    screen = first_screen(found.report)
    assert "Reason: fragmentation" in screen and f"{culprit('interleaved')}interleaved asked for" in screen, screen
    assert "local 'tables' of interleaved" in screen and "last_traceback" not in found.report, found.report


def test_a_request_that_can_never_fit_is_named(tmp_path):
    found = run(tmp_path, JOBS, "too-large", succeeds=False, STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    screen = first_screen(found.report)
    assert f"{culprit('too-large')}too_large asked for 8.0 GiB" in screen, screen
    assert "larger than the whole card. The driver" in screen, "nothing that is held is to blame: " + screen


def test_a_limit_of_the_job_is_named(tmp_path):
    found = run(tmp_path, JOBS, "own-limit", succeeds=False, STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    screen = first_screen(found.report)
    asked = rf"Out of memory on device 0: \S*{culprit('own-limit')}own_limit asked for 3\d\.\d MiB\. "
    assert re.match(asked + "Reason: a limit that the job has set itself, 256 MiB; most, ", screen), screen
    numbers = r"PyTorch was asked for (3\d\.\d) MiB on device 0, and holds (\d+) MiB there\. The job lets it have 256"
    requested, held = map(float, re.search(numbers, screen).groups())
    assert requested + held > 256 > held and "Asked for at, innermost first: " in screen, screen
    assert re.search(
        r"asked for 3\d\.\d MiB at \S+ own_limit, which is more than the job's own limit of 256 MiB allows",
        found.report,
    )


def test_fragmentation_is_named(tmp_path):
    found = run(tmp_path, JOBS, "fragmented", succeeds=False, STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    screen = first_screen(found.report)
    assert screen.startswith("Out of memory on device 0") and "Reason: fragmentation" in screen, screen
    # Segments that grow are freed in pages of 20 MiB, and each of these has a block that stays: they would not help.
    assert culprit("fragmented") in screen, screen
    assert "roundup_power2_divisions:4 this request would have fitted" in screen, screen


def test_gaps_between_small_blocks_are_told_with_the_line_that_keeps_them(tmp_path):
    found = run(tmp_path, JOBS, "small-gaps", succeeds=False, STANDIN_MEMORY_BYTES=str(400 * MEBIBYTE))
    screen = first_screen(found.report)
    line = marked_line("# SMALL small-gaps")
    assert "Reason: fragmentation: only small blocks find room" in screen and culprit("small-gaps") in screen, screen
    gaps = rf"lie in gaps of segments for small blocks \(held by blocks allocated at \S*{JOBS}:{line} small_gaps\S*\)"
    assert re.search(gaps, screen), screen
    assert "expandable_segments" not in screen and "together." not in screen, screen


def test_a_gap_of_another_stream_is_told_as_such(tmp_path):
    found = run(tmp_path, JOBS, "other-stream", succeeds=False, STANDIN_MEMORY_BYTES=str(400 * MEBIBYTE))
    screen = first_screen(found.report)
    assert "Reason: the memory that is unused belongs to another stream" in screen, screen
    assert culprit("other-stream") in screen and "gaps were together" not in screen, screen


HELD = r"\(held by blocks allocated at \S*first_screen\.py:\d+ \S+\)"
#: What is unused and where, if segments are of several classes: whether segments grow, and what is said.
CLASSES = {
    "other-stream-in-pieces": (
        False,
        r"Reason: the memory that is unused belongs to another stream; .* The framework holds 204 MiB that no tensor "
        rf"uses\. 204 MiB belong to another stream {HELD}, the largest gap has 8\.0 MiB: PyTorch gives memory only to "
        r"the stream for which it was allocated\.",
    ),
    "pages-that-stay": (
        True,
        r"asked for 122 MiB\. Reason: fragmentation; .* The framework holds 200 MiB that no tensor uses\. 200 MiB of "
        r"it lie in segments for larger blocks of the stream that asked; the largest gap has \d+\.\d MiB\. Segments "
        r"can grow here \(expandable_segments\): only pages on which no block lies are given back\. So it is",
    ),
    "pages-of-another-stream": (
        True,
        r"asked for 122 MiB\. Reason: the memory that is unused belongs to another stream; .* holds 200 MiB that no "
        rf"tensor uses\. 200 MiB belong to another stream {HELD}",
    ),
    "pages-of-small-blocks": (
        True,
        r"asked for 152 MiB\. Reason: fragmentation: only small blocks find room; .* holds 225 MiB that no tensor "
        rf"uses\. 225 MiB lie in gaps of segments for small blocks {HELD}, where a larger one cannot go\.",
    ),
    "pages-in-use": (True, r"asked for 182 MiB\. Reason: (?!fragmentation)"),
}


@pytest.mark.parametrize("mode", CLASSES)
def test_what_is_unused_is_told_by_who_may_use_it(tmp_path, mode):
    is_expandable, said = CLASSES[mode]
    settings = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"} if is_expandable else {}
    found = run(tmp_path, JOBS, mode, succeeds=False, STANDIN_MEMORY_BYTES=str(400 * MEBIBYTE), **settings)
    report = " ".join(found.report[found.report.index("\nOut of memory") :].split())
    assert culprit(mode) in report and re.search(said, report), found.report
    together = "would have fitted if the gaps were together" in report
    assert together == ("Reason: fragmentation;" in report), report
    failure = found.analyze("--analysis=oom")["out_of_memory"]["details"][-1]
    (pool,) = [pool for pool in failure["pools"] if pool["pool"] == "PTA"]
    used, total = failure["card"]
    assert used + failure["free_bytes"] == total and failure["process_bytes"] + failure["others_bytes"] == used, failure
    assert sum(kind["gap_bytes"] for kind in pool["classes"]) == pool["reserved_bytes"] - pool["used_bytes"], pool
    assert failure["requested_bytes"] > failure["free_bytes"], "what the pool was asked for, not a page of it"
    assert not is_expandable or all(kind["is_expandable"] for kind in pool["classes"]), pool


@pytest.mark.parametrize("mode", CLASSES)
def test_the_same_job_without_what_stays_has_room(tmp_path, mode):
    is_expandable, _ = CLASSES[mode]
    settings = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"} if is_expandable else {}
    found = run(tmp_path, JOBS, f"{mode}-clean", STANDIN_MEMORY_BYTES=str(400 * MEBIBYTE), **settings)
    assert "Out of memory" not in found.report and "Reason" not in found.report, found.report


def test_advice_follows_what_was_computed(tmp_path):
    found = run(tmp_path, JOBS, "no-setting-helps", succeeds=False, STANDIN_MEMORY_BYTES=str(600 * MEBIBYTE))
    screen = first_screen(found.report)
    assert "Reason: fragmentation" in screen and culprit("no-setting-helps") in screen, screen
    assert "no setting helps" in screen and "expandable_segments" not in screen, screen


def test_what_is_made_between_modules_is_no_forward_pass(tmp_path):
    found = run(tmp_path, JOBS, "tables-after-a-model", succeeds=False, STANDIN_MEMORY_BYTES=str(160 * MEBIBYTE))
    screen = first_screen(found.report)
    assert screen.startswith("Out of memory on device 0: ") and culprit("tables-after-a-model") in screen, screen
    assert "activations" not in screen.partition("What to do:")[0], screen


def test_a_forward_pass_that_has_failed_is_over(tmp_path):
    found = run(tmp_path, JOBS, "failed-forward")
    (peak,) = [pool for pool in found.analyze("--peak")["moments"]["pools"] if pool["pool"] == "PTA"]
    (line,) = [line for line in peak["lines"] if line["bytes"] >= 20 * MEBIBYTE]
    assert culprit("failed-forward").strip() in line["site"]["line"] and line["phases"] == ["other"], line


def test_a_forward_pass_that_was_interrupted_is_over(tmp_path):
    found = run(tmp_path, JOBS, "interrupted-forward")
    (peak,) = [pool for pool in found.analyze("--peak")["moments"]["pools"] if pool["pool"] == "PTA"]
    (table,) = [line for line in peak["lines"] if culprit("interrupted-forward").strip() in line["site"]["line"]]
    assert table["phases"] == ["other"] and not table["modules"], table
    (next_one,) = [line for line in peak["lines"] if f":{marked_line('# AFTERWARDS')} " in line["site"]["line"]]
    assert next_one["phases"] == ["forward"] and next_one["modules"] == ["1"], next_one


def test_a_module_that_calls_itself_is_called_all_along(tmp_path):
    found = run(tmp_path, JOBS, "module-that-calls-itself")
    (peak,) = [pool for pool in found.analyze("--peak")["moments"]["pools"] if pool["pool"] == "PTA"]
    lines = [line for line in peak["lines"] if f":{marked_line('# ACTIVATION')} " in line["site"]["line"]]
    assert {(*line["phases"],) for line in lines} == {("forward",)}, lines
    assert {name for line in lines for name in line["modules"]} <= {"leaf", "leaf.up", "leaf.down"}, lines


def test_a_failure_that_was_recovered_from_is_a_note(tmp_path):
    found = run(tmp_path, JOBS, "fragmented-clean", STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    screen = first_screen(found.report)
    assert "Out of memory" not in found.report and "Note: the driver refused" in screen, found.report
    assert "a later attempt got its memory" in screen, screen
    assert re.search(r"Peak: \d+ MiB .*At the peak", screen), "what held most is told as of any job"


def test_running_out_of_memory_is_said_at_once_and_once(tmp_path):
    found = run(tmp_path, JOBS, "too-large-twice", STANDIN_MEMORY_BYTES=str(GIBIBYTE))
    said = [line for line in found.report.splitlines() if line.startswith("[msmemscope] Out of memory")]
    line = f"{culprit('too-large-twice')}too_large_twice"
    expected = rf"\[msmemscope\] Out of memory on device 0: asked for 8\.0 GiB at \S*{line}, .* free"
    assert len(said) == 2 and all(re.match(expected, text) for text in said), found.report
    before, after = found.report.index("[msmemscope] Out of memory"), found.report.index("caught it")
    assert before < after, "at the moment it happens"


def test_ranks_with_one_leak_hear_of_it_once_and_by_their_numbers(tmp_path):
    (tmp_path / "cards").mkdir()
    (line,) = [n for n, text in enumerate((FAULTS / "ranks.py").read_text().splitlines(), 1) if "# CULPRIT" in text]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    for mode, arguments in {"launched": launcher, "spawned": []}.items():
        command = [PROGRAM, "-o", tmp_path / mode, "--", sys.executable, *arguments, str(FAULTS / "ranks.py"), mode]
        variables = {"STANDIN_RUN_DIR": str(tmp_path / "cards"), "STANDIN_DEVICES": "2"}
        result = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        screen = first_screen(result.stderr)
        assert screen.startswith("The same leaks on both ranks; in detail of rank 0: Leak: "), screen
        assert re.search(
            rf"Leak: [\d.]+ KiB more with every step, .* allocated at \S*ranks\.py:{line} train", screen
        ), screen
        assert "local 'outputs' of train" in screen, screen
        assert result.stderr.count("Leak: ") == 1, "told once for both"


def test_corrupted_memory_is_named_with_both_lines(tmp_path):
    stomps = Path(__file__).with_name("stomps.py")
    (tmp_path / "cards").mkdir()
    command = [PROGRAM, "-o", tmp_path / "output", "--watch=auto", "--", sys.executable, str(stomps), "past_the_output"]
    variables = {"STANDIN_RUN_DIR": str(tmp_path / "cards"), "ASCEND_LAUNCH_BLOCKING": "1"}
    result = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    screen = first_screen(result.stderr)
    found = r"Corrupted memory: a block of 1\.0 KiB allocated at \S*stomps\.py:\d+ past_the_output changed during "
    assert re.match(
        found + r"stomp\.spill\.default \(call 1\), which does not declare to write it\. Called at ", screen
    ), screen
    assert "it probably writes past its end" in screen, screen
