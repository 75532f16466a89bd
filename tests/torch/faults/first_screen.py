"""Jobs with one problem each, as people write them: nothing is marked, nothing imports the tool.

Lines with `# CULPRIT` are what a first look at the report must name. A mode ending in `-clean` is the same job without
its problem.
"""

import os
import sys

import torch
import torch_npu  # noqa: F401
from torch import nn

MEBIBYTE = 1 << 20
WIDTH = 96


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))  # ACTIVATION


def make_model():
    return nn.Sequential(Layer(), Layer(), nn.Linear(WIDTH, 10)).npu()


def batches(count=8, size=64):
    for _ in range(count):
        yield torch.randn(size, WIDTH).npu()


class Trainer:
    def __init__(self):
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def train(self, batch):
        self.optimizer.zero_grad()
        logits = self.model(batch)
        loss = logits.square().mean()  # LOSS
        loss.backward()  # BACKWARD
        self.optimizer.step()
        return logits, loss


def kept_predictions(clean):
    """Every prediction goes into a list."""
    trainer, predictions = Trainer(), []
    for batch in batches():
        trainer.train(batch)
        with torch.no_grad():
            prediction = trainer.model(batch) * 2.0  # CULPRIT kept-predictions
        predictions.append(prediction.sum().item() if clean else prediction)


def kept_in_closures(clean):
    """A callback of every step closes over its tensor."""
    trainer, callbacks = Trainer(), []
    for batch in batches():
        trainer.train(batch)
        shown = batch.detach().clone()  # CULPRIT kept-in-closures
        number = shown.sum().item()
        callbacks.append((lambda value=number: value) if clean else (lambda value=shown: value))


def summed_losses(clean):
    """A running total of losses keeps the graph of every step."""
    trainer, total = Trainer(), 0.0
    for batch in batches():
        _, loss = trainer.train(batch)
        again = trainer.model(batch).square().mean()  # CULPRIT summed-losses
        total = total + (again.item() if clean else again)
    print(float(total))


def small_graphs(clean):
    """The same with a model of two lines, whose graph is kept on purpose for a second backward pass."""
    up, down = nn.Linear(WIDTH, 4 * WIDTH).npu(), nn.Linear(4 * WIDTH, 10).npu()
    optimizer = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=0.01)
    total = 0.0
    for batch in batches():
        optimizer.zero_grad()
        hidden = torch.tanh(up(batch))  # CULPRIT small-graphs
        loss = down(hidden).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        total = total + (loss.item() if clean else loss)  # HOLDER small-graphs
    print(float(total))


def deep_model(clean):
    """A model of many levels, each of which is several calls: the only line of the script is outside of all."""
    model = nn.Linear(WIDTH, WIDTH)
    for _ in range(25):
        model = nn.Sequential(model)
    model, outputs = model.npu(), []
    for batch in batches():
        with torch.no_grad():
            output = model(batch)  # CULPRIT deep-model
        outputs.append(output.sum().item() if clean else output)


def hooked_outputs(clean):
    """A forward hook keeps what a layer makes."""
    trainer, outputs = Trainer(), []

    def keep(module, inputs, output):
        copy = output.detach().clone()  # CULPRIT hooked-outputs
        outputs.append(copy.mean().item() if clean else copy)

    trainer.model[0].register_forward_hook(keep)
    for batch in batches():
        trainer.train(batch)


class Watcher:
    """Puts aside what modules make, in a function that is made for each of them."""

    def __init__(self):
        self.outputs = {}

    def look_at(self, name):
        def look(module, inputs, output):
            self.outputs.setdefault(name, []).append(output)

        return look


def watched_outputs(clean):
    """A forward hook keeps the very results of layers, which lines of the model have made."""
    trainer, watcher = Trainer(), Watcher()
    for name, module in trainer.model.named_modules():
        if name.endswith("down"):
            module.register_forward_hook(watcher.look_at(name))
    for batch in batches():
        trainer.train(batch)
        if clean:
            watcher.outputs.clear()


def growing_cache(clean):
    """Inference whose keys and values are never dropped."""
    model, cache = make_model().eval(), []
    with torch.no_grad():
        for batch in batches(12):
            model(batch)
            keys = batch.repeat(2, 1)  # CULPRIT growing-cache
            cache.append(keys)
            if clean:
                cache.clear()


def kept_losses(clean):
    """Losses go into a list that is plotted some day."""
    trainer, losses = Trainer(), []
    for batch in batches():
        trainer.optimizer.zero_grad()
        loss = trainer.model(batch).square().mean()  # CULPRIT kept-losses
        loss.backward()
        trainer.optimizer.step()
        losses.append(loss.item() if clean else loss)


def attempt(batch):
    values = batch.repeat(4, 1)  # CULPRIT kept-errors
    raise ValueError(f"cannot use {len(values)} values")


def kept_errors(clean):
    """A list of errors keeps what the functions had that failed."""
    trainer, errors = Trainer(), []
    for batch in batches():
        trainer.train(batch)
        try:
            attempt(batch)
        except ValueError as error:
            errors.append(str(error) if clean else error)


def joined_cache(clean):
    """Inference whose keys are joined with all earlier ones."""
    model, cache = make_model().eval(), torch.zeros(0, WIDTH).npu()
    with torch.no_grad():
        for batch in batches(12):
            model(batch)
            cache = torch.cat([cache, batch])  # CULPRIT joined-cache
            if clean:
                cache = cache[-len(batch) :].clone()


def growing_shapes(clean):
    """Batches become longer with every step, and operators ask for scratch memory accordingly."""
    trainer = Trainer()
    for number in range(12):
        length = 256 if clean else 256 * (number + 1)
        trainer.train(torch.randn(length, WIDTH).npu())  # CULPRIT growing-shapes


def doubled_states(clean):
    """Two optimizers have the same parameters."""
    model = make_model()
    first = torch.optim.Adam(model.parameters())
    second = first if clean else torch.optim.Adam(model.parameters())
    for number, batch in enumerate(batches(16)):
        model(batch).square().mean().backward()
        if number % 2:
            first.step()
        else:
            second.step()  # CULPRIT doubled-states
        first.zero_grad()


def restarted_optimizer(clean):
    """Training goes on with a new optimizer, and a variable has the old one still."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    for number, batch in enumerate(batches(14)):
        if number == 4:
            before = None if clean else optimizer  # noqa: F841
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        model(batch).square().mean().backward()
        optimizer.step()  # CULPRIT restarted-optimizer
        optimizer.zero_grad()


def recreated_optimizers(clean):
    """Every epoch makes a new optimizer, and a list keeps all of them."""
    model, history = make_model(), []
    for batch in batches():
        optimizer = torch.optim.Adam(model.parameters())
        model(batch).square().mean().backward()
        optimizer.step()  # CULPRIT recreated-optimizers
        optimizer.zero_grad()
        if not clean:
            history.append(optimizer)


def kept_gradients(clean):
    """Gradients are filled with zeros instead of being freed."""
    trainer = Trainer()  # CULPRIT kept-gradients
    for batch in batches():
        trainer.optimizer.zero_grad(set_to_none=clean)
        trainer.model(batch).square().mean().backward()
        trainer.optimizer.step()


def driver_memory(clean):
    """An extension takes memory from the driver in every step."""
    from common import Runtime

    trainer, runtime = Trainer(), Runtime()
    for batch in batches():
        trainer.train(batch)
        scratch = runtime.allocate(MEBIBYTE)  # CULPRIT driver-memory
        if clean:
            runtime.free(scratch)


def fragmented(clean):
    """Every segment keeps one of its two blocks, so that a large block fits nowhere."""
    blocks = [torch.empty(8 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(90)]  # CULPRIT fragmented
    del blocks[:: 1 if clean else 2]
    torch.empty(350 * MEBIBYTE, device="npu", dtype=torch.uint8)


def interleaved(_clean):
    """Tables that stay lie between pages that go; nothing has leaked."""
    pages, tables = [], []
    for _ in range(60):
        pages.append(torch.empty(6 * MEBIBYTE, device="npu", dtype=torch.uint8))
        tables.append(torch.empty(3 * MEBIBYTE, device="npu", dtype=torch.uint8))
    pages.clear()
    torch.empty(300 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT interleaved


def small_gaps(_clean):
    """Three quarters of the small blocks have gone, and large ones cannot be put there."""
    make_model()
    blocks = [torch.empty(MEBIBYTE // 2 - 512, device="npu", dtype=torch.uint8) for _ in range(600)]  # SMALL small-gaps
    kept = blocks[::4]
    del blocks
    torch.empty(150 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT small-gaps
    print(len(kept))


def other_stream(_clean):
    """Most of what is reserved is unused, but on another stream."""
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        large = torch.empty(300 * MEBIBYTE, device="npu", dtype=torch.uint8)
        torch.npu.synchronize()
        del large
        kept = torch.empty(12 * MEBIBYTE, device="npu", dtype=torch.uint8)
    torch.empty(200 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT other-stream
    print(len(kept))


def other_stream_in_pieces(clean):
    """What is unused lies in pieces between the blocks of another stream."""
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        pages = [torch.empty(8 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(34)]  # PAGES
        torch.npu.synchronize()
        del pages[:: 1 if clean else 2]
    torch.empty(200 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT other-stream-in-pieces


def pages_that_stay(clean):
    """Segments grow by pages, and on each page something stays."""
    blocks = [torch.empty(12 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(30)]
    del blocks[:: 1 if clean else 2]
    torch.empty(120 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT pages-that-stay


def pages_of_another_stream(clean):
    """The same on another stream."""
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        blocks = [torch.empty(12 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(30)]
        torch.npu.synchronize()
        del blocks[:: 1 if clean else 2]
    torch.empty(120 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT pages-of-another-stream


def pages_of_small_blocks(clean):
    """The same, with blocks that are too small to make room for a large one."""
    blocks = [torch.empty(MEBIBYTE // 2 - 512, device="npu", dtype=torch.uint8) for _ in range(600)]  # SMALL PAGES
    kept = [] if clean else blocks[::4]
    del blocks
    torch.empty(150 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT pages-of-small-blocks
    print(len(kept))


def pages_in_use(clean):
    """Segments grow by pages, and tensors use nearly all of them."""
    blocks = [torch.empty(9 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(4 if clean else 34)]
    del blocks[::12]
    torch.empty(180 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT pages-in-use


def no_setting_helps(_clean):
    """Each third block stays, and no page of the card is without one."""
    blocks = [torch.empty(6 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(84)]
    kept = blocks[1::3]
    del blocks
    torch.empty(250 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT no-setting-helps
    print(len(kept))


def tables_after_a_model(_clean):
    """A model has been called, and has nothing to do with what comes then."""
    outputs = [make_model()(batch).sum() for batch in batches(1)]
    tables = [torch.zeros(30 * MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(3)]
    torch.zeros(90 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT tables-after-a-model
    print(outputs, len(tables))


def failed_forward(_clean):
    """A batch of the wrong shape is skipped; what comes then is no part of a forward pass."""
    model = make_model()
    try:
        model(torch.randn(4, WIDTH + 1).npu())
    except RuntimeError as error:
        print(str(error))
    table = torch.zeros(20 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT failed-forward
    print(len(table))


class Interrupted(nn.Module):
    """A layer in which somebody presses Ctrl-C, once."""

    def __init__(self):
        super().__init__()
        self.is_pressed = True

    def forward(self, x):
        if self.is_pressed:
            self.is_pressed = False
            raise KeyboardInterrupt
        return torch.tanh(x.repeat(400, 1))  # AFTERWARDS


def interrupted_forward(_clean):
    """A forward pass is interrupted, and the job goes on: first without its model, then with it."""
    model = nn.Sequential(Layer(), Interrupted()).npu()
    (batch,) = batches(1)
    try:
        model(batch)
    except KeyboardInterrupt:
        print("interrupted")
    table = torch.zeros(12 * MEBIBYTE, device="npu", dtype=torch.uint8)  # CULPRIT interrupted-forward
    model(batch).sum().backward()
    print(len(table))


class Tree(nn.Module):
    """A module that calls itself."""

    def __init__(self):
        super().__init__()
        self.leaf = Layer()

    def forward(self, x, depth=3):
        return self.leaf(x) + self(x, depth - 1) if depth else x.repeat(1, 1)


def module_that_calls_itself(_clean):
    """Nothing is wrong, and all of it is one forward pass."""
    model = Tree().npu()
    for batch in batches(4, 8192):
        model(batch).sum().backward()


def split_pool(clean):
    """Tables that stay are made between buffers that go, so that larger buffers find no room."""
    trainer, tables = Trainer(), []
    for number, batch in enumerate(batches()):
        trainer.train(batch)
        if number == 3:
            buffers = []
            for _ in range(20):
                if not clean:
                    tables.append(torch.zeros(8 * MEBIBYTE, device="npu", dtype=torch.uint8))  # CULPRIT split-pool
                buffers.append(torch.zeros(8 * MEBIBYTE, device="npu", dtype=torch.uint8))
            buffers.clear()
            if clean:
                torch.npu.empty_cache()
        if number > 3:
            torch.zeros(40 * MEBIBYTE, device="npu", dtype=torch.uint8)


def loaded_by_workers(_clean):
    """Nothing is wrong: worker processes load the data."""
    trainer = Trainer()
    data = torch.utils.data.TensorDataset(torch.randn(8 * 64, WIDTH))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=64, num_workers=2):
        trainer.train(batch.npu())


def accumulated_gradients(_clean):
    """Nothing is wrong: gradients of several batches are added up before a step."""
    trainer = Trainer()
    for number, batch in enumerate(batches(24)):
        trainer.model(batch).square().mean().backward()
        if number % 3 == 2:
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()


def bounded_history(_clean):
    """Nothing is wrong: the last three results are kept."""
    trainer, history = Trainer(), []
    for batch in batches(12):
        trainer.train(batch)
        history.append(batch.detach() * 2.0)
        del history[:-3]


SOUND = [
    kept_predictions,
    kept_losses,
    kept_errors,
    kept_in_closures,
    summed_losses,
    small_graphs,
    deep_model,
    growing_cache,
    joined_cache,
    hooked_outputs,
    watched_outputs,
    doubled_states,
    restarted_optimizer,
    recreated_optimizers,
    kept_gradients,
    driver_memory,
    split_pool,
    accumulated_gradients,
    bounded_history,
    loaded_by_workers,
]


def sound(_clean):
    """All jobs without their problems, each in a process of its own."""
    for job in SOUND:
        process = os.fork()
        if not process:
            job(True)
            sys.exit()
        assert os.waitpid(process, 0)[1] == 0, job
        print(process, job.__name__, flush=True)


def large_batch(_clean):
    """The activations of one forward pass do not fit."""
    model = nn.Sequential(*[Layer() for _ in range(12)]).npu()
    model(torch.randn(8192, WIDTH).npu()).sum().backward()


def leak_until_full(_clean):
    """Each step keeps some megabytes, until nothing is left."""
    kept = []
    trainer = Trainer()
    for batch in batches(10_000):
        trainer.train(batch)
        kept.append(torch.zeros(4 * MEBIBYTE, device="npu", dtype=torch.uint8))  # CULPRIT leak-until-full


def backward_full(_clean):
    """The forward pass fits, the backward pass does not."""
    values = torch.zeros(60 * MEBIBYTE // 4, device="npu", requires_grad=True)
    loss = values.exp().sum()
    loss.backward()  # CULPRIT backward-full


def too_large(_clean):
    """One request is larger than the card, which is to blame on nothing that is kept."""
    kept = [torch.zeros(MEBIBYTE, device="npu", dtype=torch.uint8) for _ in range(3)]
    kept.append(torch.zeros(8 << 30, device="npu", dtype=torch.uint8))  # CULPRIT too-large


def too_large_twice(_clean):
    """A request larger than the card, made twice; the job gets over it."""
    torch.npu.init()
    for _ in range(2):
        try:
            torch.zeros(8 << 30, device="npu", dtype=torch.uint8)  # CULPRIT too-large-twice
        except RuntimeError:
            print("caught it", file=sys.stderr)


def own_limit(_clean):
    """The job has limited itself."""
    torch.npu.set_per_process_memory_fraction(0.25)
    kept = []
    while True:
        kept.append(torch.zeros(32 * MEBIBYTE, device="npu", dtype=torch.uint8))  # CULPRIT own-limit


if __name__ == "__main__":
    mode = sys.argv[1]
    globals()[mode.removesuffix("-clean").replace("-", "_")](mode.endswith("-clean"))
