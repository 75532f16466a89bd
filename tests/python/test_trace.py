"""The Python trace: calls of all threads, named regions, exceptions."""

import sqlite3
import sys

import pytest


def names(run):
    return [name.rpartition(": ")[2] for name in run.calls()]


def test_tracer_alone(run):
    one = run("""
        import msmemscope
        msmemscope.config(output="out")
        def inner(values):
            return sorted(values)
        def outer():
            return inner([3, 1, 2])
        outer()                        # not traced
        msmemscope.tracer.start()
        outer()
        msmemscope.tracer.stop()
        outer()                        # not traced
    """)
    assert names(one) == ["<module>", "outer", "inner", "builtins.sorted"]
    (path,) = one.files("python_trace_*.csv")
    assert path.read_text().splitlines()[0] == "FuncInfo,StartTime(ns),EndTime(ns),Thread Id,Process Id"
    assert f"{one.directory}/script.py(4): inner" in path.read_text()
    assert "nothing to write" not in one.stderr


def test_events_traceback(run):
    one = run("""
        import msmemscope
        def traced(): pass
        def untraced(): pass
        msmemscope.config(events="traceback", output="out")
        msmemscope.start()
        traced()
        msmemscope.stop()
        untraced()
        msmemscope.config(events="")
        msmemscope.start()
        untraced()
        msmemscope.stop()
    """)
    assert "traced" in names(one)
    assert "untraced" not in names(one)


def test_an_empty_scope_shows_nothing_of_ours(run):
    one = run("""
        import msmemscope
        msmemscope.config(events="traceback", output="out", log_level="info")
        msmemscope.start()
        msmemscope.stop()
    """)
    assert names(one) == ["<module>"]


@pytest.mark.parametrize("data_format", ["csv", "db"])
@pytest.mark.parametrize("how", ["tracer", "events", "region"])
def test_a_trace_alone_is_written_beside_the_device_in_use(run, how, data_format):
    begin, end = {
        "tracer": ("msmemscope.tracer.start()", "msmemscope.tracer.stop()"),
        "events": ("msmemscope.start()", "msmemscope.stop()"),
        "region": ("region = msmemscope.RecordFunction('work'); region.__enter__()", "region.__exit__()"),
    }[how]
    one = run(f"""
        import msmemscope
        import small_framework as device
        msmemscope.config(events="traceback", data_format="{data_format}", output="out")
        device.begin(1)
        block = device.allocate(1 << 20)
        def work(): pass
        {begin}
        work()
        {end}
    """)
    assert "work" in names(one)
    (path,) = one.files("python_trace_*.csv")
    assert path.parent.relative_to(path.parents[2]).as_posix() == "device_1/dump"
    assert "nothing to write" not in one.stderr
    if data_format == "db":
        (path,) = one.files("*_dump_*.db")
        with sqlite3.connect(path) as database:
            (table,) = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'python_trace%'").fetchone()
            calls = [name for (name,) in database.execute(f"SELECT FuncInfo FROM {table}")]
        assert sorted(calls) == sorted(one.calls())


def test_exceptions_close_calls(run):
    one = run("""
        import msmemscope
        msmemscope.config(output="out")
        def deep(n):
            if n == 0:
                int("no number")       # a C function that raises
            deep(n - 1)
        def after(): pass
        msmemscope.tracer.start()
        try:
            deep(3)
        except ValueError:
            pass
        after()
        msmemscope.tracer.stop()
    """)
    rows = {}
    for line in one.files("python_trace_*.csv")[0].read_text().splitlines()[1:]:
        name, start, end, *_ = line.rsplit(",", 4)
        rows.setdefault(name.rpartition(": ")[2], []).append((int(start), int(end)))
    assert len(rows["deep"]) == 4
    last_end = max(end for _, end in rows["deep"])
    assert rows["after"][0][0] >= last_end


def test_threads(run):
    one = run("""
        import threading
        import msmemscope
        msmemscope.config(output="out")
        ready, go = threading.Event(), threading.Event()
        def in_old_thread(): pass
        def in_new_thread(): pass
        def old():
            ready.set()
            go.wait()
            in_old_thread()
        thread = threading.Thread(target=old)
        thread.start()
        ready.wait()
        msmemscope.tracer.start()
        go.set()
        thread.join()
        threads = [threading.Thread(target=in_new_thread) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        msmemscope.tracer.stop()
    """)
    assert names(one).count("in_old_thread") == 1
    assert names(one).count("in_new_thread") == 3
    assert len(one.files("python_trace_*.csv")) == 5


def test_generators_and_coroutines(run):
    one = run("""
        import asyncio
        import msmemscope
        msmemscope.config(output="out")
        def numbers():
            yield 1
            yield 2
        async def work(n):
            await asyncio.sleep(0)
            return n
        async def main():
            return await asyncio.gather(*(work(n) for n in range(3)))
        msmemscope.tracer.start()
        assert list(numbers()) == [1, 2]
        assert asyncio.run(main()) == [0, 1, 2]
        msmemscope.tracer.stop()
    """)
    assert names(one).count("numbers") == 3
    assert names(one).count("work") == 6


def test_record_function(run):
    one = run("""
        import asyncio
        import msmemscope
        msmemscope.config(output="out")
        with msmemscope.RecordFunction("forward_pass"):
            pass
        @msmemscope.RecordFunction("decorated")
        def forward_pass(data):
            '''Doc.'''
            return data
        assert forward_pass(3) == 3 and forward_pass.__name__ == "forward_pass" and forward_pass.__doc__ == "Doc."
        try:
            with msmemscope.RecordFunction("raises"):
                1 / 0
        except ZeroDivisionError:
            pass
        @msmemscope.RecordFunction("stretch")
        async def task(n):
            await asyncio.sleep(0)
            if n == 1:
                raise KeyError(n)
            return n
        async def main():
            return await asyncio.gather(task(0), task(1), return_exceptions=True)
        first, second = asyncio.run(main())
        assert first == 0 and isinstance(second, KeyError)
        @msmemscope.RecordFunction("generated")
        def generator():
            received = yield 1
            assert received == "sent"
            try:
                yield 2
            except KeyError:
                yield 3
        values = generator()
        assert [next(values), values.send("sent"), values.throw(KeyError())] == [1, 2, 3]
        values.close()
    """)
    counted = {name: one.calls().count(name) for name in set(one.calls())}
    assert counted == {"forward_pass": 1, "decorated": 1, "raises": 1, "stretch": 4, "generated": 4}


def test_a_second_profiler_is_left_alone(run):
    one = run("""
        import sys
        import msmemscope
        msmemscope.config(output="out")
        seen = []
        sys.setprofile(lambda *a: seen.append(a[1]))
        msmemscope.tracer.start()
        len([])
        msmemscope.tracer.stop()
        sys.setprofile(None)
        assert "c_call" in seen
    """)
    if sys.version_info < (3, 12):
        assert "another profiler is active" in one.stderr


def test_a_profiler_that_comes_later_works(run):
    one = run("""
        import cProfile
        import pstats
        import sys
        import msmemscope
        msmemscope.config(output="out")
        def traced(): pass
        def profiled(): pass
        msmemscope.tracer.start()
        traced()
        profiler = cProfile.Profile()
        profiler.enable()
        profiled()
        msmemscope.tracer.stop()
        profiled()
        profiler.disable()
        counts = {name[2]: numbers[0] for name, numbers in pstats.Stats(profiler).stats.items()}
        assert counts["profiled"] == 2, counts
    """)
    assert "traced" in names(one)
    assert "not traced" not in one.stderr


def test_profilers_of_other_threads_stay(run):
    one = run("""
        import sys
        import threading
        import msmemscope
        msmemscope.config(output="out")
        begun, go, seen = threading.Event(), threading.Event(), []
        def profile(frame, event, argument):
            seen.append(frame.f_code.co_name)
        def during(): pass
        def after(): pass
        def work():
            sys.setprofile(profile)
            begun.set()
            go.wait()
            during()
            assert sys.getprofile() is profile
            go.clear()
            begun.set()
            go.wait()
            after()
        thread = threading.Thread(target=work, name="profiled one")
        thread.start()
        begun.wait()
        msmemscope.tracer.start()
        begun.clear()
        go.set()
        begun.wait()
        threading.setprofile(profile)
        msmemscope.tracer.stop()
        assert threading._profile_hook is profile
        msmemscope.tracer.start()
        msmemscope.tracer.stop()
        assert threading._profile_hook is profile
        go.set()
        thread.join()
        assert "during" in seen and "after" in seen, seen
    """)
    if sys.version_info < (3, 12):
        assert "other profilers are active: thread 'profiled one'\n" in one.stderr
        assert "thread 'profiled one', threads that begin from now on\n" in one.stderr
        assert "during" not in names(one)


def test_other_tools_keep_their_places(run):
    one = run("""
        import sys
        import msmemscope
        msmemscope.config(output="out")
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is not None:
            taken = []
            for expected in (3, 4, 5, 1, 0, 2):
                msmemscope.tracer.start()
                assert monitoring.get_tool(expected) == "msmemscope", expected
                msmemscope.tracer.stop()
                monitoring.use_tool_id(expected, "other")
            msmemscope.tracer.start()
            assert all(monitoring.get_tool(tool) == "other" for tool in range(6))
    """)
    if sys.version_info >= (3, 12):
        assert "not traced: other tools use all places" in one.stderr


def test_methods_of_native_types(run):
    one = run("""
        import re
        import threading
        import msmemscope
        msmemscope.config(output="out")
        def generator():
            yield
        values, pattern, lock, running = {1: 2}, re.compile("a"), threading.Lock(), generator()
        def use():
            values.get(1)
            ",".join(["a"])
            {1}.add(2)
            pattern.match("a")
            lock.acquire()
            running.send(None)
            try:
                [].pop()
            except IndexError:
                pass
            len([])
        msmemscope.tracer.start()
        use()
        msmemscope.tracer.stop()
    """)
    called = [name.rpartition(".")[2] for name in names(one)]
    assert called == ["<module>", "use", "get", "join", "add", "match", "acquire", "send", "generator", "pop", "len"]


def test_decorated_generators_and_coroutines_behave_as_before(run):
    one = run("""
        import asyncio
        import inspect
        import types
        import msmemscope
        from msmemscope import describe
        msmemscope.config(output="out")

        async def asynchronous():
            received = []
            while True:
                try:
                    received.append((yield len(received)))
                    await asyncio.sleep(0)
                except KeyError as error:
                    received.append(error.args[0])
                except GeneratorExit:
                    received.append("closed")
                    history.extend(received)
                    raise

        @types.coroutine
        def awaited():
            return (yield from asyncio.sleep(0, "result").__await__())

        def failing():
            try:
                yield 1
            finally:
                history.append("cleaned")

        async def main(decorated):
            items = decorated(asynchronous)()
            assert inspect.isasyncgen(items)
            assert await items.asend(None) == 0
            assert await items.asend("sent") == 1
            assert await items.athrow(KeyError("thrown")) == 2
            try:
                await items.athrow(ValueError("through"))
            except ValueError as error:
                assert error.args == ("through",)
            else:
                raise AssertionError
            items = decorated(asynchronous)()
            await items.asend(None)
            await items.asend("first")
            await items.aclose()
            assert history == ["first", "closed"], history
            assert await decorated(awaited)() == "result"
            started = decorated(failing)()
            next(started)
            started.close()
            assert history.pop() == "cleaned"

        for decorated in msmemscope.RecordFunction("region"), describe.describer(owner="x"), msmemscope.recording():
            history = []
            asyncio.run(main(decorated))
    """)
    assert one.calls().count("region") > 5


def test_a_region_keeps_its_name_in_another_process(run):
    one = run("""
        import pickle
        import subprocess
        import sys
        import msmemscope
        region = msmemscope.RecordFunction("the region")
        if len(sys.argv) == 1:
            msmemscope.config(output="first")
            for name in ("a", "b", "c"):
                with msmemscope.RecordFunction(name):
                    pass
            with region:
                pass
            open("region", "wb").write(pickle.dumps(region))
            subprocess.run([sys.executable, __file__, "second"], check=True)
        else:
            msmemscope.config(output="out")
            with msmemscope.RecordFunction("other"):
                pass
            with pickle.load(open("region", "rb")):
                pass
    """)
    assert one.calls() == ["other", "the region"]
