"""The same program recorded through the API, with preloaded libraries and from the command line."""

import subprocess

import pytest
import running

PROGRAM = """
    import sys
    import msmemscope
    import small_framework as framework

    msmemscope.config(events="alloc,free", analysis="", output="out")
    msmemscope.start()
    framework.begin()
    pool = framework.Pool()
    blocks = [pool.block(512 * (1 + index % 7)) for index in range(50)]
    other = framework.allocate(1 << 21)
    framework.mark("half")
    for block in blocks[::2]:
        pool.release(block)
    framework.free(other)
    msmemscope.step()
    pool.close()
    framework.end()
    msmemscope.stop()
"""


def events(run):
    """Rows without what differs from run to run: times, ids of processes and threads, addresses."""
    numbers = {}

    def number(address):
        return address if address == "N/A" else numbers.setdefault(address, len(numbers))

    rows = []
    for row in run.rows():
        attributes = {key: value for key, value in row.attributes.items() if key != "addr"}
        rows.append((row["Event"], row["Event Type"], row["Name"], row["Device Id"], number(row["Ptr"]), attributes))
    return rows


@pytest.fixture
def runs(run):
    return {
        "api": run(PROGRAM),
        "preload": run(PROGRAM, mode="preload"),
        "cli": run(PROGRAM, mode="cli", options=("--events=alloc,free", "--analysis=", "--collect-mode=deferred")),
    }


def test_all_modes_see_the_same(runs):
    expected = events(runs["api"])
    assert len(expected) > 100
    assert events(runs["preload"]) == expected
    assert events(runs["cli"]) == expected


def test_driver_events_are_the_truth(runs):
    for mode, one in runs.items():
        truth = [(kind in ("HalAlloc", "HalCreate"), address) for kind, address, _, _ in one.truth()]
        seen = [
            (row["Event"] == "MALLOC", int(row["Ptr"], 16))
            for row in one.rows(kind="HAL")
            if row["Event"] in ("MALLOC", "FREE") and "shadow" not in row.attributes
        ]
        assert seen == truth, mode
        sizes = {address: size for kind, address, size, _ in one.truth() if kind == "HalAlloc"}
        for row in one.rows("MALLOC", "HAL"):
            assert int(row.attributes["size"]) == sizes[int(row["Ptr"], 16)]


def test_pool_events(runs):
    for mode, one in runs.items():
        assert len(one.rows("MALLOC", "PTA")) == 50, mode
        freed = [row for row in one.rows("FREE", "PTA") if "shadow" not in row.attributes]
        assert len(freed) == 25, mode
        assert [row["Name"] for row in one.rows("MSTX", "Mark")] == ["half"]


def test_immediate_mode_of_the_command_line(run):
    program = PROGRAM.replace("msmemscope.start()", "").replace("msmemscope.stop()", "")
    one = run(program.replace('msmemscope.config(events="alloc,free", analysis="", output="out")', ""), mode="cli")
    assert len(one.rows("MALLOC", "PTA")) == 50
    assert len(one.rows("SYSTEM", "STEP")) == 1


def test_what_is_alive_is_known_after_more_than_the_trace_can_hold(run):
    code = """
        import ctypes
        import msmemscope
        import small_framework as framework

        framework.begin()
        weights = framework.allocate(123456)
        allocate, free = framework.acl.aclrtMallocAlign32, framework.acl.aclrtFree
        block = ctypes.c_void_p()
        for _ in range(120_000):
            allocate(ctypes.byref(block), ctypes.c_size_t(512), 0)
            free(block)
        msmemscope.start()
        framework.free(framework.allocate(654336))
        msmemscope.stop()
        framework.end()
    """
    one = run(code, mode="cli", options=("--collect-mode=deferred", "--max-trace-size=2MiB", "--events=alloc,free"))
    assert [row.attributes["size"] for row in one.rows("MALLOC", "HAL")] == ["123456", "654336"]
    assert "Missing" not in one.stdout + one.stderr
    told = subprocess.run([running.PROGRAM, "info", one.output], capture_output=True, text=True, check=True).stdout
    assert "records of blocks that came and went while nothing was recorded left out" in told


def test_deferred_mode_waits_for_start(run):
    code = """
        import small_framework as framework
        framework.begin()
        framework.free(framework.allocate(4096))
        framework.end()
    """
    one = run(code, mode="cli", options=("--collect-mode=deferred",))
    assert one.rows("MALLOC") == []


def test_import_after_the_first_use_tells_what_is_missing(run):
    code = """
        import small_framework as framework
        framework.begin()
        before = framework.allocate(4096)
        import msmemscope
        msmemscope.config(output="out")
        msmemscope.start()
        framework.free(framework.allocate(8192))
        framework.free(before)
        msmemscope.stop()
    """
    one = run(code)
    assert [row.attributes["size"] for row in one.rows("MALLOC", "HAL")] == ["8192"]


def test_the_environment_is_restored(run):
    code = """
        import ctypes, os, subprocess, sys
        import msmemscope
        import small_framework as framework

        def preload():
            getenv = ctypes.CDLL(None).getenv
            getenv.restype = ctypes.c_char_p
            return getenv(b"LD_PRELOAD")

        assert b"libascend_kernel_hook.so" in preload()
        assert "LD_PRELOAD" not in os.environ
        msmemscope.config(output="out")
        msmemscope.start()
        framework.begin()
        framework.Pool().block(512)
        msmemscope.stop()
        assert preload() is None, preload()
    """
    assert len(run(code).rows("MALLOC", "PTA")) == 1
