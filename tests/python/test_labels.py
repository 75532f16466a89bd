"""Owners of memory: regions, addresses, hooks of frameworks."""

import sys
import types

import msmemscope
import pytest
from msmemscope import _import_hook
from msmemscope.frameworks import FRAMEWORKS, protocol, versions
from msmemscope.hijacker import manager

FRONT = """
    import asyncio, threading
    import msmemscope
    import msmemscope.describe as describe
    import small_framework as framework
    msmemscope.config(analysis="decompose", output="out")
    framework.begin()
    pool = framework.Pool()
"""


def owners(run):
    return [row.attributes.get("owner") for row in run.rows("MALLOC", "PTA")]


def test_regions(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    @describe.describer(owner="test1")
    def train1():
        pool.block(512)
    train1()
    with describe.describer(owner="test2"):
        train1()
        pool.block(512)
    describe.describer(owner="test3").__enter__()
    pool.block(512)
    describe.describer(owner="test3").__exit__()
    pool.block(512)
    try:
        with describe.describer(owner="raises"):
            1 / 0
    except ZeroDivisionError:
        pass
    pool.block(512)
    """
    )
    assert owners(one) == ["PTA@test1", "PTA@test2@test1", "PTA@test2", "PTA@test3", "PTA", "PTA"]


def test_addresses(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    class Tensor:
        def data_ptr(self):
            return address
    pool.block(512)
    address = pool.block(512)
    describe.describer(Tensor(), owner="test4")
    describe.describer(pool.block(512), owner="test5")
    """
    )
    assert owners(one) == ["PTA", "PTA@test4", "PTA@test5"]


def test_an_address_inside_a_block_labels_it(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    describe.describer(pool.block(512) + 511, owner="view")
    describe.describer(pool.block(512) + 1024, owner="nowhere")
    """
    )
    assert owners(one) == ["PTA@view", "PTA"]
    assert "1 label was ignored: no block was alive at the address" in one.stderr


def test_labels_of_an_address_are_added(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    with describe.describer(owner="region"):
        inside = pool.block(512)
    outside = pool.block(512)
    for name in ("one", "two", "one", "three"):
        describe.describer(inside, owner=name)
        describe.describer(outside, owner=name)
    """
    )
    assert owners(one) == ["PTA@region@one@two", "PTA@one@two@three"]
    assert "1 label was ignored: the block had three others" in one.stderr


def test_three_labels_count(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    labels = [describe.describer(owner=name) for name in "abcd"]
    for label in labels + labels[:1]:
        label.__enter__()
    pool.block(512)
    for label in reversed(labels + labels[:1]):
        label.__exit__()
    pool.block(512)
    with describe.describer(owner="e"):
        pool.block(512)
    """
    )
    assert owners(one) == ["PTA@a@b@c", "PTA", "PTA@e"]
    assert one.stderr.count("more than 3 labels") == 1


def test_threads_have_their_own_labels(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    def work():
        framework.acl.aclrtSetDevice(0)
        pool.block(512)
    with describe.describer(owner="main"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        pool.block(512)
    """
    )
    assert owners(one) == ["PTA", "PTA@main"]


def test_labels_opened_and_closed_outside_of_the_scope(run):
    one = run(
        FRONT
        + """
    with describe.describer(owner="before"):
        msmemscope.start()
        pool.block(512)
        msmemscope.stop(finish=False)
    msmemscope.start()
    pool.block(512)
    """
    )
    assert owners(one) == ["PTA@before", "PTA"]


def test_labels_from_before_the_start_count(run):
    one = run(
        FRONT
        + """
    go, opened = threading.Event(), threading.Event()
    def work():
        framework.acl.aclrtSetDevice(0)
        with describe.describer(owner="worker"):
            opened.set()
            go.wait()
            pool.block(512)
    thread = threading.Thread(target=work)
    thread.start()
    opened.wait()
    with describe.describer(owner="load"):
        pool.block(512)
    describe.describer(pool.block(512), owner="early")
    msmemscope.start()
    go.set()
    thread.join()
    msmemscope.stop(finish=False)
    describe.describer(pool.block(512), owner="between")
    msmemscope.start()
    """
    )
    assert owners(one) == ["PTA@load", "PTA@early", "PTA@worker", "PTA@between"]


def test_a_forked_child_is_in_the_regions_of_its_parent(run):
    one = run(
        FRONT
        + """
    import os
    msmemscope.start()
    with describe.describer(owner="load"):
        pool.block(512)
        child = os.fork()
        if child == 0:
            pool.block(1024)
            with describe.describer(owner="inner"):
                pool.block(1536)
        else:
            os.waitpid(child, 0)
    pool.block(2048)
    """
    )
    by_size = sorted((int(row.attributes["size"]), row.attributes["owner"]) for row in one.rows("MALLOC", "PTA"))
    assert by_size == [(512, "PTA@load"), (1024, "PTA@load"), (1536, "PTA@load@inner"), (2048, "PTA"), (2048, "PTA")]


def test_labels_alone_record_nothing(run):
    one = run(
        """
    import os
    import msmemscope
    import msmemscope.describe as describe
    import small_framework as framework
    msmemscope.config(analysis="decompose", output="out")
    framework.begin()
    msmemscope.start()
    framework.allocate(4096)
    child = os.fork()
    if child == 0:
        with describe.describer(owner="loader"):
            pass
    else:
        os.waitpid(child, 0)
    """
    )
    assert len(one.files("*_dump_*.csv")) == 1


def test_labels_that_files_cannot_hold(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    for name in ("a, b", "outer@inner", "two\\nlines"):
        with describe.describer(owner=name):
            pool.block(512)
    """
    )
    assert owners(one) == ["PTA@a; b", "PTA@outer@inner", "PTA@two\\nlines"]


def test_coroutines_do_not_share_labels(run):
    one = run(
        FRONT
        + """
    msmemscope.start()
    @describe.describer(owner="left")
    async def left():
        pool.block(512)
        await asyncio.sleep(0)
        pool.block(512)
    @describe.describer(owner="right")
    async def right():
        pool.block(512)
        await asyncio.sleep(0)
        pool.block(512)
    async def main():
        await asyncio.gather(left(), right())
    asyncio.run(main())
    """
    )
    assert owners(one) == ["PTA@left", "PTA@right", "PTA@left", "PTA@right"]


def test_version_keys():
    assert versions.matches("2.6+", "2.13.0a1+cpu")
    assert not versions.matches("2.6+", "2.5.1")
    assert versions.matches("2.6-2.9", "2.6.0")
    assert not versions.matches("11.0", "11.1")
    assert versions.matches("11.0", "11.0.0rc1")
    assert versions.matches("*", "anything")


@pytest.fixture
def framework(monkeypatch):
    """A module that looks like a part of vLLM, importable but not imported."""
    name = "vllm_ascend.worker.worker"
    for package in ("vllm_ascend", "vllm_ascend.worker"):
        module = types.ModuleType(package)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, package, module)
    recorded = []
    monkeypatch.setattr(manager, "push_label", lambda label, level: recorded.append(("push", label, level)))
    monkeypatch.setattr(manager, "pop_label", lambda label, level: recorded.append(("pop", label, level)))
    module = types.ModuleType(name)

    class NPUWorker:
        def compile_or_warm_up_model(self, fails=False):
            """Warms up."""
            recorded.append("body")
            if fails:
                raise KeyError

    module.NPUWorker = NPUWorker
    yield module, recorded
    msmemscope.cleanup_framework_hooks()
    sys.modules.pop(name, None)


def test_hooks_label_and_leave(framework):
    module, recorded = framework
    msmemscope.init_framework_hooks("vllm_ascend", "11.0", "worker", "decompose")
    sys.modules[module.__name__] = module
    _import_hook._imported(module.__name__)
    function = module.NPUWorker.compile_or_warm_up_model
    assert function.__doc__ == "Warms up."
    pushed = [("push", "vllm", 1), ("push", "warmup", 2)]
    popped = [("pop", "warmup", 2), ("pop", "vllm", 1)]
    module.NPUWorker().compile_or_warm_up_model()
    assert recorded == [*pushed, "body", *popped]
    recorded.clear()
    with pytest.raises(KeyError):
        module.NPUWorker().compile_or_warm_up_model(fails=True)
    assert recorded == [*pushed, "body", *popped]
    msmemscope.init_framework_hooks("vllm_ascend", "11.0", "worker", "decompose")
    recorded.clear()
    module.NPUWorker().compile_or_warm_up_model()
    assert recorded == [*pushed, "body", *popped], "a second call must not hook twice"
    msmemscope.cleanup_framework_hooks()
    recorded.clear()
    module.NPUWorker().compile_or_warm_up_model()
    assert recorded == ["body"]


def test_regions_between_two_functions(framework):
    _, recorded = framework
    labels = (("fsdp2", 1), ("activation", 2))
    opening = protocol.Target("m", None, "pre", labels, opens=lambda owner: id(owner))
    closing = protocol.Target("m", None, "post", labels, closes=lambda owner: id(owner))
    pre = manager._labelled(opening, lambda owner: recorded.append("pre"))
    post = manager._labelled(closing, lambda owner: recorded.append("post"))
    outer, inner = object(), object()
    pre(outer)
    pre(inner)
    post(inner)
    post(outer)
    push = [("push", "fsdp2", 1), ("push", "activation", 2)]
    pop = [("pop", "activation", 2), ("pop", "fsdp2", 1)]
    assert recorded == [*push, "pre", "pre", "post", "post", *pop]
    recorded.clear()
    pre(outer)
    pre(inner)  # the body raises: neither is closed, until it is known that the whole call has failed
    manager.close_regions()
    assert recorded == [*push, "pre", "pre", *pop]
    manager.close_regions()
    recorded.clear()
    pre(outer)
    pre(outer)  # where nobody knows, a region that is opened again was left by an exception
    post(outer)
    assert recorded == [*push, "pre", "pre", "post", *pop]


def test_import_hook_calls_back_once(tmp_path, monkeypatch):
    (tmp_path / "awaited_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []

    def callback():
        seen.append(sys.modules["awaited_module"].value)

    _import_hook.when_imported("awaited_module", callback)
    _import_hook.when_imported("awaited_module", callback)
    import awaited_module

    assert seen == [1]
    assert _import_hook._finder not in sys.meta_path or _import_hook._callbacks
    del sys.modules["awaited_module"], awaited_module


def test_every_framework_names_versions_and_functions():
    for name, framework in FRAMEWORKS.items():
        assert framework.name == name
        for key, components in framework.versions.items():
            version = key.rstrip("+").partition("-")[0]
            assert versions.matches(key, version), key
            for component, kinds in components.items():
                assert set(kinds) <= {"decompose", "snapshot"}
                for targets in kinds.values():
                    keys = [target.key for target in targets]
                    assert len(keys) == len(set(keys)), f"{name} {component} hooks a function twice"


def test_unknown_versions_are_told_with_what_is_known():
    with pytest.raises(ValueError, match=r"version '0\.3' of megatron is not supported; supported: 0\.12 and later"):
        msmemscope.init_framework_hooks("megatron", "0.3", "training", "snapshot")


def test_steps_of_a_framework_end_once_and_hooks_go_without_a_trace(monkeypatch):
    turns = []
    monkeypatch.setattr(manager._internal, "loop_turn", lambda kind, loop: turns.append((kind, loop)))
    module = types.ModuleType("megatron.core.optimizer.optimizer")

    class MegatronOptimizer:
        def step(self, fails=False):
            if fails:
                raise KeyError
            return "stepped"

    class FP32Optimizer(MegatronOptimizer):
        pass

    class ChainedOptimizer(MegatronOptimizer):
        def step(self):
            return [FP32Optimizer().step(), FP32Optimizer().step()]

    classes = (MegatronOptimizer, FP32Optimizer, ChainedOptimizer)
    for each in classes:
        setattr(module, each.__name__, each)
    before = [dict(vars(each)) for each in classes]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    msmemscope.init_framework_hooks("megatron", "0.16.1", "training", "decompose")
    try:
        assert ChainedOptimizer().step() == ["stepped", "stepped"]
        assert len(turns) == 1, "only the outermost ends a step"
        assert FP32Optimizer().step() == "stepped"
        assert len(turns) == 2
        with pytest.raises(KeyError):
            FP32Optimizer().step(fails=True)
        assert len(turns) == 2, "a step that fails does not end"
    finally:
        msmemscope.cleanup_framework_hooks()
    assert [dict(vars(each)) for each in classes] == before


def test_classes_that_ray_has_made_remote_are_hooked_inside(monkeypatch):
    names = []
    monkeypatch.setattr("msmemscope._snapshot.snapshot_current_device", names.append)
    module = types.ModuleType("verl.trainer.main_ppo")

    class TaskRunnerV1:
        def run(self):
            return "ran"

    class Remote:
        __ray_metadata__ = types.SimpleNamespace(modified_class=TaskRunnerV1)

    module.TaskRunnerV1 = Remote()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    msmemscope.init_framework_hooks("verl", "0.9.1", "TaskRunner", "snapshot")
    try:
        assert TaskRunnerV1().run() == "ran"
    finally:
        msmemscope.cleanup_framework_hooks()
    assert names == [f"verl.trainer.main_ppo@TaskRunnerV1@run@{when}" for when in ("Start", "End")]
