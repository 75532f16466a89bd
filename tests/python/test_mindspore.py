"""How MindSpore's refusals are told from other exceptions; without MindSpore."""

import pytest
from msmemscope._mindspore import find_refusal


@pytest.mark.parametrize(
    "text",
    [
        "Allocate memory failed\n\n- C++ Call Stack: (For framework developers)",
        "Device(id:0) memory isn't enough and alloc failed, kernel name: Add, alloc size: 1073741824B.",
        "Memory not enough: current free memory size[1] is smaller than required size[2]",
    ],
)
def test_refusals_are_known_by_their_words(text):
    refusal = RuntimeError(text)
    assert find_refusal(refusal) is refusal


def test_a_refusal_behind_another_exception_is_found():
    refusal = RuntimeError("Allocate memory failed")
    later = ValueError("step 3")
    later.__cause__ = refusal
    assert find_refusal(later) is refusal


def test_other_exceptions_are_none():
    assert find_refusal(None) is None
    assert find_refusal(RuntimeError("shapes do not fit")) is None
    assert find_refusal(ValueError("Allocate memory failed")) is None
    circle, other = RuntimeError("one"), KeyError("two")
    circle.__context__, other.__context__ = other, circle
    assert find_refusal(circle) is None
