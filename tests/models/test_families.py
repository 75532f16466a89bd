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
