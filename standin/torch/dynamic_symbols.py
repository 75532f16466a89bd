"""What a shared library needs from others, as `readelf` tells it; for the generators of stubs."""

import functools
import re
import subprocess
from collections import namedtuple

DynamicSymbols = namedtuple("DynamicSymbols", "defined wanted")


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def needed_libraries(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path))


def imported_symbols(path):
    """Undefined functions as (name, version), version empty when there is none."""
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[6] == "UND":
            name, _, version = fields[7].partition("@")
            yield name, version.lstrip("@")


@functools.cache
def dynamic_symbols(path):
    """Names that a library has for others, and those that it must find when it is loaded; without versions."""
    defined, wanted = set(), set()
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        binding, section, name = fields[4], fields[6], fields[7].partition("@")[0]
        if section != "UND":
            defined.add(name)
        elif binding != "WEAK":
            wanted.add(name)
    return DynamicSymbols(defined, wanted)
