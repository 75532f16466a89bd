"""Fixtures of the tests on other machines: programs for them, and places that both sides see."""

import itertools
import shutil

import pytest
from machine import ROOT, compile_program

_numbers = itertools.count()


@pytest.fixture(scope="session")
def workshop():
    """A directory for what these tests make; /tmp is not the same inside."""
    place = ROOT / "target/machine-tests"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


@pytest.fixture
def place(workshop, request):
    """A directory for one test."""
    path = workshop / f"{next(_numbers)}-{request.node.originalname}"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def job(workshop):
    """A job whose arguments are its script; see its head."""
    source = ROOT / "crates/front/cli/tests/programs/job.c"
    return compile_program(source, workshop / "job", "ascend_hal", "ascendcl", "ms_tools_ext")


@pytest.fixture(scope="session")
def endless(workshop):
    """Allocates and frees in threads until it is ended."""
    return compile_program(
        ROOT / "crates/job/recorder/tests/programs/kill.c", workshop / "endless", "ascend_hal", flags=("-O2",)
    )


@pytest.fixture(scope="session")
def leaky_training(workshop):
    """The program of `make demo`."""
    return compile_program(ROOT / "examples/leaky_training.c", workshop / "leaky_training", "ascendcl", "ms_tools_ext")


@pytest.fixture
def show(capsys):
    """Prints a figure, whatever pytest does with output."""

    def print_it(line):
        with capsys.disabled():
            print(f"  {line}", flush=True)

    return print_it
