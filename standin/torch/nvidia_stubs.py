"""Generates stubs for the NVIDIA libraries that PyPI's x86_64 build of torch is linked against.

The wheels of those libraries take more than three gigabytes and nothing of them is used on a machine with neither a
GPU nor an NPU. A stub defines every symbol that torch imports, under the version torch asks for; every function
returns "no device".

Usage: nvidia_stubs.py <site-packages>
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from dynamic_symbols import imported_symbols, needed_libraries, readelf

# What a library of this kind is called; everything else that torch needs is on every machine or in its own wheel.
NVIDIA_LIBRARY = re.compile(r"^lib(cu|nv|nccl)")
# Symbols without a version that belong to one of those libraries.
NVIDIA_SYMBOL = re.compile(r"^(cu[A-Zdbfrspt]|nccl|nvshmem|nvtx|nvml|nvJitLink|cupti)")
# Functions that hand out a text through their second argument; others return it.
TEXT_ARGUMENT = re.compile(r"^(cuGetError|cuptiGet\w*String)")
NO_DEVICE = 100


def version_owners(path):
    """Library that each imported version comes from."""
    owners = {}
    library = None
    for line in readelf("-V", path).splitlines():
        if found := re.search(r"Version: 1\s+File: (\S+)", line):
            library = found.group(1)
        elif (found := re.search(r"Name: (\S+)\s+Flags:", line)) and library:
            owners[found.group(1)] = library
    return owners


def build_stub(directory, library, symbols):
    """Links a stub `library` with `symbols`: a mapping from version to names."""
    source = ['static const char *text(void) { return "no NVIDIA device"; }']
    versions = []
    for version, names in sorted(symbols.items()):
        for name in sorted(names):
            if TEXT_ARGUMENT.match(name):
                source.append(f"int {name}(int code, const char **out) {{ *out = text(); return 0; }}")
            elif name.endswith(("String", "ErrorName", "get_error_string")):
                source.append(f"const char *{name}(void) {{ return text(); }}")
            else:
                source.append(f"int {name}(void) {{ return {NO_DEVICE}; }}")
        if version:
            versions.append(f"{version} {{ global: {'; '.join(sorted(names))}; }};")
    with tempfile.TemporaryDirectory() as scratch:
        code = Path(scratch, "stub.c")
        code.write_text("\n".join(source))
        script = Path(scratch, "versions")
        script.write_text("\n".join(versions))
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", "-fno-builtin", code, f"-Wl,-soname,{library}"]
        if versions:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, "-o", Path(directory, library)], check=True)


def stub_directory(site_packages):
    """A directory in which torch looks for the CUDA runtime."""
    paths = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", readelf("-d", site_packages / "torch/lib/libtorch_cuda.so"))
    found = [path for path in ":".join(paths).split(":") if re.search(r"nvidia/(cu\d+|cuda_runtime)/lib", path)]
    return site_packages / "torch/lib" / found[0].replace("$ORIGIN/", "")


def main():
    site_packages = Path(sys.argv[1])
    libraries = set()
    unversioned = set()
    symbols = defaultdict(lambda: defaultdict(set))
    for path in sorted((site_packages / "torch" / "lib").glob("*.so*")):
        # The wheel for aarch64 brings NVIDIA's libraries for the processor along.
        wanted = {
            name for name in needed_libraries(path) if NVIDIA_LIBRARY.match(name) and not (path.parent / name).exists()
        }
        libraries |= wanted
        if not wanted:
            continue
        owners = version_owners(path)
        for name, version in imported_symbols(path):
            owner = owners.get(version)
            if owner and NVIDIA_LIBRARY.match(owner):
                symbols[owner][version].add(name)
            elif not version and NVIDIA_SYMBOL.match(name):
                unversioned.add(name)
    # A symbol without a version is found in whatever library has it.
    symbols[min(name for name in libraries if name.startswith("libcudart"))][""] = unversioned
    destination = stub_directory(site_packages)
    destination.mkdir(parents=True, exist_ok=True)
    for library in sorted(libraries):
        build_stub(destination, library, symbols[library])
    print(f"{len(libraries)} NVIDIA stubs in {destination}")


if __name__ == "__main__":
    main()
