"""Talks to the probe library and compares what it captured with what the interpreter shows."""

import ctypes
import os
import sys

PATH = os.environ["PYTHON_STACK_PROBE"]
LARGEST_DEPTH = 1000
LOSS_NONE, LOSS_CUT, LOSS_UNREADABLE, LOSS_NOT_DEFINED = range(4)


def _declare(library):
    for name in ("probe_capture", "probe_capture_elsewhere", "probe_hold_lock_and_capture",
                 "probe_want_lock_and_capture"):
        function = getattr(library, name)
        function.argtypes = [ctypes.c_size_t]
        function.restype = ctypes.c_uint64
    library.probe_attach.argtypes = [ctypes.c_char_p]
    library.probe_definition_count.restype = ctypes.c_uint64
    library.probe_measure.argtypes = [ctypes.c_size_t, ctypes.c_uint32, ctypes.c_int]
    library.probe_measure.restype = ctypes.c_double
    library.probe_measure_after_other_work.argtypes = [ctypes.c_size_t, ctypes.c_uint32]
    library.probe_measure_after_other_work.restype = ctypes.c_double
    for name in ("probe_describe", "probe_status"):
        getattr(library, name).restype = ctypes.c_size_t
    return library


# The first gives the interpreter's lock away during a call, the second keeps it.
without_lock = _declare(ctypes.CDLL(PATH))
with_lock = _declare(ctypes.PyDLL(PATH))


def _text(function, *arguments):
    size = 1 << 16
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = function(*arguments, buffer, ctypes.c_size_t(size))
        if length <= size:
            return buffer.raw[:length].decode()
        size = length


def status():
    return _text(without_lock.probe_status)


def attach(version=None):
    return without_lock.probe_attach(version)


def prepare(words="self-check passed"):
    """Captures once and runs until the self-check has been done."""
    without_lock.probe_capture(16)
    for _ in range(100_000):
        if words in status():
            return
    raise AssertionError(status())


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def line_table_of(code):
    return code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab


def lines_of(stack):
    """The definition of a captured stack: a line for each frame, and whether it says that there are more."""
    lines = _text(without_lock.probe_describe, ctypes.c_uint32(stack)).splitlines()
    is_cut = lines[-1:] == ["..."]
    return lines[:-1] if is_cut else lines, is_cut


def frames_of(stack):
    """Frames of a captured stack: (name, file, first line, instruction offset, line table)."""
    version = sys.version_info.major << 8 | sys.version_info.minor
    frames = []
    for line in lines_of(stack)[0]:
        name, file, first_line, offset, found_version, table = line.split("\t")
        assert int(found_version, 16) == version, found_version
        frames.append((name, file, int(first_line), int(offset), bytes.fromhex(table)))
    return frames


_described = {}
checked = 0


def check(depth=LARGEST_DEPTH, library=without_lock):
    """Captures the caller's stack and compares it frame by frame."""
    global checked
    captured = library.probe_capture(depth)
    frame = sys._getframe()
    stack, loss = captured & 0xFFFFFFFF, captured >> 32
    assert stack != 0, (captured, status())
    compare_tables = stack not in _described
    if compare_tables:
        _described[stack] = frames_of(stack), lines_of(stack)[1]
    frames, is_cut = _described[stack]
    shown = 0
    for shown, found in enumerate(frames):
        name, file, first_line, offset, table = found
        code = frame.f_code
        same = (code.co_filename == file and code.co_firstlineno == first_line and name_of(code) == name
                # This very function has moved on since it captured.
                and (shown == 0 or max(frame.f_lasti, 0) == offset)
                and (not compare_tables or line_table_of(code) == table))
        assert same, (shown, found[:4], (name_of(code), code.co_filename, code.co_firstlineno, frame.f_lasti))
        frame = frame.f_back
        if frame is None:
            break
    assert shown + 1 == len(frames), (shown, len(frames))
    assert len(frames) <= depth
    assert loss == (LOSS_NONE if frame is None else LOSS_CUT), (loss, frame)
    assert is_cut == (loss == LOSS_CUT), (is_cut, loss)
    checked += 1
    return stack
