"""What the guides tell readers to type and takes the real framework, typed as it stands on the page.

tests/python/test_docs_commands.py types the rest.
"""

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from running import ROOT
from test_docs import PAGES, page_id
from test_docs_commands import ELSEWHERE, WITH_TORCH, Shell, blocks, typed

TRAINING = """\
import torch
import torch_npu
import msmemscope

scores = torch.full((64, 64), 0.5, device="npu")
for _ in range(3):
    scores.topk(4)
    scores.sigmoid_()
    msmemscope.step()
"""
#: As many ranks as a test machine can start in a few seconds.
FEWER_RANKS = ("--nproc-per-node=8", "--nproc-per-node=2")


def commands_with_torch():
    """All of them, each once, with the first page that has it."""
    found = {}
    for page in PAGES:
        for command in sum(blocks(page), []):
            is_here = re.search(WITH_TORCH, command) and not any(re.search(pattern, command) for pattern in ELSEWHERE)
            if is_here:
                found.setdefault(command, page_id(page))
    return found


COMMANDS = commands_with_torch()


@pytest.mark.parametrize("command", COMMANDS, ids=[f"{page}-{number}" for number, page in enumerate(COMMANDS.values())])
def test_what_a_page_says_can_be_typed(command, tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "shared").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "release").symlink_to(ROOT / "target" / "release")
    (tmp_path / "target" / "torch-venv").symlink_to(sys.prefix)
    # The program of the source tree, which knows where the device is.
    shell = Shell(tmp_path, ROOT / "target" / "release")
    package = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    shell.environment = {**os.environ, "PATH": shell.environment["PATH"], "PYTHONPATH": package}
    statuses, said = shell.run([typed(command).replace(*FEWER_RANKS)])
    assert statuses == [0], said
    assert "no memory events were recorded" not in said
    assert list(tmp_path.rglob("recording.trace")) or "msmemscope --" not in command, said
