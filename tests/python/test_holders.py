"""Paths of references that keep objects alive, in words. Objects of a type of our own stand for tensors."""

import collections
import functools
import gc
import re
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from msmemscope._holders import frames, schedule
from msmemscope._holders.schedule import MODULE, OPTIMIZER, STEP, Schedule
from msmemscope._holders.walk import Undisturbed, find

HERE = Path(__file__).name


class Leaf:
    """Stands for a tensor."""

    def __init__(self, name=""):
        self.name = name


def holders(**limits):
    """The ways to all leaves, by name."""
    with Undisturbed():
        found = find(Leaf, 60.0, **limits)
        return {found.paths.thing(index).name: found.paths.text(index) for index in found.targets}


def line(mark):
    """The line of this file that carries a mark."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return number


def test_a_list_in_a_local_variable():
    history = []  # history is made
    for number in range(3):
        history.append(Leaf(str(number)))
    del number
    here = f"local 'history' of test_a_list_in_a_local_variable (tests/python/{HERE}:{line('history is made')})"
    text = holders()["0"]
    assert text.replace(str(Path(__file__).parent), "tests/python") == f"{here} > list of 3"
    history.clear()
    assert "0" not in holders()


def test_the_line_of_a_variable_is_where_it_grows_not_where_it_is_zero():
    total, sure = 0.0, Leaf("sure")  # both are made
    last = None
    for number in range(3):
        total = [total, Leaf(f"sum {number}")]  # a chain grows
        if number == 2:
            last = Leaf("last")  # the last one
    where = re.compile(r"local '(\w+)' of \w+ \(\S+:(\d+)\)")
    found = dict(way.groups() for way in map(where.match, holders().values()) if way)
    found = {name: int(number) for name, number in found.items()}
    assert found == {"total": line("a chain grows"), "last": line("the last one"), "sure": line("both are made")}
    assert total and last and sure


def test_an_argument_is_found_where_it_comes_from():
    def callee(argument):
        return holders()

    mine = Leaf("mine")
    assert callee(mine)["mine"].startswith("local 'mine' of test_an_argument_is_found")


STORE = []


def test_a_global_is_found_as_what_it_is_though_an_argument_names_it_too():
    def evaluate(results, shelf):
        results.append(Leaf("kept"))
        shelf.append(Leaf("shelved"))
        return holders()

    found = evaluate(STORE, [])
    STORE.clear()
    assert found["kept"].startswith("global 'STORE' of test_holders (") and found["kept"].endswith(" > list of 1")
    assert found["shelved"].startswith("local 'shelf' of test_a_global_is_found")


class Probe:
    def __init__(self):
        self.acts = {}

    def save(self, name):
        self.acts[name] = Leaf(name)


def test_attributes_keys_and_counts():
    probe = Probe()
    probe.save("h3")
    assert holders()["h3"].endswith(" > Probe.acts['h3']")
    probe.acts["rows"] = 3
    assert holders()["h3"].endswith(" > Probe.acts['h3']"), "one of a few things"
    for number in range(10):
        probe.save(str(number))
    assert holders()["h3"].endswith(" > Probe.acts > dict of 12"), "one of many"
    queue = collections.deque([(Leaf("in a tuple"), 1)])
    assert holders()["in a tuple"].endswith(" > deque of 1 > tuple of 2")
    del queue


def test_slots_and_attributes_without_a_dictionary():
    class Slotted:
        __slots__ = ("kept",)

    slotted = Slotted()
    slotted.kept = Leaf("in a slot")
    assert holders()["in a slot"].endswith(" > Slotted.kept")
    plain = Leaf("outer")
    plain.inner = Leaf("inner")
    found = holders()
    assert found["outer"].startswith("local 'plain' of ") and found["inner"] == found["outer"] + " > Leaf.inner"


callbacks = []


def test_a_closure_kept_by_a_global():
    def train_step():
        logits = Leaf("logits")

        def report():  # report is defined
            return logits

        callbacks.append(report)

    train_step()
    text = holders()["logits"]
    callbacks.clear()
    assert text.startswith("global 'callbacks' of test_holders (")
    assert " > list of 1 > closure of test_a_closure_kept_by_a_global.<locals>.train_step.<locals>.report (" in text
    assert text.endswith(f"{HERE}:{line('report is defined')}), 'logits'")


def test_default_arguments_methods_and_partials():
    def with_default(cache=[Leaf("default")]):  # noqa: B006, B008 - that is the fault
        return cache

    assert (
        "default argument of test_default_arguments_methods_and_partials.<locals>.with_default" in holders()["default"]
    )
    probe = Probe()
    probe.save("bound")
    method = probe.save
    del probe
    assert holders()["bound"].endswith(" > method Probe.save > Probe.acts['bound']")
    partial = functools.partial(print, Leaf("given"))
    assert "local 'partial' of" in holders()["given"] and "partial" in holders()["given"].partition(" > ")[2]
    del method, partial


def test_class_attributes():
    class Registry:
        entries = [Leaf("registered")]

    assert "class Registry.entries > list of 1" in holders()["registered"]


@pytest.mark.parametrize("size", [None, 8])
def test_caches_of_functools(size):
    @functools.lru_cache(maxsize=size)
    def embedding(key):
        return Leaf(key)

    embedding("cached")
    assert " > functools cache of test_caches_of_functools.<locals>.embedding (" in holders()["cached"]
    embedding.cache_clear()
    assert "cached" not in holders()


def test_generators():
    def batches():
        batch = Leaf("batch")  # batch is made
        yield 1
        print(batch)

    generator = batches()
    next(generator)
    text = holders()["batch"]
    assert " > generator > local 'batch' of " in text and text.endswith(f"{HERE}:{line('batch is made')})")
    generator.close()
    assert "batch" not in holders()


def test_exceptions_and_their_tracebacks():
    def fail():
        big = Leaf("big")  # big is made
        raise ValueError(f"no room for {big.name}")

    kept = []
    try:
        fail()
    except ValueError as error:
        kept.append(error)
    text = holders()["big"]
    assert " > list of 1 > traceback of ValueError > local 'big' of " in text
    assert text.endswith(f"{HERE}:{line('big is made')})")
    kept.clear()
    assert "big" not in holders()


def test_an_exception_that_is_being_handled():
    def fail():
        handled = Leaf("handled")
        raise ValueError(handled)

    try:
        fail()
    except ValueError:
        text = holders()["handled"]
    assert "ValueError being handled" in text


def test_hooks_and_members_of_modules():
    class Module:
        """Has what modules of PyTorch have."""

        def __init__(self):
            self._modules, self._parameters, self._buffers = {}, {}, {}
            self._forward_hooks = collections.OrderedDict()

        def register_forward_hook(self):
            pass

    model, blocks, block, probe = Module(), Module(), Module(), Probe()
    model._modules["blocks"], blocks._modules["3"] = blocks, block
    block._parameters["weight"] = Leaf("weight")
    block._buffers["buffer"] = Leaf("buffer")
    block.cache = Leaf("cache")
    probe.save("h3")
    block._forward_hooks[7] = probe.save
    del blocks, block, probe
    found = holders()
    assert found["weight"].endswith(" > parameters of Module")
    assert found["buffer"].endswith(" > Module.blocks.3.buffer")
    assert found["cache"].endswith(" > Module.blocks.3.cache")
    assert found["h3"].endswith(" > forward hook on blocks.3 > method Probe.save > Probe.acts['h3']")
    del model


def test_links_of_a_chain_are_one():
    class Link:
        def __init__(self, leaf, following):
            self.leaf, self.following = leaf, following

    chain = Link(Leaf("third"), Link(Leaf("second"), Link(Leaf("first"), Link(Leaf("zeroth"), None))))
    found = holders()
    assert found["second"].endswith("> Link.following > Link.leaf")
    assert found["first"].endswith("> Link.following, repeatedly > Link.leaf") and found["zeroth"] == found["first"]
    del chain


class Part:
    """Has what modules of PyTorch have."""

    def __init__(self, **parts):
        self._modules, self._parameters, self._buffers = parts, {}, {}
        self._forward_hooks, self._forward_pre_hooks = collections.OrderedDict(), collections.OrderedDict()

    def register_forward_hook(self):
        pass


class Spy:
    """Keeps what its hooks see, and other things."""

    def __init__(self):
        self.seen, self.losses = {}, []

    def make(self, name):
        def look(leaf):
            self.seen.setdefault(name, []).append(leaf)

        return look

    def __call__(self, leaf):
        self.seen["called"] = leaf


seen_by_all = []


def test_hooks_that_put_things_aside_are_named():
    def look_globally(leaf):
        seen_by_all.append(leaf)

    spy, caller, model = Spy(), Spy(), Part(first=Part(), second=Part(), third=Part())
    model._parameters["weight"] = Leaf("weight")
    parts = model._modules
    parts["first"]._forward_hooks[0] = spy.make("h1")
    parts["second"]._forward_hooks[0] = spy.make("h2")
    parts["second"]._forward_hooks[1] = functools.partial(list.append, [])
    parts["third"]._forward_pre_hooks[0] = caller
    parts["third"]._forward_hooks[0] = look_globally
    for hook, name in ((parts["first"]._forward_hooks[0], "seen"), (caller, "called"), (look_globally, "global")):
        hook(Leaf(name))
    spy.losses.append(Leaf("loss"))
    try:
        found = holders()
        assert found["seen"].endswith(" > Spy.seen['h1'] > list of 1 via forward hook on first and 1 more module")
        assert found["called"].endswith(" > Spy.seen['called'] via forward pre-hook on third")
        assert re.search(r"global 'seen_by_all' .* > list of 1 via forward hook on third$", found["global"])
        assert found["loss"].endswith(" > Spy.losses > list of 1"), "no hook names it"
        assert " via " not in found["weight"]
    finally:
        seen_by_all.clear()
    del model, spy, caller


def test_what_is_better_known_elsewhere_is_looked_for_there_first():
    class Optimizer:
        pass

    optimizer, probe = Optimizer(), Probe()
    probe.save("weight")
    optimizer.weight = probe.acts["weight"]
    optimizer.state = Leaf("state")
    assert holders()["weight"].endswith("Optimizer.weight"), "that way is shorter"
    found = holders(late=(Optimizer,))
    assert found["weight"].endswith("Probe.acts['weight']") and found["state"].endswith("Optimizer.state")


def test_variables_of_other_threads():
    is_ready, may_end = threading.Event(), threading.Event()

    def work():
        elsewhere = Leaf("elsewhere")
        is_ready.set()
        may_end.wait()
        return elsewhere

    thread = threading.Thread(target=work)
    thread.start()
    is_ready.wait()
    text = holders()["elsewhere"]
    may_end.set()
    thread.join()
    assert text.startswith("local 'elsewhere' of ")


def test_a_cycle_that_waits_for_the_collector():
    class Node:
        pass

    with Undisturbed():
        node = Node()
        node.self, node.leaf = node, Leaf("garbage")
        del node
        text = holders()["garbage"]
    gc.collect()
    assert text.startswith("reference cycle of ") and "gc.collect() would free" in text
    assert "garbage" not in holders()


class Touchy:
    """Counts everything that happens to it."""

    touched = collections.Counter()

    def __init__(self):
        object.__setattr__(self, "leaf", Leaf("touchy"))

    def _touch(name):  # noqa: N805 - makes methods
        def touch(self, *arguments):
            Touchy.touched[name] += 1
            raise RuntimeError(name)

        return touch

    for _name in ("__eq__", "__hash__", "__repr__", "__str__", "__len__", "__iter__", "__bool__", "__getattribute__"):
        locals()[_name] = _touch(_name)
    __getattr__ = _touch("__getattr__")
    kept = property(_touch("kept"))
    __dict__ = property(_touch("__dict__"))
    __class__ = property(_touch("__class__"))


class TouchyType(type):
    def __eq__(cls, other):
        Touchy.touched["type"] += 1
        return NotImplemented

    def __hash__(cls):
        Touchy.touched["type"] += 1
        return type.__hash__(cls)

    def __instancecheck__(cls, thing):
        Touchy.touched["type"] += 1
        return False

    __subclasscheck__ = __instancecheck__
    __name__ = property(__hash__)


class TouchyList(list, metaclass=TouchyType):
    __len__ = __iter__ = __getitem__ = Touchy._touch("list")


def test_no_code_of_the_job_runs():
    touchy = Touchy()
    many = TouchyList()
    list.append(many, Leaf("in a list"))
    Touchy.touched.clear()
    found = holders()
    assert found["in a list"].endswith(" > TouchyList of 1")
    assert found["touchy"].endswith(" > Touchy.leaf")
    assert dict(Touchy.touched) == {}
    del touchy


def test_nothing_is_changed():
    deaths = []
    kept, history = Leaf("kept"), [Leaf("listed")]
    reference = weakref.ref(kept, lambda _: deaths.append("weak"))
    thresholds, is_on = gc.get_threshold(), gc.isenabled()

    def watched():
        return (reference(),)

    def counts():
        return [sys.getrefcount(thing) for thing in (*watched(), history, history[0], Leaf, sys._getframe(1), holders)]

    before = counts()
    holders()
    assert counts() == before and reference() is kept and not deaths
    assert (gc.get_threshold(), gc.isenabled()) == (thresholds, is_on)
    with Undisturbed():
        gc.collect()
        holders()
        assert gc.collect() == 0, "nothing is left for the collector"
    del kept
    assert deaths == ["weak"], "the variable was the only reference"
    gc.disable()
    try:
        holders()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_variable_that_is_gone_is_not_kept_by_the_look():
    reference = None

    def work():
        nonlocal reference
        short = Leaf("short")
        reference = weakref.ref(short)
        assert "local 'short'" in holders()["short"]
        del short
        return reference()

    assert work() is None


def test_the_cost_is_one_look_at_each_object():
    with Undisturbed():
        first = find(Leaf, 60.0).looked_at
        more = [[number] for number in range(100_000)]  # numbers are not followed
        again = find(Leaf, 60.0).looked_at
    assert 100_000 <= again - first < 101_000
    del more


def test_a_hundred_thousand_objects_take_less_than_a_second():
    with Undisturbed():
        more = [{"row": [number]} for number in range(100_000)]
        began = time.thread_time()
        looked_at = find(Leaf, 60.0).looked_at
        seconds = time.thread_time() - began
    assert looked_at >= 200_000
    assert seconds * 100_000 / looked_at < 1.0
    del more


def test_limits_are_kept_and_said():
    with Undisturbed():
        assert not find(Leaf, 60.0, most_objects=1000).is_complete
        assert find(Leaf, 60.0, most_objects=1000).looked_at < 20_000
        assert not find(Leaf, 0.0).is_complete
        assert find(Leaf, 60.0).is_complete


def test_frames_are_read_in_this_release():
    assert frames.can_read


def _schedule():
    now, looks = [0.0], []
    made = Schedule(clock=lambda: now[0], work_clock=lambda: now[0])

    def look(deadline):
        looks.append(made._turns)
        now[0] += cost[0]
        return 1

    cost = [0.0]
    made.follow(look)
    return made, looks, now, cost


def test_steps_are_looked_at_ever_more_rarely():
    made, looks, _, _ = _schedule()
    for _ in range(40):
        made.turned(OPTIMIZER)
    assert looks == [2, 4, 8, 16, 32]


def test_what_the_user_marks_wins_over_what_is_seen():
    made, looks, _, _ = _schedule()
    for _ in range(9):
        made.turned(MODULE)
        made.turned(OPTIMIZER)
        made.turned(STEP)
    assert looks == [2, 4, 8]


def test_looks_have_a_budget():
    made, looks, now, cost = _schedule()
    cost[0] = 2 * schedule.FREE_SECONDS
    made.turned(STEP)
    made.turned(STEP)
    made.turned(STEP)
    made.turned(STEP)
    assert looks == [2], "no time left"
    now[0] += schedule.FREE_SECONDS / schedule.TIME_SHARE
    made.turned(STEP)
    assert looks == [2, 5]


def test_operators_count_until_a_loop_shows_and_leave_it_time():
    made, looks, _, cost = _schedule()
    cost[0] = 0.3
    for _ in range(5):
        made.operators_passed()
    assert len(looks) == 2, "half of the time is left"
    for _ in range(2):
        made.turned(MODULE)
    assert looks == [0, 0, 2]
    cost[0] = 0.0
    made.operators_passed()
    assert looks == [0, 0, 2]


def test_a_look_that_fails_is_not_the_jobs_problem(capfd):
    made = Schedule()
    made.follow(lambda deadline: 1 // 0)
    made.turned(STEP)
    made.turned(STEP)
    assert "holders of memory cannot be found: ZeroDivisionError" in capfd.readouterr().err


def test_on_request_only_with_a_framework(run):
    one = run(
        """
        import msmemscope
        try:
            msmemscope.record_holders()
        except msmemscope.exceptions.FrameworkError as error:
            print(error)
        """
    )
    assert one.stdout == "record_holders() needs PyTorch, which is not imported\n"
