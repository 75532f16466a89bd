"""What a shared library needs from others, as `readelf` tells it; for the generators of stubs."""

import re
import subprocess


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
