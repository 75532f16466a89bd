"""What an analysis found, as an object: reports per process, and all findings as one table."""

from __future__ import annotations

import json
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


class Answers(Sequence):
    """Answers to several questions about the processes of a recording.

    As a sequence it holds one dictionary per process, as ``msmemscope analyze --json`` gives it. Each question that was
    answered is an attribute: its :class:`Findings`. Printed, it is the report for people.

    >>> answers = Answers([{"process_id": 7, "leaks": {"steps": 3, "leaks": []}}], "No leaks.", ["leaks"])
    >>> answers.leaks[0]["steps"], answers.questions
    (3, ['leaks'])
    """

    def __init__(self, processes: list[dict[str, Any]], text: str, words: list[str]) -> None:
        self._processes = processes
        self.text = text
        self.questions = [word for word in words if any(word in process for process in processes)]

    def __getattr__(self, word: str) -> Findings:
        if word.startswith("_") or word not in self.questions:
            raise AttributeError(f"{word!r} was not asked, or there is nothing to say about it")
        answered = [process for process in self._processes if word in process]
        rows = [{"process_id": process["process_id"], **row} for process in answered for row in rows_of(process[word])]
        return Findings([process[word] for process in answered], rows)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.questions]

    def __len__(self) -> int:
        return len(self._processes)

    def __getitem__(self, index: Any) -> Any:
        return self._processes[index]

    def __repr__(self) -> str:
        return f"<answers to {', '.join(self.questions)} in {len(self)} processes>"

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str:
        """All answers as JSON, one object per process."""
        return json.dumps(self._processes)

    def to_pandas(self) -> dict[str, Any]:
        """The findings of each question as a ``pandas.DataFrame``; needs pandas."""
        return {word: getattr(self, word).to_pandas() for word in self.questions}

    def to_arrow(self) -> dict[str, Any]:
        """The findings of each question as a ``pyarrow.Table``; needs pyarrow."""
        return {word: getattr(self, word).to_arrow() for word in self.questions}


def rows_of(answer: Any, known: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """The table in an answer: what its innermost lists hold, with what is said of the lists around them.

    Where an answer has several lists, the column ``list`` says which one a row is from.

    >>> for row in rows_of({"steps": 3, "pools": [{"pool": "PTA", "lines": [{"bytes": 4}, {"bytes": 2}]}]}):
    ...     print(row)
    {'steps': 3, 'list': 'lines', 'pool': 'PTA', 'bytes': 4}
    {'steps': 3, 'list': 'lines', 'pool': 'PTA', 'bytes': 2}
    """
    known = known or {}
    if isinstance(answer, list):
        for member in answer:
            yield from rows_of(member, known)
        return
    lists = {key: value for key, value in answer.items() if _is_table(value)}
    own = {**known, **_columns({key: value for key, value in answer.items() if key not in lists})}
    if not lists:
        yield own
    for key, value in lists.items():
        for member in value:
            yield from rows_of(member, {**own, "list": key})


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(member, dict) for member in value)


def _columns(finding: dict[str, Any]) -> dict[str, Any]:
    """What is said of a finding, without nesting."""
    flat = _flat(finding) if isinstance(finding.get("site"), dict) else dict(finding)
    for key, value in finding.items():
        if isinstance(value, dict) and key != "site":
            del flat[key]
            flat.update({f"{key}_{inner}": member for inner, member in _columns(value).items()})
    return flat


def leak_rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Leaks between marks, one row each."""
    for device in report["devices"]:
        for leak in device["leaks"]:
            yield {"device": device["device"], **_flat(leak)}


def inefficiency_rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Inefficient use of memory, one row per kind and place."""
    for finding in report["findings"]:
        yield _flat(finding)


def moment_rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Lines that hold memory at a moment, or more than at another one; one row each."""
    for pool in [*report["pools"], *report.get("grown", ())]:
        known = {key: pool[key] for key in ("device", "pool", "moment", "from", "to") if key in pool}
        for line in pool["lines"]:
            yield {**known, **_flat(line)}


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
