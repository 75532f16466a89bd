"""The pytest plugin with tensors: what counts is the memory of tensors, not what the framework keeps in reserve."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_pytest

TESTS = """
    import pytest
    import torch, torch_npu

    kept = []

    @pytest.mark.limit_device_memory("9 MiB")
    @pytest.mark.limit_leaks("0")
    def test_clean():
        first = torch.ones(1 << 20, device="npu")
        second = first + 1

    @pytest.mark.limit_device_memory("9 MiB")
    def test_too_large():
        return_value = [torch.ones(1 << 20, device="npu") for _ in range(3)]  # there

    @pytest.mark.limit_leaks("1 KiB")
    def test_keeps_a_tensor():
        kept.append(torch.ones(1 << 20, device="npu"))  # here
"""


def test_limits_of_tensors(tmp_path):
    run = run_pytest(tmp_path, TESTS)
    assert run.status == 1, run.stdout
    assert "PASSED ../test_it.py::test_clean" in run.stdout
    assert "device 0 (PTA): the test needed 12 MiB more" in run.stdout
    assert "the test left 4 MiB of device memory behind; the limit is 1 KiB" in run.stdout
    line = 1 + TESTS.splitlines().index(
        '        return_value = [torch.ones(1 << 20, device="npu") for _ in range(3)]  # there'
    )
    assert "  at the peak: 12 MiB in 3 blocks on device 0 (PTA), " in run.stdout
    assert f"test_it.py:{line} test_too_large" in run.stdout
    line = 1 + TESTS.splitlines().index('        kept.append(torch.ones(1 << 20, device="npu"))  # here')
    assert f"test_it.py:{line} test_keeps_a_tensor" in run.stdout
