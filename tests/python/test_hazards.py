"""Mistakes of our own inside a job: they end neither it nor what it does."""

import pytest
from msmemscope import _internal


def test_a_panic_is_an_ordinary_exception():
    with pytest.raises(RuntimeError, match="on purpose") as caught:
        _internal.panic_on_purpose(False)
    assert isinstance(caught.value, Exception), "what 'except Exception' of a job does not catch ends it"


def test_a_panic_in_a_callback_goes_no_further(capfd):
    _internal.panic_on_purpose(True)
    assert "on purpose" in capfd.readouterr().err
