"""Generates a stub for the functions of CANN that a release of torch_npu is linked against and the stand-in lacks.

Older releases bind all functions when they are loaded, and some describe operators to the graph engine meanwhile, in
C++. Nobody asks the graph engine afterwards, so its functions do nothing; functions of collective communication fail.
The stub is called `libgraph.so` and lies where torch_npu itself looks first. torch_npu names `libhccl.so` before it,
so what the stand-in has is preferred to the stub.

Usage: cann_stubs.py <site-packages>
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from dynamic_symbols import imported_symbols

LIBRARY = "libgraph.so"
# Members of the namespace `ge`, as they are mangled.
GRAPH_ENGINE = re.compile(r"^_ZNK?2ge\d")
COLLECTIVES = re.compile(r"^Hccl[A-Z]")
NOT_SUPPORTED = 5


def stub_source(names):
    """Functions in C: they touch no argument, so their types do not matter."""
    source = [f"int {name}(void) {{ return 0; }}" for name in sorted(names) if GRAPH_ENGINE.match(name)]
    source += [f"int {name}(void) {{ return {NOT_SUPPORTED}; }}" for name in sorted(names) if COLLECTIVES.match(name)]
    return source


def main():
    libraries = Path(sys.argv[1], "torch_npu", "lib")
    names = {name for name, _ in imported_symbols(libraries / "libtorch_npu.so")}
    source = stub_source(names)
    if not source:
        return
    with tempfile.TemporaryDirectory() as scratch:
        code = Path(scratch, "stub.c")
        code.write_text("\n".join(source))
        command = [
            os.environ.get("CC", "cc"),
            "-shared",
            "-fPIC",
            "-w",
            code,
            f"-Wl,-soname,{LIBRARY}",
            "-o",
            libraries / LIBRARY,
        ]
        subprocess.run(command, check=True)
    print(f"{len(source)} stubs of CANN functions in {libraries / LIBRARY}")


if __name__ == "__main__":
    main()
