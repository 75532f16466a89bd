"""A job with something to show in every view of the viewer, with names that no page should take at their word.

A small perceptron is trained for some steps and keeps its predictions by mistake; its calls are traced, one tensor is
watched and damaged, and one request is too large for any card.
"""

import ctypes

import msmemscope
import torch
import torch_npu  # noqa: F401
from msmemscope import describe
from torch import nn

STEPS = 6
HOSTILE = "<img src=x onerror=alert(1)>\u202elive\u2066 & co"
acl = ctypes.CDLL("libascendcl.so")
acl.aclrtMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
HOST_TO_DEVICE = 1
kept = []


def predict(model, points):
    return model(points)


def hostile(function):
    """The function under another name, from another file."""
    code = function.__code__.replace(co_name=HOSTILE, co_filename=f"/data/{HOSTILE}.py")
    return type(function)(code, function.__globals__, HOSTILE)


def damage(victim):
    """Writes to memory behind the back of every operator."""
    junk = ctypes.create_string_buffer(b"\7" * 16, 16)
    torch.npu.synchronize()
    assert acl.aclrtMemcpy(victim.data_ptr(), 16, ctypes.addressof(junk), 16, HOST_TO_DEVICE) == 0


hostile_predict = hostile(predict)


def train(model, points, labels, optimizer):
    for step in range(STEPS):
        # The last step only: the first ones import half of torch.
        if step == STEPS - 1:
            msmemscope.tracer.start()
        with msmemscope.RecordFunction(HOSTILE), torch.npu.mstx.annotate(HOSTILE):
            predicted = hostile_predict(model, points)
        kept.append(predicted)
        loss = nn.functional.cross_entropy(predicted, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        msmemscope.step()
    msmemscope.tracer.stop()


def main():
    torch.manual_seed(0)
    with describe.describer(owner=HOSTILE):
        table = torch.ones(256, 1024, device="npu")
    victim = torch.full((128,), 3.0, device="npu")
    msmemscope.watcher.watch(victim, name=HOSTILE)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128)).to("npu")
    points, labels = torch.randn(512, 64).to("npu"), torch.randint(0, 128, (512,)).to("npu")
    train(model, points, labels, torch.optim.AdamW(model.parameters(), lr=0.01))
    damage(victim)
    (victim + 1).sum()
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="npu")
    except torch.OutOfMemoryError:
        print("out of memory, as expected")
    print(f"{len(kept)} predictions kept, {table.numel()} numbers in the table")


if __name__ == "__main__":
    main()
