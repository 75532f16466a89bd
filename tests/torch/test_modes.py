"""The examples, recorded in every way there is: all ways see the same, and what the device itself logged."""

import sys
from pathlib import Path

import pytest
from truth import read

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: Runs an example as it is.
UNCHANGED = """
    import runpy, sys
    sys.argv = {arguments!r}
    sys.path.insert(0, {directory!r})
    runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: The same with the two lines that record it.
WITH_TWO_LINES = (
    """
    import msmemscope
    msmemscope.config(events="alloc,free,launch", output="out")
    msmemscope.start()
"""
    + UNCHANGED
)

#: Programs, and how many threads of theirs run operators: autograd has one of its own.
PROGRAMS = [
    (("mlp.py", "--steps", "2"), 2),
    (("cnn.py", "--steps", "2"), 2),
    (("gpt.py", "--steps", "2"), 2),
    (("inference.py", "--steps", "4"), 1),
    (("expandable_segments.py",), 1),
]


def record(directory, mode, example, *arguments):
    # Nobody needs to import anything when the command line starts the program.
    code = UNCHANGED if mode == "cli" else WITH_TWO_LINES
    code = code.format(arguments=[str(EXAMPLES / example), *arguments], directory=str(EXAMPLES))
    return run_program(directory, code, mode=mode)


def memory_events(run, kind):
    """What was allocated and freed, in order; addresses as numbers, because they may differ from run to run."""
    numbers = {}
    rows = [row for row in run.rows(kind=kind) if row["Event"] in ("MALLOC", "FREE") and "shadow" not in row["Attr"]]
    return [(row["Event"], numbers.setdefault(row["Ptr"], len(numbers)), row.attributes["size"]) for row in rows]


def launches(run):
    """Operators by thread, in order of their first one; begins and ends."""
    threads = {}
    for row in run.rows("OP_LAUNCH"):
        threads.setdefault(row["Thread Id"], []).append((row["Event Type"], row["Name"]))
    return list(threads.values())


def device_log(run):
    """Memory that the device gave and took back before the process ended."""
    kinds = {"alloc": "MALLOC", "create": "MALLOC", "free": "FREE", "release": "FREE"}
    entries = [entry for entry in read(run.directory / "truth") if entry.kind in kinds and entry.result == 0]
    sizes = {}
    events = []
    for entry in entries:
        if kinds[entry.kind] == "MALLOC":
            sizes[entry.address] = entry.size
        events.append((kinds[entry.kind], str(sizes[entry.address])))
    return events


@pytest.mark.parametrize(("program", "threads"), PROGRAMS, ids=[program[0] for program, _ in PROGRAMS])
def test_all_ways_see_the_same(tmp_path, program, threads):
    runs = {mode: record(tmp_path / mode, mode, *program) for mode in ("api", "preload", "cli")}
    expected = runs["api"]
    assert len(memory_events(expected, "PTA")) > 10
    for mode, run in runs.items():
        driver = [(event, size) for event, _, size in memory_events(run, "HAL")]
        assert driver == device_log(run)[: len(driver)], mode
        assert [event for event in driver if event[0] == "MALLOC"] == [
            event for event in device_log(run) if event[0] == "MALLOC"
        ], mode
        assert memory_events(run, "HAL") == memory_events(expected, "HAL"), mode
        assert memory_events(run, "PTA") == memory_events(expected, "PTA"), mode
    api, preload, cli = (launches(runs[mode]) for mode in ("api", "preload", "cli"))
    assert preload == api
    assert len(api) == threads
    # The command line joins when the device is first used, so the operators before that are missing.
    main = cli[0]
    assert len(main) > 20
    assert main == api[0][len(api[0]) - len(main) :]
    assert cli[1:] == api[1:]
    for thread in (*api, *cli):
        assert [name for kind, name in thread if kind == "ATEN_START"] == [
            name for kind, name in thread if kind == "ATEN_END"
        ]
