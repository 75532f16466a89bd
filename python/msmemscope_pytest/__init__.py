"""A pytest plugin that fails tests for the device memory they use. Computed from recorded events, not sampled.

.. code-block:: python

    @pytest.mark.limit_device_memory("200 MiB")
    def test_inference_stays_small():
        ...

    @pytest.mark.limit_leaks("0")
    def test_nothing_is_left():
        ...

* ``limit_device_memory(size)``: on no device may the test need more memory than this on top of what was in
  use when it began. Counted is what frameworks hand out to tensors (pools); where no pool is in use,
  what the driver gives.
* ``limit_leaks(size="0")``: what the test allocated and did not free before its end may not be more.

Both take ``source="pool"``, ``"driver"`` or ``"auto"``, the default. Sizes are numbers of bytes or texts such as
``"1.5 GiB"``. Without such marks the plugin does nothing at all, and the package is not even imported.
The recording goes to ``--msmemscope-output``, by default ``.msmemscope-pytest`` below the root directory.

This is a package of its own because pytest imports its plugins early and everywhere.
"""

from __future__ import annotations

import gc
import re
import sys
from typing import Any

import pytest

_MARKS = ("limit_device_memory", "limit_leaks")
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_UNITS.update({"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12})
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_MOST_LINES = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option for the place of the recording."""
    group = parser.getgroup("msmemscope", "device memory")
    group.addoption("--msmemscope-output", metavar="DIR", help="where device memory of limited tests is recorded")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marks known."""
    config.addinivalue_line(
        "markers", 'limit_device_memory(size, source="auto"): fail if the test needs more device memory than this'
    )
    config.addinivalue_line(
        "markers", 'limit_leaks(size="0", source="auto"): fail if the test leaves more device memory than this'
    )


def parse_size(value: int | str) -> int:
    """Bytes of a number or a text.

    >>> parse_size("1.5 GiB")
    1610612736
    >>> parse_size("20 MB")
    20000000
    >>> parse_size(512)
    512
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise pytest.UsageError(f"a size must be a number of bytes or a text such as '1.5 GiB', not {value!r}")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _limit(mark: pytest.Mark) -> tuple[int, str]:
    """The size and the source that a mark names."""
    arguments, named = list(mark.args), dict(mark.kwargs)
    size = arguments.pop(0) if arguments else named.pop("size", "0" if mark.name == "limit_leaks" else None)
    source = arguments.pop(0) if arguments else named.pop("source", "auto")
    if arguments or named or source not in ("auto", "pool", "driver"):
        raise pytest.UsageError(f"{mark.name} takes a size and source='auto', 'pool' or 'driver'")
    return parse_size(size), source


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """Brings the recorder in as soon as it is known that it will be needed, before anything uses the device."""
    marks = [(item, mark) for item in items for name in _MARKS for mark in item.iter_markers(name)]
    for item, mark in marks:
        try:
            _limit(mark)
        except pytest.UsageError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
    if marks:
        import msmemscope

        if msmemscope._internal.state() != msmemscope._internal.ON:
            output = config.getoption("--msmemscope-output") or str(config.rootpath / ".msmemscope-pytest")
            msmemscope.config(events="alloc,free", analysis="", output=output, log_level="warn")


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: Any) -> Any:
    """Records a marked test and fails it if it went beyond its limits; other tests run as always."""
    limits = {name: _limit(mark) for name in _MARKS if (mark := item.get_closest_marker(name)) is not None}
    if not limits:
        yield
        return
    import msmemscope

    was_recording = msmemscope._internal.state() == msmemscope._internal.ON
    _settle()
    if not was_recording:
        msmemscope.start()
    begin, end = (f"pytest {word} {item.nodeid}" for word in ("begin", "end"))
    msmemscope._internal.mark(begin)
    outcome = yield
    _settle()
    msmemscope._internal.mark(end)
    if not was_recording:
        msmemscope.stop(finish=False)
    # What a method of unittest.TestCase raises is kept by its item until the report is made.
    if outcome.excinfo is None and not getattr(item, "_excinfo", None):
        problems = _problems(limits, begin, end)
        if problems:
            outcome.force_exception(pytest.fail.Exception("\n".join(problems), pytrace=False))


def _settle() -> None:
    """Lets everything happen that was going to happen: garbage goes, queued work of the device ends."""
    gc.collect()
    npu = getattr(sys.modules.get("torch_npu"), "npu", None)
    if npu is not None and npu.is_initialized():
        npu.synchronize()


def _problems(limits: dict, begin: str, end: str) -> list:
    import msmemscope

    directory = msmemscope.recording_directory()
    if directory is None:
        return []  # nothing ever touched a device
    peaks, lines_at_peak, leftovers, _ = msmemscope._internal.memory_between(
        str(directory / "recording.trace"), begin, end
    )
    problems = []
    if "limit_device_memory" in limits:
        limit, source = limits["limit_device_memory"]
        for pool, device, at_begin, peak in _counted(peaks, source, peaks):
            if peak - at_begin > limit:
                problems.append(
                    f"device {device} ({pool}): the test needed {_shown(peak - at_begin)} more than was in use when it "
                    f"began ({_shown(at_begin)}); the limit is {_shown(limit)}"
                )
                held = [row for row in lines_at_peak if row[:2] == (pool, device)]
                problems += _lines("at the peak", held)
    if "limit_leaks" in limits:
        limit, source = limits["limit_leaks"]
        left = _counted(leftovers, source, peaks)
        size = sum(row[-1] for row in left)
        if size > limit:
            problems.append(f"the test left {_shown(size)} of device memory behind; the limit is {_shown(limit)}")
            problems += _lines("left", left)
    return problems


def _lines(what: str, rows: list) -> list:
    """Which lines of code hold most."""
    texts = []
    for pool, device, line, blocks, size in rows[:_MOST_LINES]:
        counted = f"{blocks} {'block' if blocks == 1 else 'blocks'}"
        texts.append(f"  {what}: {_shown(size)} in {counted} on device {device} ({pool}), {line or 'no stack'}")
    if len(rows) > _MOST_LINES:
        texts.append(f"  and {len(rows) - _MOST_LINES} more places")
    return texts


def _is_pool(row: tuple) -> bool:
    return row[0] not in ("HAL", "HOST", "HOST_PINNED")


def _counted(rows: list, source: str, peaks: list) -> list:
    """The rows of the pools, or of the driver; if nothing is said, of the pools if any was in use."""
    if source == "auto":
        source = "pool" if any(_is_pool(row) and row[3] > 0 for row in peaks) else "driver"
    return [row for row in rows if (_is_pool(row) if source == "pool" else row[0] == "HAL")]


def _shown(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"
