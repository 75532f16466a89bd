"""How long a capture takes, beside the interpreter's own way of walking through frames."""

import sys
import time

import probe

BATCHES = 300
DEPTHS = (1, 16, 20, 50)
LEVELS = 60


def own_way(depth):
    """The cheapest walk that can be written in Python."""
    frame = sys._getframe()
    frames = []
    while frame is not None and len(frames) < depth:
        frames.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return frames


def measure_own_way(depth):
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(50):
            own_way(depth)
        best = min(best, (time.perf_counter() - start) / 50 * 1e9)
    return best


def measure():
    for depth in DEPTHS:
        library = probe.without_lock
        print("%s depth %2d: same stack %4.0f ns, changing %4.0f ns, after other work %4.0f ns, in Python %5.0f ns" % (
            sys.version.split()[0], depth, library.probe_measure(depth, BATCHES, 0),
            library.probe_measure(depth, BATCHES, 1), library.probe_measure_after_other_work(depth, 2_000),
            measure_own_way(depth)))


def functions():
    """A chain of functions, each with code and name of its own and in one of a few files, as in real programs."""
    scope = {"next_function": measure}
    for level in range(LEVELS):
        source = "def layer_%d_forward(call):\n    return call()\n" % level
        exec(compile(source, "/models/part_%d/layers.py" % (level % 7), "exec"), scope)
        function, call = scope["layer_%d_forward" % level], scope["next_function"]
        scope["next_function"] = lambda function=function, call=call: function(call)
    return scope["next_function"]


def main():
    assert probe.attach() == 0
    probe.prepare()
    functions()()


main()
