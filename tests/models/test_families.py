"""Sound training of real model families gives no alarm (`make test-models`)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROGRAM = Path(os.environ.get("MSMEMSCOPE", HERE.parents[1] / "target/release/msmemscope"))
#: Nothing is downloaded, and what the device does not compute is an error.
SETTINGS = {"HF_HUB_OFFLINE": "1", "STANDIN_UNKNOWN_OPERATORS": "error"}
#: What the reports call a finding, and how every part of the tool begins a warning.
ALARMS = r"(?m)^(Leak|Perhaps a leak|Growth|Waste|Out of memory|Corrupted memory|Note): |\] (Warning|Error): |^Missing"


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "vit", "lora"])
def test_sound_training_gives_no_alarm(tmp_path, family):
    (tmp_path / "cards").mkdir()
    command = [PROGRAM, "-o", tmp_path / "output", "--", sys.executable, str(HERE / "families.py"), family]
    environment = {**os.environ, **SETTINGS, "STANDIN_RUN_DIR": str(tmp_path / "cards")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "losses 10 fell" in result.stdout, result.stdout
    own = "\n".join(line for line in result.stderr.splitlines() if not re.match(r"\[W\d|\[transformers\]", line))
    assert not re.search(ALARMS, own), own
    assert "No leaks found in 10 steps." in own, own
    said = " ".join(own.split())
    assert "each of the 10 steps ends with a step of the optimizer" in said, said
    assert re.search(r"Peak: [\d.]+ MiB .* held by blocks allocated at \S*families\.py:\d+ ", said), said


#: A real tokenizer with its own threads, loaders whose workers are forked behind them, and kernels meanwhile.
TOKENIZED = """
import torch, torch_npu
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset

lines = [f"line {number} of a small text" for number in range(64)]
tokenizer = Tokenizer(models.BPE(unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=80, special_tokens=["?"], show_progress=False))
tokenizer.enable_padding(length=24)
tokenizer.encode_batch(lines)  # in parallel: its threads are there when workers are forked

class Texts(Dataset):
    def __len__(self): return len(lines)
    def __getitem__(self, index): return torch.tensor(tokenizer.encode(lines[index]).ids)

table = torch.nn.Embedding(80, 8).npu()
torch.nn.init.ones_(table.weight)
for batch in DataLoader(Texts(), batch_size=16, num_workers=2, multiprocessing_context="fork"):
    print(float(table(batch.npu()).sum()))
print(len(tokenizer.encode_batch(lines)))
torch.npu.synchronize()
"""


def test_the_note_on_tokenizers_holds_with_kernels(tmp_path):
    """The users' documents warn that tokenizers turn their threads off if a process is forked. We fork nothing."""
    program = tmp_path / "tokenized.py"
    program.write_text(TOKENIZED)

    def run(*command):
        environment = {**os.environ, **SETTINGS, "STANDIN_RUN_DIR": str(tmp_path)}
        result = subprocess.run([*command, sys.executable, program], env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    def notes(result):
        return [line for line in result.stderr.splitlines() if line.startswith("huggingface/tokenizers")]

    plain = run()
    assert plain.stdout.splitlines()[-1] == "64" and len(plain.stdout.splitlines()) == 5, plain.stdout
    recorded = run(PROGRAM, "-o", tmp_path / "out", "--level=kernel", "--data-format=csv", "--")
    assert recorded.stdout.splitlines()[:5] == plain.stdout.splitlines()
    # The warning is about the job's own workers, as often as without us.
    assert len(notes(recorded)) == len(notes(plain)), recorded.stderr
    rows = [path.read_text() for path in (tmp_path / "out").rglob("memscope_dump_*.csv")]
    assert any("KERNEL_EXECUTE_END" in text for text in rows)
