"""The package itself: what it needs, what it offers, and that its examples are true."""

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys

import msmemscope
import pytest
from running import PACKAGE, ROOT


def test_importing_needs_nothing_else():
    code = """
        import sys
        class Refuse:
            def find_spec(self, name, *_):
                if name.partition(".")[0] in ("torch", "torch_npu", "mindspore", "mstx", "numpy", "packaging"):
                    raise AssertionError(name)
        sys.meta_path.insert(0, Refuse())
        import msmemscope, msmemscope.describe, msmemscope.hijacker.manager
        for name in msmemscope.__all__:
            getattr(msmemscope, name)
    """
    lines = [line[8:] for line in code.splitlines()]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env={"PYTHONPATH": str(PACKAGE)})


def test_importing_leaves_nothing_behind(tmp_path):
    subprocess.run(
        [sys.executable, "-c", "import msmemscope"], cwd=tmp_path, check=True, env={"PYTHONPATH": str(PACKAGE)}
    )
    assert list(tmp_path.iterdir()) == []


def modules():
    for module in pkgutil.walk_packages(msmemscope.__path__, "msmemscope."):
        if "_torch" not in module.name and not module.name.endswith(("_attach", "_internal")):
            yield module.name


@pytest.mark.parametrize("name", ["msmemscope", *modules()])
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS)
    assert failed == 0


def test_examples_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = doctest.IGNORE_EXCEPTION_DETAIL
    guide = str(ROOT / "docs" / "python.md")
    failed, tried = doctest.testfile(guide, module_relative=False, optionflags=options)
    assert (failed, tried) == (0, 8)


def test_everything_public_is_documented():
    for name in msmemscope.__all__:
        assert name.startswith("__") or getattr(msmemscope, name).__doc__, name


def test_the_stubs_name_what_the_native_half_has():
    tree = ast.parse((PACKAGE / "msmemscope" / "_internal.pyi").read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    stubs = {node.name for node in tree.body if isinstance(node, kinds)}
    stubs |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    native = {name for name in dir(msmemscope._internal) if not name.startswith("_")}
    assert native == {name for name in stubs if not name.startswith("_")}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in native:
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            members |= {member.target.id for member in node.body if isinstance(member, ast.AnnAssign)}
            there = {name for name in vars(getattr(msmemscope._internal, node.name)) if not name.startswith("_")}
            assert there == {name for name in members if not name.startswith("_")}, node.name


def test_older_package_offers_the_same():
    import msleaks

    for name in msmemscope.__all__:
        assert getattr(msleaks, name) is getattr(msmemscope, name)


def test_a_recorder_of_another_version_is_refused(run):
    one = run("""
        import msmemscope
        msmemscope._recorder._failure = "version 9 instead of 1"
        msmemscope._internal.is_attached = lambda: False
        try:
            msmemscope.start()
        except msmemscope.exceptions.RecorderError as error:
            print(error)
    """)
    assert one.stdout == "version 9 instead of 1\n"


def test_the_package_is_the_program():
    command = [sys.executable, "-m", "msmemscope", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE)
    assert result.returncode == 0 and result.stdout.startswith("msmemscope version "), result.stderr
