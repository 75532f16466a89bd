"""The pytest plugin, with programs of its own."""

import re

import pytest
from running import run_pytest

TESTS = """
    import pytest
    import small_framework as framework

    kept = []

    @pytest.fixture(scope="module", autouse=True)
    def device():
        framework.begin()
        before = framework.allocate(5 << 20)
        yield
        framework.free(before)

    @pytest.mark.limit_device_memory("3 MiB")
    def test_small_enough():
        for _ in range(4):
            framework.free(framework.allocate(2 << 20))

    @pytest.mark.limit_device_memory("3 MiB")
    def test_too_large():
        blocks = [framework.allocate(2 << 20) for _ in range(2)]
        for block in blocks:
            framework.free(block)

    @pytest.mark.limit_leaks()
    def test_leaves_nothing():
        framework.free(framework.allocate(2 << 20))

    @pytest.mark.limit_leaks("1 MiB")
    def test_leaves_something():
        kept.append(framework.allocate(4 << 20))

    @pytest.mark.limit_leaks
    @pytest.mark.limit_device_memory(10)
    def test_own_failure_counts_first():
        kept.append(framework.allocate(4 << 20))
        raise KeyError("own")

    def test_without_mark():
        kept.append(framework.allocate(64 << 20))
"""


@pytest.mark.parametrize("mode", ["api", "cli"])
def test_limits(tmp_path, mode):
    run = run_pytest(tmp_path, TESTS, mode=mode)
    assert run.status == 1
    for name in ("small_enough", "leaves_nothing", "without_mark"):
        assert f"PASSED ../test_it.py::test_{name}" in run.stdout
    assert (
        "device 0 (HAL): the test needed 4 MiB more than was in use when it began (5 MiB); the limit is 3 MiB\n"
        in run.stdout
    )
    at_peak = r"  at the peak: 4 MiB in 2 blocks on device 0 \(HAL\), .*small_framework.py:\d+ allocate"
    assert re.search(at_peak, run.stdout), run.stdout
    assert "the test left 4 MiB of device memory behind; the limit is 1 MiB" in run.stdout
    assert "4 MiB in 1 block on device 0 (HAL), " in run.stdout
    assert "FAILED ../test_it.py::test_own_failure_counts_first - KeyError: 'own'" in run.stdout
    recordings = (tmp_path / ".msmemscope-pytest") if mode == "api" else run.output
    assert len(list(recordings.rglob("recording.trace"))) == 1


UNITTESTS = """
    import unittest
    import pytest
    import small_framework as framework

    kept = []

    @pytest.mark.limit_leaks
    class TestOld(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            framework.begin()

        def setUp(self):
            self.block = framework.allocate(1 << 20)

        def tearDown(self):
            framework.free(self.block)

        def test_leaves_nothing(self):
            framework.free(framework.allocate(2 << 20))

        def test_leaves_something(self):
            kept.append(framework.allocate(4 << 20))

        @pytest.mark.limit_device_memory("2 MiB")
        def test_too_large(self):
            framework.free(framework.allocate(3 << 20))

        def test_own_failure(self):
            kept.append(framework.allocate(4 << 20))
            self.assertEqual(1, 2)

        def test_skipped(self):
            kept.append(framework.allocate(4 << 20))
            self.skipTest("own reason")
"""


def test_limits_of_unittest_methods(tmp_path):
    run = run_pytest(tmp_path, UNITTESTS)
    assert run.status == 1
    assert "3 failed, 1 passed, 1 skipped" in run.stdout
    assert "PASSED ../test_it.py::TestOld::test_leaves_nothing" in run.stdout
    assert "the test left 4 MiB of device memory behind; the limit is 0 B" in run.stdout
    assert "the test needed 4 MiB more than was in use when it began (12 MiB); the limit is 2 MiB" in run.stdout
    assert "test_own_failure - AssertionError: 1 != 2" in run.stdout


def test_nothing_happens_without_marks(tmp_path):
    run = run_pytest(tmp_path, "def test_it():\n    pass\n")
    assert run.status == 0
    assert "imported False" in run.stdout
    assert not (tmp_path / ".msmemscope-pytest").exists()


def test_the_place_can_be_chosen(tmp_path):
    place = tmp_path / "elsewhere"
    run = run_pytest(tmp_path, TESTS, f"--msmemscope-output={place}", "-k", "small_enough")
    assert run.status == 0
    assert len(list(place.rglob("recording.trace"))) == 1


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("limit_device_memory('many')", "not 'many'"),
        ("limit_device_memory()", "not None"),
        ("limit_leaks(-1)", "not -1"),
        ("limit_leaks('1 MiB', source='else')", "limit_leaks takes a size and source"),
        ("limit_leaks('1 MiB', other=2)", "limit_leaks takes a size and source"),
    ],
)
def test_wrong_marks_are_refused_before_anything_runs(tmp_path, mark, text):
    run = run_pytest(tmp_path, f"import pytest\n@pytest.mark.{mark}\ndef test_it():\n    print('executed')\n")
    assert run.status == 4
    assert text in run.stderr + run.stdout
    assert "test_it.py::test_it: " in run.stderr + run.stdout, "the test is named"
    assert "executed" not in run.stdout
