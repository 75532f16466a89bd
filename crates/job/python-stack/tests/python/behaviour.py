"""Behaviour in the less usual corners of an interpreter; one function per process, named on the command line."""

import atexit
import ctypes
import faulthandler
import gc
import os
import subprocess
import sys
import threading
import time

import probe
from probe import check

VERSION = sys.version_info[:2]


def unusable_interpreters_are_refused():
    assert probe.without_lock.probe_capture(16) == 0
    assert probe.status() == "no Python interpreter found"
    for version in (b"3.8.18 (main)", b"2.7.18", b"", b"3.13.0 experimental free-threading build (main)"):
        assert probe.attach(version) == 2, version
    assert probe.without_lock.probe_capture(16) == 0


def unknown_versions_use_the_interpreters_functions():
    assert probe.attach(b"3.99.0 (main)") == 0
    assert "Python 3.99: the frames of this version are not known" in probe.status(), probe.status()
    with_functions()


def a_failed_self_check_uses_the_interpreters_functions():
    # Of these pairs one layout is harmless nonsense for the other interpreter.
    pretended = {(3, 9): b"3.10.0", (3, 10): b"3.9.0", (3, 11): b"3.12.0"}.get(VERSION)
    if pretended is None:
        return
    assert probe.attach(pretended) == 0
    probe.prepare("the self-check found other frames")
    with_functions()


def with_functions():
    assert probe.without_lock.probe_capture(16) == probe.LOSS_UNREADABLE << 32
    probe.frames_of = pretending_frames_of

    def inner():
        check(library=probe.with_lock)
        check(3, probe.with_lock)
        return [check(library=probe.with_lock) for _ in range(3)]
    try:
        raise ValueError
    except ValueError as error:
        assert len(set(inner())) == 1
        assert sys.exc_info()[1] is error
    assert gc.isenabled()
    gc.disable()
    check(library=probe.with_lock)
    assert not gc.isenabled()
    # Fresh code stays alive, so that its address stays its name.
    for number in range(200):
        exec(compile("def run(): check(library=library)\nrun()", "<cell %d>" % number, "exec"),
             {"check": check, "library": probe.with_lock})


def pretending_frames_of(stack):
    """Like `probe.frames_of`, for a pretended version."""
    frames = []
    for line in probe.lines_of(stack)[0]:
        name, file, first_line, offset, _, table = line.split("\t")
        frames.append((name, file, int(first_line), int(offset), bytes.fromhex(table)))
    return frames


def nobody_waits_for_the_lock():
    """One thread holds a lock of an allocator and captures, another holds the interpreter's lock and
    wants the allocator's."""
    faulthandler.dump_traceback_later(120, exit=True)
    assert probe.attach() == 0
    probe.prepare()
    for _ in range(300):
        results = []
        thread = threading.Thread(
            target=lambda: results.append(probe.without_lock.probe_hold_lock_and_capture(16)))
        thread.start()
        results.append(probe.with_lock.probe_want_lock_and_capture(16))
        thread.join()
        assert all(results) and len(results) == 2, results


def nothing_is_leaked():
    assert probe.attach() == 0
    probe.prepare()

    class Marked:
        pass

    def capture_often(marked, count):
        for _ in range(count):
            probe.without_lock.probe_capture(16)
            probe.with_lock.probe_capture(16)

    code, marked = capture_often.__code__, Marked()
    things = (code, code.co_filename, code.co_name, marked, capture_often)
    seen = []
    for count in (100, 100_000):
        capture_often(marked, count)
        gc.collect()
        references = [sys.getrefcount(thing) for thing in things]
        seen.append((references, probe.without_lock.probe_definition_count(), resident_bytes(), len(gc.get_objects())))
    (references, definitions, resident, objects), after = seen
    assert after[0] == references, (references, after[0])
    assert after[1] == definitions
    assert after[2] - resident < 1 << 20
    assert after[3] - objects < 10


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def a_forked_child_defines_again():
    assert probe.attach() == 0

    def look():
        return check()
    for _ in range(2):
        look()
        child = os.fork()
        if child == 0:
            probe.without_lock.probe_forget()
            probe._described.clear()
            look()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def sub_interpreters_have_no_stacks():
    if VERSION >= (3, 13):
        import _interpreters as interpreters
    else:
        import _xxsubinterpreters as interpreters
    assert probe.attach() == 0
    probe.prepare()
    source = """
import ctypes
library = ctypes.CDLL(%r)
library.probe_capture.argtypes = [ctypes.c_size_t]
library.probe_capture.restype = ctypes.c_uint64
stack = library.probe_capture(16)
# Until 3.11 the thread is known by its state in the main interpreter, whose frames are below ours.
assert stack == 0 or %r, stack
""" % (probe.PATH, VERSION <= (3, 11))
    # Without isolation, which many extension modules do not support.
    arguments = {"config": "legacy"} if VERSION >= (3, 13) else {"isolated": False}
    interpreter = interpreters.create(**arguments)
    failure = (interpreters.exec if VERSION >= (3, 13) else interpreters.run_string)(interpreter, source)
    assert failure is None, failure
    check()
    interpreters.destroy(interpreter)
    check()


def the_end_of_an_interpreter_is_survived():
    """Captures go on in daemon threads and in finalizers while the interpreter shuts down."""
    for _ in range(15):
        result = subprocess.run([*COMMAND, __file__, "shut_down"], capture_output=True,
                                text=True, timeout=120)
        assert result.returncode == 0, (result.returncode, result.stderr)
        assert "atexit True" in result.stdout and "finalizer False" in result.stdout, result.stdout


def shut_down():
    assert probe.attach() == 0
    probe.prepare()
    capture = probe.without_lock.probe_capture

    class AtTheEnd:
        def __del__(self, capture=capture, write=os.write):
            write(1, b"finalizer %s\n" % (b"True" if capture(16) else b"False"))

    sys.modules["kept_until_the_end"] = at_the_end = AtTheEnd()
    at_the_end.myself = at_the_end
    atexit.register(lambda: print("atexit", capture(16) != 0, flush=True))

    def capture_for_ever():
        while True:
            capture(16)
    for _ in range(4):
        threading.Thread(target=capture_for_ever, daemon=True).start()
    time.sleep(0.02)


def greenlets_have_their_own_stacks():
    try:
        import greenlet
    except ImportError:
        print("greenlet is not installed")
        return
    assert probe.attach() == 0
    probe.prepare()
    main = greenlet.getcurrent()

    def recurse(depth, work):
        return work() if depth == 0 else recurse(depth - 1, work)

    def task(depth):
        def work():
            for _ in range(20):
                check()
                check(16)
                main.switch()
        recurse(depth, work)
    tasks = [greenlet.greenlet(task) for _ in range(50)]
    for depth, one in enumerate(tasks):
        one.switch(depth)
        check()
    while any(not one.dead for one in tasks):
        for one in tasks:
            if not one.dead:
                one.switch()
            check()
    print("greenlets compared: %d" % probe.checked)


def tracing_does_not_disturb():
    assert probe.attach() == 0
    probe.prepare()

    def look():
        return [check() for _ in range(3)]
    sys.setprofile(lambda *_: None)
    look()
    sys.setprofile(None)
    sys.settrace(lambda *_: None)
    look()
    sys.settrace(None)
    if VERSION >= (3, 12):
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.PROFILER_ID, "test")
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.LINE, lambda *_: None)
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.LINE | monitoring.events.PY_START)
        look()
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    look()


def names_of_all_kinds_are_read():
    assert probe.attach() == 0
    probe.prepare()
    lines = 0
    for name in ("x", "caf\u00e9", "\u4e2d\u6587", "\U0001d4b3", "n" * 300):
        for file in ("<\u00e9>", "/tmp/\u4e2d\u6587/\U0001f40d.py", "/" + "d" * 200 + "/f.py"):
            scope = {"check": check}
            lines += 1
            exec(compile("\n" * lines + "class C:\n    def %s(self):\n        check()\nC().%s()" % (name, name), file, "exec"), scope)
    long_name = "n" * 5_000
    scope = {"capture": probe.without_lock.probe_capture}
    exec(compile("def %s(): return capture(1)\nstack = %s()" % (long_name, long_name), "f", "exec"), scope)
    found = probe.frames_of(scope["stack"])[0][0]
    assert len(found.encode()) <= 4096 and found.endswith("n\u2026"), found[-10:]


# How to start this interpreter again.
COMMAND = os.environ["PYTHON_STACK_COMMAND"].split()

globals()[sys.argv[1]]()
