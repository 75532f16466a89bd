"""Fixtures: programs run on the stand-in device."""

import sys

import pytest
from running import PACKAGE, run_program

sys.path.insert(0, str(PACKAGE))


@pytest.fixture
def run(tmp_path):
    """Runs Python code; see :func:`running.run_program`."""
    numbers = iter(range(1000))

    def execute(code, **settings):
        return run_program(tmp_path / f"run{next(numbers)}", code, **settings)

    return execute
