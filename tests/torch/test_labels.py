"""Labels of users: what autograd's threads allocate for a labelled block of code has its label too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import run_program

PROGRAM = """
    import threading
    import msmemscope
    from msmemscope.describe import describer
    import torch, torch_npu
    from torch.utils.checkpoint import checkpoint

    msmemscope.config(events="alloc,free,launch", analysis="decompose", output="out")
    msmemscope.start()

    def model(x):
        for _ in range(3):
            x = (x * 1.5).relu()
        return x

    def tensor(size):
        return torch.ones(size, device="npu", requires_grad=True)

    # Of each part its own size tells its blocks.
    inside = tensor(1 << 12)
    with describer(owner="step"):
        model(inside).sum().backward()

    outside = tensor(1 << 13)
    with describer(owner="forward"):
        loss = model(outside).sum()
    loss.backward()

    late = tensor(1 << 14)
    loss = model(late).sum()
    with describer(owner="outer"), describer(owner="backward"):
        loss.backward()
    after = tensor(1 << 15)
    model(after).sum().backward()          # by the same threads

    again = tensor(1 << 16)
    def part(x):
        with describer(owner="part"):
            return model(x)
    with describer(owner="checkpointed"):
        checkpoint(part, again, use_reentrant=True).sum().backward()

    def train(size, owner, both):
        leaf = tensor(size)
        both.wait()
        for _ in range(20):
            loss = model(leaf).sum()
            both.wait()
            with describer(owner=owner):
                loss.backward()
            leaf.grad = None
    both = threading.Barrier(2)
    threads = [threading.Thread(target=train, args=(1 << 17 + n, f"thread{n}", both)) for n in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    torch.npu.synchronize()
    main = threading.get_native_id()
    msmemscope.stop()
    print(main)
"""


def test_backward_passes_have_the_labels_of_who_called_them(tmp_path):
    run = run_program(tmp_path / "run", PROGRAM)
    main = run.stdout.strip()
    by_size = {}
    for row in run.rows("MALLOC", "PTA"):
        label = row.attributes["owner"].partition("@")[2].split("@")
        label = [part for part in label if part not in ("ops", "aten", "model", "activation", "gradient", "weight")]
        place = "called" if row["Thread Id"] == main else "elsewhere"
        # The pool rounds up.
        exponent = (int(row.attributes["size"]) // 4).bit_length() - 1
        by_size.setdefault((exponent, place), []).append("@".join(label))
    # What the caller's thread allocates first, the tensor itself, is outside of the labelled block.
    assert set(by_size[12, "called"][1:]) == {"step"}
    assert len(by_size[12, "elsewhere"]) >= 6 and set(by_size[12, "elsewhere"]) == {"step"}
    assert set(by_size[13, "called"][1:]) == {"forward"}
    assert set(by_size[13, "elsewhere"]) == {""}, "the backward pass is called outside of the block"
    assert set(by_size[14, "called"]) == {""}
    assert set(by_size[14, "elsewhere"]) == {"outer@backward"}
    assert set(by_size[15, "elsewhere"]) == {""}, "labels end with their pass"
    assert set(by_size[16, "elsewhere"]) <= {"part@checkpointed", "checkpointed"}
    assert "part@checkpointed" in by_size[16, "elsewhere"], "recomputed by autograd's thread, in a block of its own"
    for number in range(2):
        backward = [label for label in by_size[17 + number, "elsewhere"] if label]
        assert set(backward) == {f"thread{number}"} and len(backward) >= 20
