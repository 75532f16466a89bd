"""Makes a home of CANN out of the stand-in device for a release of MindSpore.

MindSpore's plugin for Ascend wants more than the stand-in has: to be found below a directory called `latest`, libraries
of many names, and at load time every function of CANN that it may ever call, most of them the graph engine's in C++.
What the wheel itself asks for and nobody has is generated here: libraries of those names, and functions that return
zero, which nobody calls: operators that the stand-in computes do not go through the graph engine.

Usage: home.py <site-packages> <stand-in device> <home to be made, called latest>
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "torch"))

from dynamic_symbols import dynamic_symbols, needed_libraries  # noqa: E402

# All functions that are generated, in one library: the empty ones of other names need it.
REST = "libcann_rest.so"
# What has to be an object; its name as it is mangled.
STATUS_FACTORY = "_ZN2ge13StatusFactory8InstanceEv"
# Beginnings of names in the plugin's directory that are not loaded for training: plugins for other
# devices, pictures, whole models.
LEFT_OUT = ("libmindspore_gpu", "libmindspore_ops_gpu", "libmindspore_ops_cpu", "libdvpp_utils", "libllama_op")
# Of the interpreter, which is there when the plugin is loaded.
OF_PYTHON = ("Py", "_Py")
# Where CANN keeps the Python code of its operators. Empty: with a module `te` MindSpore would look for all its parts.
OPERATOR_MODULES = "opp/built-in/op_impl/ai_core/tbe"


def is_shared_library(path):
    return path.is_file() and ".so" in path.suffixes


class Wheel:
    """The plugin for Ascend in a wheel, and everything else in it that could serve it."""

    def __init__(self, site_packages):
        package = Path(site_packages, "mindspore")
        plugin = package / "lib" / "plugin"
        libraries = [path for path in package.rglob("*") if is_shared_library(path)]
        self.plugin = [path for path in libraries if path.parent in (plugin, plugin / "ascend")]
        self.plugin += [path for path in (plugin / "ascend").glob("ms_kernels_*/**/*") if is_shared_library(path)]
        self.plugin = [path for path in self.plugin if not path.name.startswith(LEFT_OUT)]
        self.names = {path.name for path in libraries}
        # The release of CANN that this one was made for.
        text = (plugin / "ascend" / "custom_ascendc_910b" / "version.info").read_text()
        self.cann_release = text.strip().rpartition("=")[2]
        self.defined = {name for path in libraries for name in dynamic_symbols(path).defined}


def system_library(name):
    """Where the linker finds a library of the system; None if there is none of this name."""
    answer = subprocess.run(
        ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return Path(answer) if os.path.isabs(answer) else None


def missing(wheel, device_libraries):
    """Names of libraries that the plugin needs and nobody has, and functions likewise."""
    of_device = {path.name for path in device_libraries}
    names, functions = set(), set()
    defined = wheel.defined.union(*(dynamic_symbols(path).defined for path in device_libraries))
    for path in wheel.plugin:
        for name in needed_libraries(path):
            # Code for the card's own processors wants the loader of another architecture.
            if name in wheel.names or name in of_device or name.startswith("ld-linux"):
                continue
            library = system_library(name)
            if library is None:
                names.add(name)
            else:
                defined |= dynamic_symbols(library).defined
        functions |= dynamic_symbols(path).wanted
    functions = {name for name in functions - defined if not name.startswith(OF_PYTHON)}
    return names, functions


def compile_library(arguments, soname, path):
    subprocess.run(["g++", "-shared", "-fPIC", "-w", *arguments, f"-Wl,-soname,{soname}", "-o", path], check=True)


def generate(names, functions, directory):
    """Writes the libraries that are missing."""
    source = [f"int {name}(void) {{ return 0; }}" for name in sorted(functions) if name != STATUS_FACTORY]
    with tempfile.TemporaryDirectory() as scratch:
        stubs = Path(scratch, "stubs.c")
        stubs.write_text("\n".join(source) + "\n")
        objects = [Path(scratch, "stubs.o"), Path(scratch, "status_factory.o")]
        subprocess.run(["cc", "-c", "-fPIC", "-w", "-fno-builtin", stubs, "-o", objects[0]], check=True)
        factory = ["-O1", "-D_GLIBCXX_USE_CXX11_ABI=0", "-fvisibility=hidden", HERE / "status_factory.cpp"]
        subprocess.run(["g++", "-c", "-fPIC", *factory, "-o", objects[1]], check=True)
        compile_library(objects, REST, directory / REST)
    for name in names:
        rest = ["-Wl,--no-as-needed", f"-L{directory}", f"-l:{REST}", "-Wl,-rpath,$ORIGIN"]
        compile_library(["-x", "c", "/dev/null", "-x", "none", *rest], name, directory / name)


def write_releases(home, release):
    """What MindSpore reads to learn which release of CANN is installed, and directories that it looks for."""
    for name in (OPERATOR_MODULES, "opp_kernel"):
        (home / name).mkdir(parents=True)
    files = {
        "compiler/version.info": f"Version={release}\n",
        "python/hccl/__init__.py": "",
        "python/hccl/sys_version.py": f"__sys_version__ = {release!r}\n",
    }
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def link(target, place):
    place.symlink_to(os.path.relpath(target.resolve(), place.parent.resolve()))


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: home.py <site-packages> <stand-in device> <home>")
    site_packages, device, home = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    shutil.rmtree(home, ignore_errors=True)
    libraries = home / "lib64"
    libraries.mkdir(parents=True)
    # The device has a few libraries without any function: here they have them.
    of_device = [path for path in sorted((device / "lib64").glob("*.so")) if dynamic_symbols(path).defined]
    atb = device / "atb" / "cxx_abi_0" / "lib" / "libatb.so"
    wheel = Wheel(site_packages)
    names, functions = missing(wheel, [*of_device, atb])
    generate(names, functions, libraries)
    for path in of_device:
        link(path, libraries / path.name)
    for name in ("include", "atb"):
        link(device / name, home / name)
    write_releases(home, wheel.cann_release)
    print(f"{home}: {len(names)} libraries and {len(functions)} functions of CANN were generated")


if __name__ == "__main__":
    main()
