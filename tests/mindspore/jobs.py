"""Jobs on MindSpore for the tests, chosen by name. Everything is of `mint`, whose operators the stand-in computes."""

import os
import sys

import mindspore as ms
import numpy as np
from mindspore import mint, nn

WIDTH = 64


def blocking():
    """Launches wait, so that blocks have the Python lines of their operators."""
    ms.runtime.launch_blocking()


class Perceptron(nn.Cell):
    def __init__(self, random):
        super().__init__()
        self.first = mint.nn.Linear(WIDTH, 128)
        self.second = mint.nn.Linear(128, 10)
        for parameter in self.get_parameters():
            parameter.set_data(ms.Tensor(0.1 * random.standard_normal(parameter.shape).astype(np.float32)))

    def construct(self, inputs):
        return self.second(mint.nn.functional.relu(self.first(inputs)))


class Training:
    """A small network, and a step of its training."""

    def __init__(self):
        random = np.random.default_rng(0)
        self.network = Perceptron(random)
        self.optimizer = mint.optim.AdamW(self.network.trainable_params(), lr=0.01)
        self.inputs = ms.Tensor(random.standard_normal((32, WIDTH)).astype(np.float32))
        self.targets = ms.Tensor(random.integers(0, 10, 32).astype(np.int32))
        self.gradients = ms.value_and_grad(self.loss, None, self.network.trainable_params())

    def loss(self, inputs, targets):
        return mint.nn.functional.cross_entropy(self.network(inputs), targets)

    def step(self):
        loss, gradients = self.gradients(self.inputs, self.targets)
        self.optimizer(gradients)
        return float(loss.asnumpy())


def memory():
    ms.runtime.synchronize()
    return f"{ms.runtime.memory_allocated()} {ms.runtime.memory_reserved()}"


def train():
    training = Training()
    for number in range(5):
        print(f"loss {number} {training.step()!r}", flush=True)
    print(f"memory {memory()}", flush=True)


def leak(is_corrected=False):
    import msmemscope

    training, kept = Training(), []
    for _ in range(8):
        loss = training.step()
        history = mint.zeros((256, 1024)) + loss  # FAULT
        kept.append(history)
        if is_corrected:
            kept.clear()
        msmemscope.step()


def clean():
    leak(is_corrected=True)


def blocking_leak():
    blocking()
    leak()


def owners():
    from msmemscope.describe import describer

    blocking()
    with describer(owner="weights"):
        kept = mint.zeros((1024, 1024)) + 1.0
    print(f"memory {memory()}", flush=True)
    return kept


def grow():
    blocking()
    kept = []
    while True:
        kept.append(mint.zeros((64, 1024, 1024)))  # FAULT
        print(f"memory {memory()}", flush=True)


def demand():
    mint.zeros((3, 256, 1024, 1024)).asnumpy()


def limit():
    ms.runtime.set_memory(max_size="1GB")
    grow()


def marks():
    from mindspore.profiler import mstx

    training = Training()
    for _ in range(3):
        number = mstx.range_start("step start")
        training.step()
        mstx.range_end(number)


def snapshot():
    import msmemscope

    kept = mint.zeros((1024, 1024)) + 1.0
    kept.asnumpy()
    device = int(os.environ.get("DEVICE", "0"))
    msmemscope.take_snapshot(device, "of MindSpore")
    print(f"memory {memory()}", flush=True)


if __name__ == "__main__":
    ms.set_device("Ascend", int(os.environ.get("DEVICE", "0")))
    globals()[sys.argv[1]]()
