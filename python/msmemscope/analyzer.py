"""Offline analyses of result files. They need no device and no framework.

>>> import msmemscope
>>> msmemscope.list_analyzers()
['leaks', 'inefficient']
>>> msmemscope.get_analyzer_config("leaks")["parameters"]
['input_path', 'mstx_info', 'start_index']

The functions are short for an analyzer and its configuration:

.. code-block:: python

    from msmemscope.analyzer import LeaksAnalyzer, LeaksConfig

    config = LeaksConfig(input_path="/data/memscope_dump_20260101120000.csv", mstx_info="test", start_index=0)
    findings = LeaksAnalyzer().analyze(config)
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable
from typing import Any

from . import _findings, _internal, _messages
from ._findings import Answers, Findings

__all__ = [
    "Answers",
    "Findings",
    "InefficientAnalyzer",
    "InefficientConfig",
    "LeaksAnalyzer",
    "LeaksConfig",
    "analyze",
    "check_inefficient",
    "check_leaks",
    "get_analyzer_config",
    "list_analyzers",
    "list_questions",
    "memory_at",
    "memory_grown",
]

LONGEST_PATH = 4096
INEFFICIENT_TYPES = ("early_allocation", "late_deallocation", "temporary_idleness")


def _checked_path(
    input_path: Any, extensions: tuple[str, ...], *, is_written: bool = False, may_be_directory: bool = False
) -> str:
    try:
        path = os.fspath(input_path)
    except TypeError:
        raise TypeError(f"input_path must be a path, not {type(input_path).__name__}") from None
    if not isinstance(path, str):
        raise TypeError(f"input_path must be a text, not {type(path).__name__}")
    if len(path) > LONGEST_PATH:
        raise ValueError(f"input_path must not be longer than {LONGEST_PATH} characters")
    if not os.path.exists(path):
        raise FileNotFoundError(f"input_path: there is no file '{path}'")
    if may_be_directory and os.path.isdir(path):
        return path
    if not os.path.isfile(path):
        raise ValueError(f"input_path: '{path}' is no file")
    if os.path.splitext(path)[1].lower() not in extensions:
        raise ValueError(f"input_path must be a {' or '.join(extensions)} file, not '{os.path.basename(path)}'")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"input_path: '{path}' cannot be read")
    if is_written and not os.access(path, os.W_OK):
        raise PermissionError(f"input_path: '{path}' cannot be written")
    return path


def _checked_number(value: Any, name: str, smallest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ValueError(f"{name} must be an integer not smaller than {smallest}, not {value!r}")
    return value


def _checked_types(inefficient_type: Any) -> list[str]:
    if inefficient_type is None:
        return list(INEFFICIENT_TYPES)
    if not isinstance(inefficient_type, (str, Iterable)):
        raise ValueError(f"inefficient_type must be one of {', '.join(INEFFICIENT_TYPES)}, not {inefficient_type!r}")
    kinds = [inefficient_type] if isinstance(inefficient_type, str) else list(inefficient_type)
    for kind in kinds:
        if kind not in INEFFICIENT_TYPES:
            raise ValueError(f"inefficient_type must be one of {', '.join(INEFFICIENT_TYPES)}, not {kind!r}")
    return kinds or list(INEFFICIENT_TYPES)


class LeaksConfig:
    """What :class:`LeaksAnalyzer` looks at; see :func:`check_leaks`. Wrong values raise at once."""

    def __init__(self, input_path: Any, mstx_info: str, start_index: int = 0) -> None:
        self.input_path = _checked_path(input_path, (".csv", ".db", ".trace"))
        if not isinstance(mstx_info, str):
            raise TypeError(f"mstx_info must be a string, not {type(mstx_info).__name__}")
        if not mstx_info.strip():
            raise ValueError("mstx_info must not be blank")
        self.mstx_info = mstx_info
        self.start_index = _checked_number(start_index, "start_index", 0)


class InefficientConfig:
    """What :class:`InefficientAnalyzer` looks at; see :func:`check_inefficient`. Wrong values raise at once."""

    def __init__(
        self,
        input_path: Any,
        mem_size: int = 0,
        inefficient_type: str | list[str] | None = None,
        idle_threshold: int = 3000,
    ) -> None:
        self.input_path = _checked_path(input_path, (".csv", ".db"), is_written=True)
        self.mem_size = _checked_number(mem_size, "mem_size", 0)
        self.inefficient_type = _checked_types(inefficient_type)
        self.idle_threshold = _checked_number(idle_threshold, "idle_threshold", 1)


def _report(answer: tuple[str | None, str, str]) -> list[dict[str, Any]]:
    """Prints a report for people and gives the one for programs."""
    notice, text, data = answer
    if notice:
        _messages.warning(notice)
    print(text)
    reports: list[dict[str, Any]] = json.loads(data)
    return reports


class LeaksAnalyzer:
    """Looks for leaks between three marks."""

    config_class = LeaksConfig

    def analyze(self, config: LeaksConfig) -> Findings:
        """Print the report and return it."""
        if not isinstance(config, LeaksConfig):
            raise TypeError(f"analyze() needs a LeaksConfig, not {type(config).__name__}")
        answer = _internal.analyze_marks(config.input_path, config.mstx_info, config.start_index)
        return _findings.collect(_report(answer), _findings.leak_rows)


class InefficientAnalyzer:
    """Looks for inefficient memory."""

    config_class = InefficientConfig

    def analyze(self, config: InefficientConfig) -> Findings:
        """Print the report, write the findings into the file and return the report."""
        if not isinstance(config, InefficientConfig):
            raise TypeError(f"analyze() needs an InefficientConfig, not {type(config).__name__}")
        answer = _internal.analyze_inefficient(
            config.input_path, config.mem_size, config.inefficient_type, config.idle_threshold, True
        )
        return _findings.collect(_report(answer), _findings.inefficiency_rows)


def check_leaks(input_path: Any, mstx_info: str, start_index: int = 0) -> Findings:
    """Look for memory that was allocated between two marks and not freed before the third.

    Of the mstx marks with the text ``mstx_info``, the one with number ``start_index`` (counted from
    zero) and its two successors are called A, B and C.

    .. code-block:: python

        msmemscope.check_leaks(input_path="/data/memscope_dump_20260101120000.csv", mstx_info="test", start_index=0)

    :param input_path: a csv or db file with results, or a ``recording.trace``.
    :return: one report per process, with the devices and their leaks; ``.rows``, ``.to_pandas()`` and
        ``.to_arrow()`` give all leaks as one table. The report is printed too.
    """
    return LeaksAnalyzer().analyze(LeaksConfig(input_path, mstx_info, start_index))


def check_inefficient(
    input_path: Any,
    mem_size: int = 0,
    inefficient_type: str | list[str] | None = None,
    idle_threshold: int = 3000,
) -> Findings:
    """Look for memory that is allocated too early, freed too late or idle in between.

    The findings are also written into the file, as ``inefficient_type`` of the blocks; a file that
    cannot be replaced safely stays as it is.

    :param input_path: a csv or db file with results.
    :param mem_size: smaller blocks, in bytes, are left out.
    :param inefficient_type: ``early_allocation``, ``late_deallocation``, ``temporary_idleness`` or a
        list of them; None means all.
    :param idle_threshold: operators between two accesses beyond which a block is idle.
    :return: as with :func:`check_leaks`.
    """
    return InefficientAnalyzer().analyze(InefficientConfig(input_path, mem_size, inefficient_type, idle_threshold))


def memory_at(input_path: Any, moment: str | list[str] = "peak", by: str = "line") -> Findings:
    """Show what held memory at a moment, by line of code or as a tree.

    .. code-block:: python

        msmemscope.memory_at("results")
        msmemscope.memory_at("results", moment="step:7", by="module")

    :param input_path: as for :func:`check_leaks`, or a directory with recordings.
    :param moment: ``peak``, ``step:7`` (its end), ``12.3s`` or ``250ms`` after the first event, or a list of these.
    :param by: ``line``, ``module``, ``call-tree``, ``owner``, ``operator`` or ``phase``.
    :return: as with :func:`check_leaks`; the rows are lines of code.
    """
    moments = [moment] if isinstance(moment, str) else list(moment)
    return _moments(input_path, moments, None, by)


def memory_grown(input_path: Any, start: str, end: str, by: str = "line") -> Findings:
    """Show what holds more memory at a moment than it held at another one before.

    .. code-block:: python

        msmemscope.memory_grown("results", "step:3", "step:9")

    The parameters are those of :func:`memory_at`. Rows have the bytes and blocks that a line holds more.
    """
    return _moments(input_path, [], (start, end), by)


def _moments(input_path: Any, at: list[str], grown: tuple[str, str] | None, by: str) -> Findings:
    path = _checked_path(input_path, (".csv", ".db", ".trace"), may_be_directory=True)
    reports = _report(_internal.analyze_moments(path, at, grown, by))
    missing = [word for word in reports[0].get("missing", ()) if all(word in r.get("missing", ()) for r in reports)]
    if missing:
        raise ValueError(f"the recording never comes to {missing[0]}")
    return _findings.collect(reports, _findings.moment_rows)


_ANALYZERS: dict[str, Any] = {"leaks": LeaksAnalyzer, "inefficient": InefficientAnalyzer}


def _known(analyzer_type: Any) -> Any:
    if not isinstance(analyzer_type, str) or analyzer_type not in _ANALYZERS:
        raise ValueError(f"unknown analyzer {analyzer_type!r}; known: {', '.join(_ANALYZERS)}, and paths of recordings")
    return _ANALYZERS[analyzer_type]


def analyze(analyzer_type: Any, questions: str | Iterable[str] | None = None, **parameters: Any) -> Any:
    """Answer questions about recordings, or run an analysis by its name.

    With a path, ``questions`` are words of :func:`list_questions`, or None for everything:

    .. code-block:: python

        answers = msmemscope.analyze("results/recording.trace", questions=["leaks", "moments"])
        print(answers)                       # the report for people
        answers.leaks.rows                   # what was found, as one flat table
        answers.leaks.to_pandas()            # the same as a dataframe; to_arrow() as an Arrow table
        answers.to_json()                    # everything for other programs

    With the name of an analysis, it takes the parameters that :func:`get_analyzer_config` names:

    >>> import msmemscope
    >>> msmemscope.analyze("leek")
    Traceback (most recent call last):
    ValueError: unknown analyzer 'leek'; known: leaks, inefficient

    :param analyzer_type: a csv or db file with results, a ``recording.trace``, a directory with any of them, a list of
        these; or the name of an analysis.
    """
    is_name = isinstance(analyzer_type, str) and questions is None
    if is_name and (analyzer_type in _ANALYZERS or not os.path.exists(analyzer_type)):
        analyzer = _known(analyzer_type)()
        return analyzer.analyze(analyzer.config_class(**parameters))
    if parameters:
        raise TypeError(f"analyze() of a path takes no parameter {next(iter(parameters))!r}")
    return _answers(analyzer_type, questions)


def _answers(input_path: Any, questions: str | Iterable[str] | None) -> Answers:
    known = [word for word, _ in _internal.questions()]
    words = [questions] if isinstance(questions, str) else None if questions is None else list(questions)
    for word in words or ():
        if word not in known:
            raise ValueError(f"unknown question {word!r}; known: {', '.join(known)}")
    paths = list(input_path) if isinstance(input_path, (list, tuple)) else [input_path]
    for path in paths:
        if not os.path.exists(os.fspath(path)):
            raise FileNotFoundError(f"input_path: there is no file '{os.fspath(path)}'")
    notice, text, data = _internal.analyze_questions([os.fspath(path) for path in paths], words)
    if notice:
        _messages.warning(notice)
    return Answers(json.loads(data), text, known)


def list_questions() -> dict[str, str]:
    """Words of all questions for :func:`analyze`, and what they are about.

    >>> import msmemscope
    >>> msmemscope.list_questions()["leaks"]
    'Leaks over steps.'
    """
    return dict(_internal.questions())


def list_analyzers() -> list[str]:
    """Names of all analyses."""
    return list(_ANALYZERS)


def get_analyzer_config(analyzer_type: str) -> dict[str, Any]:
    """What an analysis takes.

    >>> import msmemscope
    >>> msmemscope.get_analyzer_config("inefficient")["config_class"]
    'InefficientConfig'
    """
    config_class = _known(analyzer_type).config_class
    return {"config_class": config_class.__name__, "parameters": list(inspect.signature(config_class).parameters)}
