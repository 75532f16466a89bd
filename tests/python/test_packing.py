"""What the doors for other machines are made of: where cargo keeps its files, how a wheel is packed and looked into."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import zipfile

import pytest
from running import ROOT

SCRIPTS = ROOT / "scripts"


def load(name):
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = writes
    return module


def cargo_home(tmp_path, home):
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_HOME"}
    command = [SCRIPTS / "cargo-home", tmp_path / "below"]
    said = subprocess.run(command, env={**environment, "HOME": str(home)}, check=True, capture_output=True, text=True)
    return said.stdout.strip()


def test_cargo_stays_out_of_a_home_that_cannot_be_written_to(tmp_path):
    (tmp_path / "home").mkdir()
    assert cargo_home(tmp_path, tmp_path / "home") == str(tmp_path / "home/.cargo")
    assert cargo_home(tmp_path, "/proc/self") == str(tmp_path / "below")
    assert (tmp_path / "below").is_dir()


@pytest.fixture
def wheel(tmp_path):
    """A wheel of the package, with any file for an extension."""
    dist_info = tmp_path / "msmemscope-1.2.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.4\nName: msmemscope\nVersion: 1.2\n")
    (dist_info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp39-abi3-linux_x86_64\n")
    extension = tmp_path / "extension.so"
    extension.write_bytes(b"\x7fELF")
    tag = "manylinux_2_17_aarch64.manylinux2014_aarch64"
    subprocess.run(
        [sys.executable, SCRIPTS / "pack-wheel", ROOT, extension, dist_info, tag, tmp_path],
        check=True,
        capture_output=True,
    )
    return tmp_path / f"msmemscope-1.2-cp39-abi3-{tag}.whl"


def test_a_packed_wheel_has_what_pip_needs(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read("msmemscope-1.2.dist-info/WHEEL").decode()
        listed = {line.split(",")[0] for line in archive.read("msmemscope-1.2.dist-info/RECORD").decode().splitlines()}
        assert set(archive.namelist()) == listed
        launcher = archive.getinfo("msmemscope-1.2.data/scripts/msmemscope")
    assert about.count("Tag: ") == 2 and "Tag: cp39-abi3-manylinux2014_aarch64\n" in about
    assert launcher.external_attr >> 16 & 0o777 == 0o755
    assert not [name for name in listed if "__pycache__" in name]
    target = ["--platform", "manylinux2014_aarch64", "--python-version", "3.9", "--target", tmp_path / "installed"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*command, "--only-binary=:all:", *target, wheel], check=True)
    assert (tmp_path / "installed/msmemscope/__init__.py").exists()


def test_names_that_an_old_c_library_lacks_are_found(tmp_path):
    source = tmp_path / "newer.c"
    source.write_text("int newer_than_the_c_library(void); int call(void) { return newer_than_the_c_library(); }")
    library = tmp_path / "libnewer.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert load("check-wheels").unversioned(library) == ["newer_than_the_c_library"]


def test_instructions_that_cannot_be_counted_are_left_out(tmp_path):
    """Where valgrind is missing and nobody may install it."""
    budget = [sys.executable, ROOT / "bench" / "instruction_budget.py"]
    counted = subprocess.run(budget, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (counted.returncode, counted.stderr) == (0, "")
    assert counted.stdout.startswith("instructions per event are left out: ") and counted.stdout.count("\n") == 1
