"""What an analysis found, as an object: reports per process, and all findings as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable


class Findings(Sequence):
    """The result of an analysis.

    As a sequence it holds one report, a dictionary, per recorded process. :attr:`rows` are the findings
    of all processes as a flat table, for people and for dataframes.

    >>> findings = Findings([{"devices": []}], [{"device": 0, "pool": "HAL", "size_bytes": 4096}])
    >>> len(findings), findings.rows[0]["size_bytes"]
    (1, 4096)
    """

    def __init__(self, reports: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        self._reports = reports
        self.rows = rows

    def __len__(self) -> int:
        return len(self._reports)

    def __getitem__(self, index: Any) -> Any:
        return self._reports[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._reports)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Findings) and self._reports == other._reports

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{len(self.rows)} findings in {len(self._reports)} processes>"

    def to_pandas(self) -> Any:
        """The findings as a ``pandas.DataFrame``; needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows)

    def to_arrow(self) -> Any:
        """The findings as a ``pyarrow.Table``; needs pyarrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.rows)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The findings for anything that reads Arrow streams (polars, duckdb, ...); needs pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def leak_rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Leaks between marks, one row each."""
    for device in report["devices"]:
        for leak in device["leaks"]:
            yield {"device": device["device"], **_flat(leak)}


def inefficiency_rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Inefficient use of memory, one row per kind and place."""
    for finding in report["findings"]:
        yield _flat(finding)


def _flat(finding: dict[str, Any]) -> dict[str, Any]:
    """The same without nesting: the place of the allocation becomes columns of its own."""
    flat = {key: value for key, value in finding.items() if key != "site"}
    site = finding["site"]
    for key in ("line", "operator", "owner"):
        flat[key] = site[key]
    for key in ("python", "native"):
        flat[f"{key}_stack"] = "\n".join(_frame_text(frame) for frame in site[key])
    return flat


def _frame_text(frame: dict[str, Any]) -> str:
    return f"{frame['file']}({frame['line']}): {frame['function']}"


def collect(reports: list[dict[str, Any]], rows: Callable[[dict[str, Any]], Iterator[dict[str, Any]]]) -> Findings:
    """Reports and their findings as one object."""
    return Findings(reports, [row for report in reports for row in rows(report)])
