"""What a dataset holds, compared with what its manifests say it should hold.

``msmemscope export`` writes the manifest of a recording last, so one that was interrupted has none or one that does not
fit. A recording counts as a whole or not at all: rows of some of its tables without the others would give numbers that
look right and are not.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

TABLES = ("events", "blocks", "steps", "stacks", "frames", "recordings")
SCHEMA_VERSION = 1
FORMAT = "msmemscope-dataset-part"

_MANIFESTS = "_manifests"
_PART = re.compile(r"part-v(\d+)-.*\.parquet")
_MAGIC = b"PAR1"
_CHUNK_BYTES = 1 << 20
# A larger job has not all of its missing ranks looked for.
_LARGEST_WORLD = 1 << 20


class Contents:
    """The files of every table that count, and what is wrong with the others."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {table: [] for table in TABLES}
        self.problems: list[str] = []

    @classmethod
    def of(cls, dataset: Path, *, is_thorough: bool = False) -> Contents:
        """Looks at names and sizes, or at every byte."""
        contents = cls()
        there = {
            path.relative_to(dataset).as_posix(): path
            for table in TABLES
            for path in sorted((dataset / table).glob("**/*.parquet"))
        }
        whole = []
        named: set[str] = set()
        for path in sorted((dataset / _MANIFESTS).glob("*.json")):
            manifest, problem = _read(path)
            if manifest is None:
                contents.problems.append(f"{path}: {problem}")
                continue
            named.update(entry["path"] for entry in manifest["files"])
            faults = [fault for entry in manifest["files"] if (fault := _fault(there, entry, is_thorough))]
            if faults:
                more = f" and {len(faults) - 1} more files" if len(faults) > 1 else ""
                contents.problems.append(f"{_name(manifest)} left out: {faults[0]}{more}")
            else:
                whole.append(manifest)
        unnamed: dict[str, list[str]] = {}
        for name in sorted(there.keys() - named):
            unnamed.setdefault(PurePosixPath(name).name, []).append(name)
        for names in unnamed.values():
            more = f" and {len(names) - 1} more of this name" if len(names) > 1 else ""
            contents.problems.append(f"{there[names[0]]}{more} left out: {_why_unnamed(names[0])}")
        for manifest in contents._latest(whole):
            for entry in manifest["files"]:
                contents.files[PurePosixPath(entry["path"]).parts[0]].append(str(there[entry["path"]]))
        return contents

    def _latest(self, manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of every rank the processes of its last run: it ran again if they began when all before them had ended.

        Those that run side by side help each other. Questions know processes without a rank by their number.
        """
        runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for manifest in sorted(manifests, key=lambda manifest: manifest["start_ns"]):
            rank = manifest["rank"]
            key = (manifest["job"], rank, manifest["process_id"] if rank < 0 else None)
            earlier = runs.setdefault(key, [])
            if earlier and manifest["start_ns"] >= max(_end_ns(one) for one in earlier):
                again = f"it ran again as process {manifest['process_id']}"
                self.problems.extend(f"{_name(one)} left out: {again}" for one in earlier)
                earlier.clear()
            earlier.append(manifest)
        latest = [manifest for run in runs.values() for manifest in run]
        self._look_for_missing(latest)
        return latest

    def _look_for_missing(self, manifests: list[dict[str, Any]]) -> None:
        for job in sorted({manifest["job"] for manifest in manifests}):
            own = [manifest for manifest in manifests if manifest["job"] == job]
            sizes = {manifest["world_size"] for manifest in own if manifest["rank"] >= 0 and manifest["world_size"]}
            if len(sizes) > 1:
                self.problems.append(f"job {job}: its processes speak of {_list(sorted(sizes))} ranks")
            elif sizes and (size := sizes.pop()) <= _LARGEST_WORLD:
                missing = sorted(set(range(size)) - {manifest["rank"] for manifest in own})
                if missing:
                    noun = "rank" if len(missing) == 1 else "ranks"
                    self.problems.append(f"job {job}: {noun} {_list(missing)} of {size} missing")


def _end_ns(manifest: dict[str, Any]) -> int:
    """When a process ended; manifests that do not say so yet are of processes that ran one after the other."""
    end_ns = manifest.get("end_ns")
    return end_ns if isinstance(end_ns, int) else manifest["start_ns"]


def _list(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    return f"{shown} and {len(numbers) - 8} more" if len(numbers) > 8 else shown


def _name(manifest: dict[str, Any]) -> str:
    who = f"rank {manifest['rank']}" if manifest["rank"] >= 0 else f"process {manifest['process_id']}"
    return f"{who} of job {manifest['job']}"


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A manifest, or why it is none."""
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return None, f"damaged manifest ({error})"
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return None, "not a manifest of msmemscope"
    if manifest.get("version") != SCHEMA_VERSION:
        return None, f"version {manifest.get('version')}, and this package knows version {SCHEMA_VERSION}"
    kinds = {"job": str, "rank": int, "process_id": int, "start_ns": int, "files": list}
    if not all(isinstance(manifest.get(field), kind) for field, kind in kinds.items()):
        return None, "damaged manifest (a field is missing)"
    if not isinstance(manifest.get("world_size"), (int, type(None))):
        return None, "damaged manifest (world_size)"
    if not all(_is_entry(entry) for entry in manifest["files"]):
        return None, "damaged manifest (a file of it)"
    return manifest, ""


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        return False
    parts = PurePosixPath(entry["path"]).parts
    is_inside = bool(parts) and parts[0] in TABLES and ".." not in parts
    return is_inside and all(isinstance(entry.get(field), int) for field in ("bytes", "crc32"))


def _fault(there: dict[str, Path], entry: dict[str, Any], is_thorough: bool) -> str | None:
    """What is wrong with a file that a manifest names."""
    path = there.get(entry["path"])
    if path is None:
        return f"{entry['path']} is missing"
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"{entry['path']} is damaged: {size} bytes of {entry['bytes']}"
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(-4, 2)
            if (start, file.read(4)) != (_MAGIC, _MAGIC):
                return f"{entry['path']} is damaged"
            if is_thorough:
                file.seek(0)
                checksum = 0
                while chunk := file.read(_CHUNK_BYTES):
                    checksum = zlib.crc32(chunk, checksum)
                if checksum != entry["crc32"]:
                    return f"{entry['path']} is damaged: its checksum is another one"
    except OSError as error:
        return f"{entry['path']} cannot be read: {error.strerror}"
    return None


def _why_unnamed(name: str) -> str:
    """Why a file belongs to nobody."""
    part = _PART.fullmatch(PurePosixPath(name).name)
    if not part:
        return "not written by msmemscope"
    if int(part[1]) != SCHEMA_VERSION:
        return f"version {part[1]}, and this package knows version {SCHEMA_VERSION}"
    return "no manifest names it: a copy, what is left of an earlier export, or of one that was interrupted"
