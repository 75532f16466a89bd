"""Random call patterns: at every point the captured stack is what the interpreter shows."""

import asyncio
import contextlib
import ctypes
import functools
import random
import re
import sys
import threading

import probe
from probe import check

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
THREADS = 8
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Walk:
    """One random walk through kinds of calls; every kind calls `go` again one level deeper."""

    def __init__(self, seed, count):
        self.random = random.Random(seed)
        self.left = count
        self.kinds = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("by_")]

    def run(self):
        while self.left > 0:
            self.go(self.random.randrange(1, 14))

    def look(self):
        if self.left <= 0:
            return
        self.left -= 1
        # By far most stacks are taken with the usual limit, without the lock.
        depth = self.random.choice((16, 16, 16, 3, 1, 40, probe.LARGEST_DEPTH))
        check(depth, self.random.choice((probe.without_lock, probe.without_lock, probe.with_lock)))

    def go(self, depth):
        if self.left <= 0:
            return
        if depth <= 0 or self.random.random() < 0.3:
            self.look()
        if depth > 0:
            self.random.choice(self.kinds)(depth - 1)

    def by_call(self, depth):
        self.go(depth)

    def by_lambda(self, depth):
        (lambda: self.go(depth))()

    def by_generator(self, depth):
        def generate():
            yield 1
            self.go(depth)
            yield 2
        generator = generate()
        next(generator)
        next(generator)
        self.look()
        list(generator)

    def by_delegation(self, depth):
        def inner():
            self.look()
            yield 1
            self.go(depth)

        def outer():
            yield from inner()
        for _ in outer():
            self.look()

    def by_generator_expression(self, depth):
        sum(1 for _ in range(1) if self.go(depth) is None)

    def by_comprehension(self, depth):
        [self.go(depth) for _ in range(1)]
        {self.look(): 1 for _ in range(1)}

    def by_abandoned_generator(self, depth):
        def generate():
            try:
                yield 1
            finally:
                self.go(depth)
        next(generate())

    def by_thrown_exception(self, depth):
        def generate():
            try:
                yield 1
            except KeyError:
                self.go(depth)
                yield 2
        generator = generate()
        next(generator)
        generator.throw(KeyError("thrown"))

    def by_exception(self, depth):
        try:
            raise ValueError(depth)
        except ValueError:
            self.go(depth)
        finally:
            self.look()

    def by_unwinding(self, depth):
        def fail(levels):
            try:
                if levels == 0:
                    raise RuntimeError("up")
                fail(levels - 1)
            finally:
                if levels == 1:
                    self.go(depth)
        with contextlib.suppress(RuntimeError):
            fail(3)

    def by_context_manager(self, depth):
        @contextlib.contextmanager
        def region():
            self.look()
            yield
            self.look()
        with region():
            self.go(depth)

    def by_decorator(self, depth):
        def decorated(function):
            @functools.wraps(function)
            def wrapper(*arguments, **keywords):
                return function(*arguments, **keywords)
            return wrapper
        decorated(decorated(self.go))(depth)

    def by_partial(self, depth):
        functools.partial(self.go, depth)()

    def by_sorting(self, depth):
        def key(number):
            if number == 2:
                self.go(depth)
            return -number
        sorted([1, 2, 3], key=key)

    def by_map(self, depth):
        list(map(self.go, [depth]))

    def by_regular_expression(self, depth):
        def replace(match):
            self.go(depth)
            return "b"
        re.sub("a", replace, "a")

    def by_c_callback(self, depth):
        probe.without_lock.probe_call(CALLBACK(lambda _: self.go(depth)), None)

    def by_class(self, depth):
        walk = self

        class Meta(type):
            def __call__(cls, *arguments):
                return super().__call__(*arguments)

        class Made(metaclass=Meta):
            def __init__(self, value):
                walk.look()
                self.value = value

            def __getattr__(self, name):
                walk.go(depth)
                return name

            @property
            def twice(self):
                walk.look()
                return 2 * self.value

            def __del__(self):
                walk.look()
        made = Made(3)
        made.missing
        made.twice
        del made

    def by_coroutine(self, depth):
        async def inner():
            self.look()
            await asyncio.sleep(0)
            self.go(depth)

        async def outer():
            await inner()
        coroutine = outer()
        try:
            while True:
                coroutine.send(None)
        except StopIteration:
            pass

    def by_asynchronous_generator(self, depth):
        async def generate():
            yield 1
            self.go(depth)
            yield 2

        async def consume():
            return [value async for value in generate()]
        with contextlib.suppress(StopIteration):
            consume().send(None)

    def by_fresh_code(self, depth):
        """Code that is compiled, run and freed: its addresses are used again and again."""
        lines = self.random.randrange(3)
        file = "<%s %d>" % (self.random.choice(("cell", "text")), self.random.randrange(1000))
        scope = {"go": self.go, "depth": depth}
        exec(compile("\n" * lines + "def run():\n    go(depth)\nrun()", file, "exec"), scope)

    def by_evaluation(self, depth):
        eval("go(depth)", {"go": self.go, "depth": depth})

    def by_long_arguments(self, depth):
        def many(*arguments, **keywords):
            cells = [lambda: argument for argument in arguments]
            self.go(depth)
            return cells
        many(*range(20), **{"k%d" % number: number for number in range(20)})


def recurse(depth):
    if depth == 0:
        check(16)
        check()
    else:
        recurse(depth - 1)


def in_threads():
    failures = []

    def work(seed):
        try:
            Walk(seed, COUNT // 50).run()
        except BaseException as error:  # noqa: B036 the main thread reports it
            failures.append(error)
            raise
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


async def event_loop():
    async def task(number):
        for _ in range(3):
            check()
            await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, check)
    await asyncio.gather(*[task(number) for number in range(10)])


def main():
    assert probe.attach() == 0
    assert "not self-checked yet" in probe.status(), probe.status()
    probe.prepare()
    assert probe.with_lock.probe_capture_elsewhere(16) == 0
    Walk(0, COUNT).run()
    in_threads()
    asyncio.run(event_loop())
    sys.setrecursionlimit(10_000)
    recurse(2_000)
    assert probe.checked >= COUNT + THREADS * (COUNT // 50)
    print("%s: %d stacks compared, %d distinct" % (
        sys.version.split()[0], probe.checked, probe.without_lock.probe_definition_count() & 0xFFFFFFFF))


main()
