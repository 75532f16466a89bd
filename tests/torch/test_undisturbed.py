"""Jobs that have dispatch modes, subclasses of tensors or compiled modules of their own run as without us."""

import sys
import textwrap
from pathlib import Path

import pytest
from programs import IS_OLD

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

ACCESSES = """
    import threading
    import torch, torch_npu
    import msmemscope
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
    msmemscope.config(events="alloc,free,launch,access", analysis="decompose", output="out")

    class Counting(TorchDispatchMode):
        count = 0
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    def depth():
        return len(_get_current_dispatch_mode_stack())
"""


def accesses(run, *operators):
    names = {f"torch._ops.aten.{operator}" for operator in operators}
    return [row["Event Type"] for row in run.rows("ACCESS") if row["Name"] in names]


@pytest.mark.parametrize("options", [("--events=alloc,free,launch,access",), ("--analysis=decompose",)], ids=str)
def test_weights_that_get_their_shape_later(tmp_path, options):
    run = run_program(
        tmp_path / "run",
        """
        import torch, torch_npu
        class Weight(torch.nn.Parameter):
            pass
        class Late(torch.nn.parameter.UninitializedParameter):
            cls_to_become = Weight
        net = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d(), torch.nn.LazyLinear(3))
        net = net.to("npu:0").half().float()
        print(net(torch.ones(2, 5).to("npu:0")).shape)
        late = Late(device="npu:0")
        late.materialize((2, 3))
        print(type(late).__name__, (late.detach().fill_(2) * 2).sum().item())
        """,
        mode="cli",
        options=options,
    )
    assert run.stdout.splitlines() == ["torch.Size([2, 3])", "Weight 24.0"]
    assert "cannot be read" not in run.stderr
    if "access" in options[0]:
        assert accesses(run, "mul.Tensor")[0] == "READ", "a weight with memory is like any other"


def test_tensors_with_a_dispatch_of_their_own(tmp_path):
    run = run_program(
        tmp_path / "run",
        ACCESSES
        + """
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        def __init__(self, inner):
            self.inner = inner
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            inner = [argument.inner if isinstance(argument, Wrapped) else argument for argument in args]
            return Wrapped(func(*inner, **(kwargs or {})))
    msmemscope.start()
    left = Wrapped(torch.ones(3, device="npu:0"))
    print((left + torch.ones(3, device="npu:0")).inner.tolist())
    msmemscope.stop()
    """,
    )
    assert run.stdout.splitlines()[0] == "[2.0, 2.0, 2.0]"
    assert accesses(run, "add.Tensor") == ["READ", "READ", "WRITE"], "what it is made of is seen"


def test_a_mode_of_the_job_ends_where_the_job_ends_it(tmp_path):
    run = run_program(
        tmp_path / "run",
        ACCESSES
        + """
    tensor = torch.ones(4, 4).to("npu:0")
    with Counting() as counting:
        msmemscope.start()
        tensor @ tensor
    counted = counting.count
    tensor @ tensor
    print(counting.count - counted, depth())
    with Counting():
        msmemscope.stop(finish=False)
        print(depth())
    print(depth())
    """,
    )
    assert run.stdout.splitlines()[:3] == ["0 1", "1", "0"]
    assert accesses(run, "matmul.default", "mm.default") == ["READ", "READ", "WRITE"] * 2


def test_a_mode_of_the_job_in_which_the_device_is_first_used(tmp_path):
    run = run_program(
        tmp_path / "run",
        """
        import torch, torch_npu
        from torch.utils.flop_counter import FlopCounterMode
        left = torch.ones(4, 4)
        with FlopCounterMode(display=False) as counter:
            right = left.to("npu:0")
            right @ right
        counted = counter.get_total_flops()
        right @ right
        print(counted, counter.get_total_flops())
        """,
        mode="cli",
        options=("--events=alloc,free,launch,access",),
    )
    counted, total = run.stdout.splitlines()[0].split()
    assert counted == total == ("0" if IS_OLD else "128"), "PyTorch 2.5 does not count products"
    assert accesses(run, "matmul.default", "mm.default") == ["READ", "READ", "WRITE"] * 2


MODES_THAT_LIST = """
    import sys
    import torch, torch_npu
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            print("operator", func)
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            print("function", getattr(func, "__name__", func))
            return func(*args, **(kwargs or {}))

    with Operators(), Functions():
        if "api" in sys.argv:
            import msmemscope
            msmemscope.config(output="out")
            msmemscope.start()
        tensor = torch.ones(10, device="npu")
        tensor * 2
"""


def test_modes_of_the_job_see_only_what_the_job_does(tmp_path):
    alone = run_program(tmp_path / "alone", MODES_THAT_LIST)
    recorded = run_program(tmp_path / "recorded", MODES_THAT_LIST, mode="cli")
    started = run_program(
        tmp_path / "started", f"import sys; sys.argv.append('api')\n{textwrap.dedent(MODES_THAT_LIST)}"
    )
    assert "operator aten.mul.Tensor" in alone.stdout
    assert recorded.stdout == alone.stdout
    assert started.stdout == alone.stdout


def test_our_mode_goes_when_the_recording_ends_elsewhere(tmp_path):
    run = run_program(
        tmp_path / "run",
        ACCESSES
        + """
    import queue
    msmemscope.start()
    work, done = queue.Queue(), queue.Queue()
    def serve():
        while work.get() is not None:
            torch.ones(3)
            done.put(depth())
    server = threading.Thread(target=serve)
    server.start()
    work.put(1), print("server, recorded", done.get())
    stopper = threading.Thread(target=msmemscope.stop, kwargs={"finish": False})
    stopper.start(), stopper.join()
    work.put(1), print("server, stopped", done.get())
    torch.ones(3)
    print("main, stopped", depth())
    msmemscope.start()
    print("main, again", depth())
    with Counting():
        msmemscope.stop(finish=False)
    print("main, the end", depth())
    work.put(None), server.join()
    """,
    )
    assert run.stdout.splitlines()[:5] == [
        "server, recorded 1",
        "server, stopped 0",
        "main, stopped 0",
        "main, again 1",
        "main, the end 0",
    ]


COMPILED = """
    net = torch.nn.Linear(4, 4).to("npu:0")
    graphs = []
    def backend(graph, inputs):
        graphs.append(graph)
        return graph
    def run(module, **options):
        for _ in range(2):
            torch.compile(module, fullgraph=True, **options)(torch.ones(2, 4, device="npu:0")).sum().backward()
"""


@pytest.mark.parametrize("events", ["alloc,free,launch", "alloc,free,launch,access"])
@pytest.mark.parametrize("what", ["net", "lambda batch: net(batch)"])
def test_what_the_job_compiles_is_compiled(tmp_path, what, events):
    run = run_program(
        tmp_path / "run",
        f"""
    import warnings
    warnings.simplefilter("error", UserWarning)
    import msmemscope
    import torch, torch_npu
    msmemscope.config(events="{events}", analysis="{"decompose" if "access" in events else ""}", output="out")
    {COMPILED}
    msmemscope.start()
    run({what}, backend=backend)
    print(len(graphs) > 0)
    run({what}, backend="aot_eager")
    msmemscope.stop(finish=False)
    count = len(graphs)
    torch.compiler.reset()
    run({what}, backend=backend)
    print(len(graphs) > count)
    """,
    )
    assert run.stdout.splitlines()[:2] == ["True", "True"]
    names = [row["Name"] for row in run.rows("OP_LAUNCH", "ATEN_START")]
    assert names.count("torch._ops.aten.addmm.default") >= 4
    if "access" in events:
        assert accesses(run, "addmm.default") == ["READ", "READ", "READ", "WRITE"] * 4


@pytest.mark.skipif(IS_OLD, reason="this release does not let modes pass such operators on")
def test_operators_that_take_functions(tmp_path):
    run = run_program(
        tmp_path / "run",
        ACCESSES
        + """
    msmemscope.start()
    number = torch.ones(2, 2, dtype=torch.int8)
    print(torch._higher_order_ops.out_dtype(torch.ops.aten.mm.default, torch.int32, number, number).sum().item())
    msmemscope.stop()
    """,
    )
    assert run.stdout.splitlines()[0] == "8"
