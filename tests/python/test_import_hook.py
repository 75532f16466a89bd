"""Callbacks at the end of imports, also of those that are under way."""

import importlib
import importlib.machinery
import sys

import pytest
from msmemscope import _import_hook


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module that runs some code in the middle of its import."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def make(name, code):
        (tmp_path / f"{name}.py").write_text(code)
        names.append(name)
        return name

    yield make
    for name in names:
        sys.modules.pop(name, None)


WAITS = """
from msmemscope import _import_hook
import calls
assert not _import_hook.is_imported(__name__)
_import_hook.when_imported(__name__, lambda: calls.made.append((__name__, complete)))
assert calls.made == []
complete = False
{rest}
complete = True
"""


@pytest.fixture
def calls(module):
    module("calls", "made = []")
    import calls

    return calls


def test_a_module_whose_import_is_under_way(module, calls):
    name = module("waited_for", WAITS.format(rest=""))
    __import__(name)
    assert calls.made == [(name, True)]
    assert type(sys.modules[name].__spec__) is importlib.machinery.ModuleSpec
    assert _import_hook.is_imported(name)
    assert name not in _import_hook._callbacks


def test_an_import_that_fails_is_awaited_again(module, calls):
    name = module("fails_once", WAITS.format(rest="if not calls.made: calls.made = [0]; raise KeyError('first')"))
    with pytest.raises(KeyError, match="first"):
        __import__(name)
    assert calls.made == [0], "nothing was called for the import that failed"
    calls.made = []
    module(name, "complete = True")
    __import__(name)
    assert len(calls.made) == 1
    assert name not in _import_hook._callbacks


def test_a_mistake_of_ours_does_not_fail_the_import(module, capsys):
    name = module("innocent", "complete = True")

    def fail():
        raise AttributeError("a mistake")

    _import_hook.when_imported(name, fail)
    assert importlib.import_module(name).complete
    assert "innocent is not followed: AttributeError: a mistake" in capsys.readouterr().err
