"""Reads the ground-truth log of the stand-in device; the layout is described in standin/truth/src/format.rs."""

import struct
from collections import namedtuple
from pathlib import Path

LINE_BYTES = 64
CONTINUATION = 0xFFFFFFFF
NO_TEXT = 0xFFFFFFFF
KINDS = {
    1: "alloc",
    2: "free",
    3: "create",
    4: "release",
    5: "map",
    6: "unmap",
    7: "reserve",
    8: "address_free",
    9: "host_register",
    10: "host_unregister",
    16: "mark",
    17: "range_start",
    18: "range_end",
    19: "domain_create",
    20: "domain_destroy",
    21: "domain_mark",
    22: "domain_range_start",
    23: "domain_range_end",
    24: "heap_register",
    25: "heap_unregister",
    26: "region_register",
    27: "region_unregister",
    32: "acl_init",
    33: "acl_finalize",
    34: "set_device",
    40: "operator",
    48: "kernel_launch",
    49: "kernel_start",
    50: "kernel_end",
}
Entry = namedtuple("Entry", "process library kind sequence time address size flags device result thread text")


def read_file(path):
    with open(path, "rb") as file:
        header = file.read(LINE_BYTES)
        magic, process, _, lines, _ = struct.unpack("<8sIIQQ", header[:32])
        assert magic == b"STANDIN1", path
        library = header[32:].rstrip(b"\0").decode()
        entries = []
        for _ in range(lines - 1):
            line = file.read(LINE_BYTES)
            kind, text_bytes = struct.unpack("<II", line[:8])
            if kind == CONTINUATION and entries:
                text = entries[-1].text + line[4:]
                entries[-1] = entries[-1]._replace(text=text)
            elif kind in KINDS:
                numbers = struct.unpack("<QQQQQiiI", line[8:60])
                text = None if text_bytes == NO_TEXT else b""
                entries.append(Entry(process, library, KINDS[kind], *numbers, text))
    return [
        entry if entry.text is None else entry._replace(text=entry.text.rstrip(b"\0").decode()) for entry in entries
    ]


def read(directory):
    """All calls of all processes in their order."""
    entries = [entry for path in Path(directory).glob("*.truth") for entry in read_file(path)]
    return sorted(entries, key=lambda entry: entry.sequence)


def live_bytes(entries, device=0):
    """Bytes of a device that are in use after these calls."""
    live = {}
    for entry in entries:
        if entry.result != 0 or entry.device != device:
            continue
        if entry.kind in ("alloc", "create"):
            live[entry.kind, entry.address] = entry.size
        elif entry.kind in ("free", "release"):
            del live["alloc" if entry.kind == "free" else "create", entry.address]
    return sum(live.values())
