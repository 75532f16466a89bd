"""Collection control: scopes, shadow collection, steps."""

import json
import signal
import subprocess

import pytest
from running import PROGRAM


def test_two_lines_are_enough(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        msmemscope.start()
        framework.begin()
        framework.free(framework.allocate(1 << 20))
        msmemscope.stop()
    """)
    (malloc,) = one.rows("MALLOC", "HAL")
    (free,) = one.rows("FREE", "HAL")
    assert malloc["Ptr"] == free["Ptr"]
    assert malloc.attributes["size"] == str(1 << 20)
    assert one.stdout == ""


def test_config_without_arguments(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config()
        msmemscope.start()
        framework.begin()
        for i in range(10):
            framework.free(framework.allocate(4096))
            msmemscope.step()
        msmemscope.stop()
    """)
    results = one.directory / "memscopeDumpResults"
    assert len(list(results.glob("msmemscope_*_ascend/device_0/dump/memscope_dump_*.csv"))) == 1
    text = next(results.rglob("memscope_dump_*.csv")).read_text()
    assert text.count("SYSTEM,STEP") == 10


def test_later_settings_fill_no_stacks_into_rows_of_earlier_scopes(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        framework.begin()
        for size, call_stack in ((4096, ""), (8192, "python:2"), (12288, "python:1"), (16384, "")):
            msmemscope.config(call_stack=call_stack, events="alloc,free", output="out")
            msmemscope.start()
            framework.allocate(size)
            msmemscope.stop()
    """)
    frames = [row["Call Stack(Python)"].count(".py(") for row in one.rows("MALLOC", "HAL")]
    assert frames == [0, 2, 1, 0], one.rows("MALLOC", "HAL")


def test_scopes_can_be_repeated(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(events="alloc,free", output="out")
        framework.begin()
        for scope in range(3):
            framework.free(framework.allocate(1000))       # between the scopes
            msmemscope.start()
            framework.free(framework.allocate(4096 * (scope + 1)))
            msmemscope.stop()
    """)
    assert [row.attributes["size"] for row in one.rows("MALLOC", "HAL")] == ["4096", "8192", "12288"]
    assert len(one.files("memscope_dump_*.csv")) == 1


def test_recording_and_files_speak_of_the_scopes(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(events="alloc,free", output="out")
        framework.begin()
        framework.free(framework.allocate(1 << 26))        # before the scope
        early = framework.allocate(1 << 20)
        msmemscope.start()
        kept, late = framework.allocate(2 << 20), framework.allocate(4 << 20)
        msmemscope.stop()
        framework.free(late)
        behind = framework.allocate(1 << 27)               # after the scope
    """)
    frees = {int(row.attributes["size"]) >> 20: row.attributes.get("freed") for row in one.rows("FREE", "HAL")}
    assert frees == {1: None, 2: None, 4: "true"}
    (table,) = one.files("memscope_dump_*.csv")
    numbers = []
    for source in (one.output, table):
        command = [str(PROGRAM), "analyze", str(source), "--analysis=leaks", "--json"]
        (process,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["processes"]
        numbers.append(process["summary"])
    assert numbers[0]["pools"] == numbers[1]["pools"]
    (pool,) = (pool for pool in numbers[0]["pools"] if pool["pool"] == "HAL")
    assert (pool["peak_used_bytes"], pool["end_used_bytes"]) == (7 << 20, 3 << 20)


def test_files_are_there_after_stop(run):
    one = run("""
        import glob
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        msmemscope.start()
        framework.begin()
        framework.allocate(4096)
        msmemscope.stop()
        (path,) = glob.glob("out/*/device_0/dump/memscope_dump_*.csv")
        text = open(path).read()
        assert ",MALLOC,HAL," in text, text
        assert "shadow:true" not in text, text
    """)
    assert one.rows("FREE", "HAL")[0].attributes["shadow"] == "true"


def test_what_was_alive_before_is_shown_as_such(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        framework.begin()
        alive = framework.allocate(4096)
        framework.free(framework.allocate(8192))
        created = framework.create(2 << 20)
        msmemscope.config(output="out")
        msmemscope.start()
        fresh = framework.allocate(12288)
        framework.free(alive)
        framework.destroy(created)
        framework.free(fresh)
        msmemscope.stop()
    """)
    rows = {row.attributes["size"]: row.attributes.get("shadow") for row in one.rows("MALLOC", "HAL")}
    assert rows == {"4096": "true", "12288": None, str(2 << 20): "true"}
    assert len(one.rows("FREE", "HAL")) == 3


def test_leaks_are_found_without_the_command_line(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out", analysis="leaks")
        framework.begin()
        pool = framework.Pool()
        msmemscope.start()
        for _ in range(8):
            lost = framework.allocate(1 << 20)
            kept = pool.block(1 << 16)
            pool.release(pool.block(1 << 12))
            msmemscope.step()
        framework.end()
        msmemscope.stop()
    """)
    report = " ".join(one.stderr.split())
    assert "Call sites that hold more memory with every step" in report and "Leak: " in report
    assert "64.0 KiB 384 KiB 6 2-7 0 PyTorch" in report and "script.py:9 <module>" in report, one.stderr
    assert "1.0 MiB 6.0 MiB 6 2-7 0 driver" in report, one.stderr


def test_recording_as_context_manager_and_decorator(run):
    one = run("""
        import msmemscope
        import small_framework as framework

        @msmemscope.recording()
        def second():
            framework.free(framework.allocate(8192))

        framework.begin()
        try:
            with msmemscope.recording(events="alloc,free", output="out") as directory:
                framework.free(framework.allocate(4096))
                raise KeyError("passes through")
        except KeyError:
            pass
        framework.free(framework.allocate(1000))
        second()
        print(directory())
    """)
    assert [row.attributes["size"] for row in one.rows("MALLOC", "HAL")] == ["4096", "8192"]
    assert one.stdout.strip().startswith(str(one.output))


def test_place_and_format_are_settled_by_the_first_start(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out", data_format="db")
        msmemscope.start()
        msmemscope.stop()
        msmemscope.config(output="elsewhere", data_format="csv")
        msmemscope.start()
        framework.begin()
        framework.allocate(4096)
        msmemscope.stop()
    """)
    assert len(one.files("memscope_dump_*.db")) == 1
    assert not (one.directory / "elsewhere").exists()
    assert "output can only be set once" in one.stderr
    assert "data_format can only be set once" in one.stderr


def test_options_of_the_command_line_stay_unless_config_names_them(run):
    one = run(
        """
        import msmemscope
        import small_framework as framework
        msmemscope.config(analysis="leaks", output="elsewhere")
        msmemscope.start()
        framework.begin()
        for size in (4096, 8192, 12288):
            framework.free(framework.allocate(size))
            msmemscope.step()
        msmemscope.stop()
        """,
        mode="cli",
        options=("--steps=2",),
    )
    assert [row.attributes["size"] for row in one.rows("MALLOC", "HAL")] == ["8192"]
    assert "output can only be set once" in one.stderr and "of the command line counts" in one.stderr


def test_lines_of_the_log_are_written_once(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        msmemscope.start()
        framework.begin()
        framework.allocate(4096)
        msmemscope.config(output="elsewhere")
        msmemscope.stop()
    """)
    (log,) = one.files("*.log")
    assert log.read_text().count("output can only be set once") == 1


def test_a_forgotten_start_is_said_once_and_leaves_nothing(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        framework.begin()
        for i in range(3):
            framework.free(framework.allocate(4096))
            msmemscope.step()
        msmemscope.stop()
        msmemscope.stop()
    """)
    assert one.stderr.count("nothing was recorded: start() was never called") == 1, one.stderr
    assert not (one.directory / "memscopeDumpResults").exists()


def test_steps_without_start_and_stop_are_said_at_the_end(run):
    one = run("""
        import msmemscope
        msmemscope.step()
    """)
    assert one.stderr.count("nothing was recorded: start() was never called") == 1, one.stderr


def test_a_scope_without_device_memory_says_so(run):
    one = run("""
        import msmemscope
        msmemscope.config(output="out")
        msmemscope.start()
        msmemscope.stop()
    """)
    assert "nothing was recorded between start() and stop(): no device memory was used" in one.stderr
    assert not (one.directory / "out").exists()


def test_start_and_stop_out_of_order_do_nothing(run):
    run("""
        import msmemscope
        msmemscope.stop()
        msmemscope.step()
        msmemscope.config(output="out")
        msmemscope.start()
        msmemscope.start()
        msmemscope.stop()
        msmemscope.stop()
    """)


@pytest.mark.parametrize("mode", ["api", "cli"])
def test_with_the_earlier_name_all_messages_have_it(run, mode):
    one = run(
        """
        import small_framework as device
        import msleaks
        class Tensor:
            nbytes = 512
            def data_ptr(self): return 4096
        msleaks.watcher.watch(Tensor(), name="block")
        msleaks.config(events="alloc,free,traceback", log_level="info", output="out")
        msleaks.start()
        device.begin()
        device.free(device.allocate(1 << 20))
        with msleaks.describe.describer(owner="a"), msleaks.describe.describer(owner="b"):
            with msleaks.describe.describer(owner="c"), msleaks.describe.describer(owner="d"):
                pass
        msleaks.stop()
        """,
        mode=mode,
        options=("--collect-mode=deferred",),
        program="msleaks",
    )
    assert "call msleaks.start()" in one.stderr
    assert "[msleaks] Warning: more than 3 labels" in one.stderr
    ours = [line for line in one.stderr.splitlines() if line.startswith("[")]
    assert all(line.startswith("[msleaks] ") and "msmemscope" not in line for line in ours), one.stderr


def test_msleaks_has_the_earlier_names(run):
    one = run("""
        import msleaks
        import msleaks.describe as describe
        import small_framework as framework
        msleaks.start()
        framework.begin()
        with describe.describer(owner="a"):
            framework.allocate(4096)
        msleaks.stop()
    """)
    (path,) = (one.directory / "leaksDumpResults").rglob("leaks_dump_*.csv")
    assert path.parts[-4].startswith("msleaks_")


def test_a_forked_child_has_its_own_recording(run):
    one = run("""
        import os
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        msmemscope.start()
        child = os.fork()
        framework.begin()
        framework.allocate(4096 if child else 8192)
        if child:
            os.waitpid(child, 0)
        msmemscope.stop()
    """)
    by_process = {}
    for row in one.rows("MALLOC", "HAL"):
        by_process.setdefault(row["Process Id"], []).append(row.attributes["size"])
    assert sorted(by_process.values()) == [["4096"], ["8192"]]


def test_forked_workers_that_end_at_once_are_named(run):
    one = run("""
        import os
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        framework.begin()
        msmemscope.start()
        pool = framework.Pool()
        pool.block(4096)
        msmemscope.step()       # pools have reported: the variable they look at is withdrawn
        for number in range(2):
            if os.fork() == 0:
                pool.block(8192)
                os._exit(0)
            os.wait()
        msmemscope.stop()
    """)
    assert "LD_PRELOAD" not in one.stderr
    (line,) = [line for line in one.stderr.splitlines() if "recover" in line]
    assert "2 recordings have no results yet: msmemscope recover" in line


def test_every_scope_has_its_own_settings(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(events="alloc,free", call_stack="python:3", output="out")
        framework.begin()
        msmemscope.start()
        framework.free(framework.allocate(4096))
        kept = framework.allocate(8192)
        msmemscope.stop()
        msmemscope.config(events="launch")
        msmemscope.start()
        framework.free(kept)
        framework.free(framework.allocate(12288))
        msmemscope.stop()
        msmemscope.config(events="alloc,free", device="cpu")        # for nothing
    """)
    sizes = [(row["Event"], row.attributes["size"]) for row in one.rows() if row["Event Type"] == "HAL"]
    # What was shown has its end.
    assert sizes == [("MALLOC", "4096"), ("FREE", "4096"), ("MALLOC", "8192"), ("FREE", "8192")]
    assert len(one.files("memscope_dump_*.csv")) == 1


def test_threads_started_before_the_import_are_recorded(run):
    one = run("""
        import threading
        import small_framework as framework
        framework.begin()
        go = threading.Event()
        def work():
            framework.acl.aclrtSetDevice(0)
            go.wait()
            framework.free(framework.allocate(4096))
        thread = threading.Thread(target=work)
        thread.start()
        import msmemscope
        msmemscope.config(output="out")
        msmemscope.start()
        go.set()
        thread.join()
        msmemscope.stop()
    """)
    assert len(one.rows("MALLOC", "HAL")) == 1


def test_python_dash_m(run):
    one = run(
        """
        import msmemscope
        import small_framework as framework
        with msmemscope.recording(output="out"):
            framework.begin()
            framework.allocate(4096)
        """,
        as_module=True,
    )
    assert len(one.rows("MALLOC", "HAL")) == 1


@pytest.mark.parametrize("spelling", ["output", "output_path"])
def test_both_spellings(run, spelling):
    one = run(f"""
        import msmemscope
        import small_framework as framework
        msmemscope.config({spelling}="out", format="db")
        msmemscope.start()
        framework.begin()
        framework.allocate(4096)
        msmemscope.stop()
    """)
    assert len(one.files("memscope_dump_*.db")) == 1


@pytest.mark.parametrize("mode", ["api", "cli"])
def test_only_chosen_steps_are_written(run, mode):
    one = run(
        f"""
        import msmemscope
        import small_framework as framework
        if {mode == "api"}:
            msmemscope.config(steps="2,4", output="out")
            msmemscope.start()
        framework.begin()
        for step in range(1, 6):
            framework.free(framework.allocate(4096 * step))
            msmemscope.step()
        if {mode == "api"}:
            msmemscope.stop()
        """,
        mode=mode,
        options=("--steps=2,4",),
    )
    sizes = [int(row.attributes["size"]) // 4096 for row in one.rows("MALLOC", "HAL")]
    assert sizes == [2, 4]


def test_recording_nests(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(events="alloc,free", output="out")
        framework.begin()
        def allocate(pages):
            framework.free(framework.allocate(4096 * pages))
        with msmemscope.recording():
            allocate(1)
            with msmemscope.recording() as directory:
                allocate(2)
            allocate(3)
        allocate(100)
        @msmemscope.recording()
        def again(depth):
            if depth:
                again(depth - 1)
            allocate(4 + depth)
        again(2)
        allocate(100)
        msmemscope.start()
        with msmemscope.recording():
            allocate(7)
        allocate(8)
        msmemscope.stop()
        allocate(100)
        assert directory().is_dir()
    """)
    sizes = [int(row.attributes["size"]) // 4096 for row in one.rows("MALLOC", "HAL")]
    assert sizes == [1, 2, 3, 4, 5, 6, 7, 8]


def test_recording_lasts_until_a_coroutine_or_generator_is_done(run):
    one = run("""
        import asyncio
        import msmemscope
        import small_framework as framework
        msmemscope.config(events="alloc,free", output="out")
        framework.begin()
        def allocate(pages):
            framework.free(framework.allocate(4096 * pages))
        @msmemscope.recording()
        async def coroutine():
            allocate(1)
            await asyncio.sleep(0)
            allocate(2)
        asyncio.run(coroutine())
        allocate(100)
        @msmemscope.recording()
        def generator():
            allocate(3)
            yield
            allocate(5)
        for _ in generator():
            allocate(4)
        allocate(100)
    """)
    sizes = [int(row.attributes["size"]) // 4096 for row in one.rows("MALLOC", "HAL")]
    assert sizes == [1, 2, 3, 4, 5]


def test_files_that_cannot_be_written_are_only_a_warning(run):
    one = run("""
        import resource
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        framework.begin()
        kept = []
        try:
            with msmemscope.recording():
                framework.allocate(4096)
                resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
                try:
                    while True:
                        kept.append(open("/dev/null"))
                except OSError:
                    pass
                raise KeyError("own")
        except KeyError as error:
            kept.clear()
            print(error)
    """)
    assert one.stdout == "'own'\n"
    assert "could not be written, the recording is kept: [Errno 24] Too many open files" in one.stderr
    (directory,) = (path.parent for path in one.files("recording.trace"))
    assert f"when the cause is removed: msmemscope finish {directory}\n" in one.stderr
    assert len(one.rows("MALLOC", "HAL")) == 1


def test_files_that_cannot_be_written_at_the_end_are_told_with_what_to_do(run):
    one = run("""
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        framework.begin()
        msmemscope.start()
        framework.allocate(4096)
        msmemscope.stop(finish=False)
        (msmemscope.recording_directory() / "device_0").write_text("in the way")
    """)
    (directory,) = (path.parent for path in one.files("recording.trace"))
    assert f"once the cause is removed: msmemscope finish '{directory}'" in one.stderr


def test_messages_never_go_to_stdout(run):
    one = run("""
        import sys
        import msmemscope
        sys.stderr = None
        msmemscope.config(output="out")
        msmemscope.start()
        msmemscope.stop()
    """)
    assert one.stdout == ""


@pytest.mark.parametrize("as_module", [False, True])
def test_an_interrupted_program_has_its_files(run, as_module):
    one = run(
        """
        import os
        import signal
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        framework.begin()
        msmemscope.start()
        framework.allocate(4096)
        signal.signal(signal.SIGINT, signal.default_int_handler)        # ignored in the background of a shell
        os.kill(os.getpid(), signal.SIGINT)
        framework.allocate(8192)
        """,
        as_module=as_module,
        check=False,
    )
    assert one.status == -signal.SIGINT
    assert [row.attributes["size"] for row in one.rows("MALLOC", "HAL")] == ["4096"]
    assert one.stderr.count("memscope_dump_") == 1


def test_an_interrupt_that_is_caught_ends_as_always(run):
    one = run("""
        import os
        import signal
        import msmemscope
        import small_framework as framework
        msmemscope.config(output="out")
        framework.begin()
        msmemscope.start()
        framework.allocate(4096)
        try:
            os.kill(os.getpid(), signal.SIGINT)
            os.read(0, 1)
        except KeyboardInterrupt:
            pass
    """)
    assert one.stderr.count("memscope_dump_") == 1
