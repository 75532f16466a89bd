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


def block(size_bytes):
    """What the pool takes for a tensor."""
    return (size_bytes + 32 + 511) // 512 * 512


# Three layers of 1 MiB. FSDP1 has all of them in one flat parameter, which it makes before it keeps a shard of it.
LAYER = MEBIBYTE
SHARDED = {
    "fsdp1": (2, {"sharded_weight": [3 * LAYER // 2, 3 * LAYER], "gradient": [3 * LAYER // 2] * 3}),
    "fsdp2": (2, {"sharded_weight": [LAYER // 2] * 3, "gradient": [LAYER // 2] * 9 + [LAYER] * 9}),
}
GATHERED = {"fsdp1": "all_gather", "fsdp2": "all_gather_output"}
OWNERS = {"sharded_weight", "gradient", *GATHERED.values()}


@pytest.mark.skipif(IS_OLD, reason="this torch has no torch.distributed.fsdp.fully_shard")
@pytest.mark.parametrize("kind", SHARDED)
def test_what_fsdp_holds_has_its_owners_to_the_byte_and_losses_stay_the_same(tmp_path, kind):
    ranks, expected_sizes = SHARDED[kind]
    arguments = [*launcher(ranks), str(RANKS / "sharded.py"), kind]
    (tmp_path / "cards").mkdir()
    variables = {"STANDIN_RUN_DIR": str(tmp_path / "cards"), "OMP_NUM_THREADS": "1"}
    result, entries = run_recorded(tmp_path, arguments, "--analysis=leaks,decompose", **variables)
    plain = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **variables}, capture_output=True, text=True
    )
    losses = [sorted(line for line in run.stdout.splitlines() if line.startswith("{")) for run in (result, plain)]
    assert len(losses[0]) == ranks and losses[0] == losses[1]
    for rank in range(ranks):
        rows = rows_of(tmp_path, rank)
        (process,) = {int(row["Process Id"]) for row in rows}
        own = [entry for entry in entries if entry.process == process]
        assert recorded(rows, "PTA") == expected([entry for entry in own if entry.library == "ms_tools_ext"], POOL)
        sizes = {}
        for row in rows:
            if row["Event"] == "MALLOC" and f"owner:PTA@{kind}@" in row["Attr"]:
                labels = row["Attr"].split("owner:")[1].split(",")[0].rstrip("}").split("@")
                sizes.setdefault(next((label for label in labels if label in OWNERS), None), []).append(
                    int(row["Attr"].split("size:")[1].split(",")[0])
                )
        for owner, parts in expected_sizes.items():
            assert sorted(sizes[owner]) == [block(part) for part in parts], owner
        whole = block(3 * LAYER if kind == "fsdp1" else LAYER)
        # The pool does not split off what is small.
        assert all(whole <= size < whole + MEBIBYTE for size in sizes[GATHERED[kind]])
