"""In notebooks: one short line instead of a report, cells by their numbers, and the magic ``%%memscope``.

Nothing here is imported before IPython is, and nothing of IPython is imported outside of it.
"""

from __future__ import annotations

import ast
import html
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _internal

_MAGIC = "memscope"
_LINES = 10
_WIDTH, _HEIGHT = 480, 120
_POOLS = {
    "HAL": "driver",
    "PTA": "PyTorch caching",
    "PTA_WORKSPACE": "PyTorch workspace",
    "ATB": "ATB",
    "MINDSPORE": "MindSpore",
}

Curve = Sequence[tuple[int, int]]


def shell() -> Any:
    """The shell of a notebook's kernel, or None."""
    if "ipykernel" not in sys.modules:
        return None
    interactive = sys.modules.get("IPython")
    return None if interactive is None else interactive.get_ipython()


def _cell_numbers() -> Mapping[str, int]:
    """The numbers of cells by the files that stand for them."""
    return getattr(getattr(shell(), "compile", None), "_filename_map", None) or {}


def _current_cell() -> int:
    """The number of the cell that runs. When the shell counts on differs between its versions."""
    return max(_cell_numbers().values(), default=shell().execution_count)


def name_cells(text: str) -> str:
    """The text with cells by their numbers, as the notebook shows them, instead of the files that stand for them."""
    names = _cell_numbers()
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, f"In [{names[name]}]")
    return text


def short_line(report: str, directory: Path) -> str:
    """What a report says first, in one line, and where the rest is."""
    answer = re.split(r"\n\s*\n", report.strip(), maxsplit=1)[0]
    return f"{name_cells(' '.join(answer.split()))} Report: {shlex.quote(str(_near(directory / 'report.txt')))}"


def _near(path: Path) -> Path:
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):
        return path


def _size(size: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def _pool_name(pool: str) -> str:
    return _POOLS.get(pool, pool)


class CellMemory:
    """What a cell did with device memory: a table and curves in a notebook, lines of text elsewhere."""

    def __init__(self, peaks: list, at_peak: list, kept: list, curves: list) -> None:
        self.peaks = [row for row in peaks if row[3] > 0]
        self.at_peak = at_peak
        self.kept = kept
        self._curves = {(pool, device): curve for pool, device, curve in curves}

    def __repr__(self) -> str:
        if not self.peaks:
            return "No device memory was used in this cell."
        lines = []
        for pool, device, before, peak in self.peaks:
            lines.append(
                f"device {device}, {_pool_name(pool)}: peak {_size(peak)} ({_size(before)} before, "
                f"{_size(self._kept_bytes(pool, device))} of the cell kept)"
            )
            lines += [
                f"  {_size(size)} at {name_cells(line) or 'no line'}" for line, _, size in self._lines(pool, device)
            ]
        return "\n".join(lines)

    def _kept_bytes(self, pool: str, device: str) -> int:
        return sum(row[4] for row in self.kept if row[:2] == (pool, device))

    def _lines(self, pool: str, device: str) -> list[tuple[str, int, int]]:
        return [row[2:] for row in self.at_peak if row[:2] == (pool, device)][:_LINES]

    def _repr_html_(self) -> str:
        if not self.peaks:
            return f"<p>{self!r}</p>"
        return "".join(self._pool_html(*row) for row in self.peaks)

    def _pool_html(self, pool: str, device: str, before: int, peak: int) -> str:
        kept = {row[2]: row[4] for row in self.kept if row[:2] == (pool, device)}
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name_cells(line) or 'no line')}</td><td>{blocks}</td>"
            f"<td>{_size(size)}</td><td>{_size(kept.get(line, 0))}</td></tr>"
            for line, blocks, size in self._lines(pool, device)
        )
        title = (
            f"Device {html.escape(device)}, {html.escape(_pool_name(pool))}: peak {_size(peak)} "
            f"({_size(before)} before the cell, {_size(self._kept_bytes(pool, device))} of the cell kept)"
        )
        head = "<tr><th style='text-align:left'>line</th><th>blocks</th><th>at the peak</th><th>kept</th></tr>"
        table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<div><p><b>{title}</b></p>{_curve_svg(self._curves.get((pool, device), ()), before)}{table}</div>"


def _curve_svg(curve: Curve, before: int) -> str:
    """Memory in use over the time of the cell, as steps."""
    if not curve:
        return ""
    first, last = curve[0][0], curve[-1][0]
    highest = max(before, max(used for _, used in curve), 1)

    def column(time: int) -> float:
        return 0.0 if last == first else (time - first) / (last - first) * _WIDTH

    def row(used: int) -> float:
        return _HEIGHT - used / highest * (_HEIGHT - 2)

    points, height = [f"0,{row(before):.1f}"], row(before)
    for time, used in curve:
        points.append(f"{column(time):.1f},{height:.1f}")
        height = row(used)
        points.append(f"{column(time):.1f},{height:.1f}")
    points.append(f"{_WIDTH},{height:.1f}")
    line = f"<polyline points='{' '.join(points)}' fill='none' stroke='currentColor' stroke-width='1.5'/>"
    scale = f"{_size(highest)} at most, {(last - first) / 1e6:.1f} ms"
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{scale}'>"
        f"<title>{scale}</title>{line}</svg>"
    )


def memscope(line: str, cell: str) -> Any:
    """Run a cell and show what it did with device memory: peaks, the lines that hold most, a curve.

    Settings of ``config()`` may follow the name, as ``%%memscope call_stack=python:20``.
    """
    from IPython.display import display

    from . import _session

    settings = dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)
    wrong = [word for word in shlex.split(line) if "=" not in word]
    if wrong:
        raise ValueError(f"%%{_MAGIC} takes settings as key=value, not {wrong[0]!r}")
    if settings:
        _session.config(**settings)
    was_recording = _internal.state() == _internal.ON
    if not was_recording:
        _session.start()
    number = _current_cell()
    begin, end = (f"notebook {word} of cell {number}" for word in ("begin", "end"))
    _internal.mark(begin)
    try:
        return _execute(cell)
    finally:
        _internal.mark(end)
        if not was_recording:
            _session.stop(finish=False)
        directory = _session.recording_directory()
        found: tuple[list, list, list, list] = ([], [], [], [])
        if directory is not None:
            found = _internal.memory_between(str(directory / "recording.trace"), begin, end)
        display(CellMemory(*found))


def _execute(cell: str) -> Any:
    """Runs the code of a cell as the kernel would; gives the value of its last expression."""
    ip = shell()
    source = "\n" + ip.transform_cell(cell)  # the magic is the first line of what people see
    name = ip.compile.cache(source, _current_cell())
    tree = ip.transform_ast(ip.compile.ast_parse(source, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), ip.user_ns)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), ip.user_ns)


def register() -> None:
    """Makes the magic known, if this is a notebook."""
    interactive = shell()
    if interactive is not None:
        interactive.register_magic_function(memscope, "cell", _MAGIC)
