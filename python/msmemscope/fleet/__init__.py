"""Questions about the recordings of a whole job, in SQL.

``msmemscope export --to=parquet <dir>... -o dataset`` writes the dataset; this module asks it::

    import msmemscope.fleet

    peaks = msmemscope.fleet.query("peak", "dataset")  # DuckDB, in this process
    peaks = msmemscope.fleet.query("peak", "dataset", engine="spark", master="spark://head:7077")

The questions are the files ``queries/*.sql``, in one dialect that both engines understand. Needs ``duckdb``
(``pip install msmemscope[fleet]``) or ``pyspark``. Every recording of a dataset has a manifest that names its files.
Recordings of which something is missing, damaged or of another version are left out as a whole, and so are files that
belong to nobody; a warning names and counts them. ``check`` compares every byte.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msmemscope.exceptions import AnalysisError
from msmemscope.fleet._contents import Contents

__all__ = ["DatasetWarning", "Question", "Result", "check", "query", "questions"]

_QUERIES = Path(__file__).parent / "queries"
_PARAMETER = re.compile(r"^-- Parameter (\w+)(?: = (\d+))?: (.*)$", re.MULTILINE)
_MOST_NAMED = 5


class DatasetWarning(UserWarning):
    """A dataset is not whole: something was left out, or ranks are missing."""


class Question(NamedTuple):
    """A question: its name, what it is about, and its parameters with their defaults."""

    name: str
    about: str
    parameters: dict[str, int | None]
    sql: str


class Result:
    """Rows of an answer, with the names of their columns."""

    def __init__(self, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        self.columns = columns
        self.rows = rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Every row with the names of its columns."""
        return [dict(zip(self.columns, row)) for row in self.rows]

    def to_pandas(self) -> Any:
        """The same as a data frame of pandas."""
        import pandas

        return pandas.DataFrame(self.rows, columns=self.columns)

    def __str__(self) -> str:
        cells = [self.columns, *([_text(value) for value in row] for row in self.rows)]
        widths = [max(len(row[index]) for row in cells) for index in range(len(self.columns))]
        is_number = [
            all(isinstance(row[index], (int, float, type(None))) for row in self.rows) for index in range(len(widths))
        ]

        def line(row: list[str]) -> str:
            aligned = (
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, is_number)
            )
            return "  ".join(aligned).rstrip()

        return "\n".join(line(row) for row in cells)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def questions() -> dict[str, Question]:
    """All questions by their names."""
    return {path.stem: _question(path) for path in sorted(_QUERIES.glob("*.sql"))}


def _question(path: Path) -> Question:
    sql = path.read_text(encoding="utf-8")
    about = []
    for line in sql.splitlines():
        if not line.startswith("--") or line.startswith("-- Parameter"):
            break
        about.append(line.removeprefix("--").strip())
    parameters = {name: int(default) if default else None for name, default, _ in _PARAMETER.findall(sql)}
    return Question(path.stem, " ".join(about), parameters, sql)


def query(
    name: str, dataset: str | Path, *, engine: str = "duckdb", master: str | None = None, **parameters: int
) -> Result:
    """Asks a dataset a question and gives the rows.

    ``engine`` is ``"duckdb"`` (in this process) or ``"spark"``; with Spark, ``master`` is the address of a cluster, and
    without it the active session is used, or one on this machine. Parameters are whole numbers, such as ``time_ns``.
    """
    known = questions()
    if name not in known:
        raise AnalysisError(f"no question {name!r}; there are {', '.join(known)}")
    sql = _with_parameters(known[name], parameters)
    files = _files(Path(dataset).absolute())
    if engine == "duckdb":
        return _ask_duckdb(sql, files)
    if engine == "spark":
        return _ask_spark(sql, Path(dataset).absolute(), files, master)
    raise AnalysisError(f"engine must be 'duckdb' or 'spark', not {engine!r}")


def _with_parameters(question: Question, given: dict[str, int]) -> str:
    for name in given:
        if name not in question.parameters:
            raise AnalysisError(f"{question.name} has no parameter {name!r}")
    values = {**question.parameters, **given}
    sql = question.sql
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise AnalysisError(f"{question.name} needs the parameter {name}, a whole number")
        sql = sql.replace(f"${{{name}}}", str(value))
    return sql


def check(dataset: str | Path) -> list[str]:
    """Reads every byte of a dataset and says in a line each what is wrong with it; nothing if it is whole."""
    return Contents.of(_existing(dataset), is_thorough=True).problems


def _existing(dataset: str | Path) -> Path:
    # Relative to here: a cluster has its own idea of where things are.
    path = Path(dataset).absolute()
    if not path.is_dir():
        raise AnalysisError(f"{path}: no such dataset")
    return path


def _files(dataset: Path) -> dict[str, list[str]]:
    """The files of every table that can be used."""
    contents = Contents.of(_existing(dataset))
    problems = contents.problems
    if problems:
        more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        noun = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        text = f"{noun} of the dataset: {'; '.join(problems[:_MOST_NAMED])}{more}"
        warnings.warn(text, DatasetWarning, stacklevel=3)
    if not contents.files["recordings"]:
        raise AnalysisError(f"{dataset}: no recordings that can be used in this dataset")
    return contents.files


# Tables that a small recording may not have: their columns with the types of the documentation.
_EMPTY = {
    "events": "process_id INT, time_ns BIGINT, thread_id INT, step BIGINT, event STRING, event_type STRING,"
    " name STRING, allocation_id BIGINT, address BIGINT, size_bytes BIGINT, used_bytes BIGINT, reserved_bytes BIGINT,"
    " stack_id BIGINT, job STRING, rank INT, device INT",
    "blocks": "process_id INT, allocation_id BIGINT, pool STRING, owner STRING, operator STRING, address BIGINT,"
    " size_bytes BIGINT, allocated_ns BIGINT, freed_ns BIGINT, allocated_step BIGINT, freed_step BIGINT,"
    " device_step BIGINT, thread_id INT, stack_id BIGINT, is_shadow BOOLEAN, job STRING, rank INT, device INT",
    "steps": "process_id INT, pool STRING, step BIGINT, began_ns BIGINT, ended_ns BIGINT, peak_bytes BIGINT,"
    " end_bytes BIGINT, job STRING, rank INT, device INT",
    "stacks": "process_id INT, stack_id BIGINT, position INT, frame_id BIGINT, call_site STRING, job STRING, rank INT",
    "frames": "process_id INT, frame_id BIGINT, `function` STRING, file STRING, line INT, job STRING, rank INT",
    "recordings": "",
}


def _ask_duckdb(sql: str, files: dict[str, list[str]]) -> Result:
    try:
        import duckdb
    except ImportError as error:
        raise AnalysisError("duckdb is missing: pip install 'msmemscope[fleet]'") from error
    with duckdb.connect() as connection:
        try:
            for table, paths in files.items():
                if paths:
                    types = "{'job': VARCHAR, 'rank': INT" + (", 'device': INT}" if _has_device(table) else "}")
                    names = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
                    view = f"read_parquet([{names}], hive_partitioning = true, hive_types = {types})"
                    connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {view}")
                elif _EMPTY[table]:
                    columns = _EMPTY[table].replace("`", '"').replace("STRING", "VARCHAR")
                    connection.execute(f"CREATE TABLE {table} ({columns})")
            answer = connection.execute(sql)
            columns_of_answer = [column[0] for column in answer.description or []]
            return Result(columns_of_answer, answer.fetchall())
        except duckdb.Error as error:
            raise AnalysisError(f"DuckDB: {error}") from error


def _has_device(table: str) -> bool:
    return table in ("events", "blocks", "steps")


def _ask_spark(sql: str, dataset: Path, files: dict[str, list[str]], master: str | None) -> Result:
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise AnalysisError("PySpark is missing: pip install pyspark") from error
    builder = SparkSession.builder.appName("msmemscope.fleet")
    active = SparkSession.getActiveSession()
    spark = active if active is not None and master is None else builder.master(master or "local[*]").getOrCreate()
    try:
        for table, paths in files.items():
            if paths:
                read = spark.read.option("basePath", str(dataset / table)).parquet(*paths)
                # Partitions that look like numbers are text all the same.
                read = read.withColumn("job", read["job"].cast("string"))
                read.createOrReplaceTempView(table)
            elif _EMPTY[table]:
                spark.createDataFrame([], schema=_EMPTY[table]).createOrReplaceTempView(table)
        answer = spark.sql(sql)
        return Result(list(answer.columns), [tuple(row) for row in answer.collect()])
    except PySparkException as error:
        raise AnalysisError(f"Spark: {str(error).splitlines()[0]}") from error
