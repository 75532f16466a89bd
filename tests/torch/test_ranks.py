"""Jobs of several ranks, with collectives between their cards: what torch computes with them, and what is recorded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import IS_OLD
from test_recording import DRIVER, POOL, expected, recorded, rows_of, run_recorded

RANKS = Path(__file__).with_name("ranks")
MEBIBYTE = 1 << 20


def launcher(ranks):
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]


def test_every_collective_gives_what_it_must(tmp_path):
    environment = {**os.environ, "STANDIN_RUN_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher(8), str(RANKS / "collectives.py")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split("\n")) == ["", *(f"rank {rank}: done" for rank in range(8))]
    assert not list(tmp_path.glob("hccl-*")), "nothing is left behind"


@pytest.mark.skipif(IS_OLD, reason="this torch has no torch.distributed.fsdp.fully_shard")
def test_every_way_to_spread_a_model_trains_as_on_the_cpu_and_is_recorded_whole(tmp_path):
    (tmp_path / "cards").mkdir()
    arguments = [*launcher(2), str(RANKS / "parallel.py")]
    variables = {"STANDIN_RUN_DIR": str(tmp_path / "cards"), "OMP_NUM_THREADS": "1"}
    result, entries = run_recorded(tmp_path, arguments, "--analysis=leaks,decompose", **variables)
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 14, result.stdout
    for line in lines:
        assert line["npu"] == pytest.approx(line["cpu"], rel=1e-5), line
    for rank in range(2):
        rows = rows_of(tmp_path, rank)
        (process,) = {int(row["Process Id"]) for row in rows}
        own = [entry for entry in entries if entry.process == process]
        on_card = [entry for entry in own if entry.device == rank or entry.library == "ms_tools_ext"]
        assert recorded(rows, "HAL") == expected(on_card, DRIVER)
        assert recorded(rows, "PTA") == expected(on_card, POOL)
        # Two buffers for the group, and two smaller ones between the stages of the pipeline.
        buffers = [row for row in rows if row["Event"] == "MALLOC" and "owner:CANN@HCCL" in row["Attr"]]
        sizes = sorted(int(row["Attr"].split("size:")[1].split(",")[0]) for row in buffers)
        assert sizes == [20 * MEBIBYTE] * 2 + [200 * MEBIBYTE] * 2
