"""Stacks, findings and files of recordings that were made on another machine."""

import json
import os

from machine import PROGRAM, PYTHON, ROOT, STANDIN, record, recordings, run

ARCHITECTURE = os.environ["MACHINE_ARCHITECTURE"]

PYTHON_JOB = """
import small_framework as framework

def keep_one(pool):
    return pool.block(1 << 20)

def train(pool):
    return [keep_one(pool) for _ in range(4)]

framework.begin()
pool = framework.Pool()
kept = train(pool)
for block in kept:
    pool.release(block)
pool.close()
framework.end()
"""


def line_of(path, text):
    """Number of the first line that has a text."""
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def test_the_version_says_what_is_installed():
    said = run([PROGRAM, "--version"]).stdout
    assert "msmemscope version 0." in said and ARCHITECTURE in said


def test_the_planted_leak_is_found_at_its_line(place, leaky_training, show):
    finished = record(place, [leaky_training], "--call-stack=c:8", "--data-format=csv,db")
    source = ROOT / "examples/leaky_training.c"
    keeps = line_of(source, "history[step] = pool_allocate(")
    assert "Leak: 3.0 MiB more with every step" in finished.stdout + finished.stderr
    assert f"examples/leaky_training.c:{keeps} remember_loss" in finished.stdout + finished.stderr
    answers = json.loads(run([PROGRAM, "analyze", place / "output", "--analysis=leaks", "--json"]).stdout)
    assert "leaky_training.c" in json.dumps(answers)
    (recorded,) = recordings(place)
    assert list(recorded.path.glob("device_0/dump/*.db"))
    show(f"the leak of examples/leaky_training.c is found at line {keeps}, {len(recorded.rows())} events")


def test_stacks_have_native_and_python_frames(place, show):
    script = place / "keeps.py"
    script.write_text(PYTHON_JOB)
    search = f"{ROOT / 'tests/python'}:{STANDIN / 'python'}"
    record(place, [PYTHON, script], "--call-stack=c:30,python:8", PYTHONPATH=search)
    (recorded,) = recordings(place)
    blocks = [row for row in recorded.rows() if (row["Event"], row["Event Type"]) == ("MALLOC", "PTA")]
    assert len(blocks) == 4
    keeps, trains = line_of(script, "return pool.block"), line_of(script, "for _ in range(4)")
    for row in blocks:
        python, native = row["Call Stack(Python)"], row["Call Stack(C)"]
        assert f"keeps.py:{keeps} keep_one" in python or f"keeps.py({keeps}): keep_one" in python, python
        assert str(trains) in python and "train" in python
        assert "mstxMemRegionsRegister" in native or "libms_tools_ext" in native or "libffi" in native, native
    show(f"Python: {blocks[0]['Call Stack(Python)']!r}")
    show(f"native: {blocks[0]['Call Stack(C)']!r}")
