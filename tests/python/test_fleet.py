"""Many ranks together: summaries, their merge, and questions to a dataset with DuckDB. Spark: tests/fleet."""

import json
import subprocess

import pytest
from msmemscope import fleet
from msmemscope.fleet import _contents
from running import PROGRAM

CODE = """
    import os
    import msmemscope
    import small_framework as framework
    msmemscope.config(events="alloc,free", output="out")
    msmemscope.start()
    framework.begin()
    kept = []
    for _ in range(6):
        framework.free(framework.allocate(4096))
        if os.environ["RANK"] == "2":
            kept.append(framework.allocate(1 << 20))
        msmemscope.step()
    msmemscope.stop()
"""


@pytest.fixture
def ranks(run):
    """Four ranks that were started one by one; the third one keeps memory."""
    return [run(CODE, environment={"RANK": str(rank), "WORLD_SIZE": "4"}) for rank in range(4)]


def tool(*arguments):
    completed = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_the_rank_that_keeps_memory_is_named(ranks, tmp_path):
    outputs = [rank.output for rank in ranks]
    report = json.loads(tool("fleet", *outputs, "--json"))
    (job,) = report["jobs"]
    assert (job["processes"], job["world_size"], job["missing_ranks"]) == (4, 4, [])
    assert [outlier["rank"] for outlier in job["outliers"]] == [2]
    assert "rank 2" in job["outliers"][0]["sentence"]
    assert "Outlier: rank 2" in tool("fleet", *outputs)


def test_questions_find_what_the_files_say(ranks, tmp_path):
    pytest.importorskip("duckdb")
    dataset = tmp_path / "dataset"
    said = tool("export", *(rank.output for rank in ranks), "--to=parquet", "-o", dataset)
    allocations = sum(len(rank.rows("MALLOC")) for rank in ranks)
    assert f" {allocations} blocks," in said
    peaks = {row["rank"]: row["peak_bytes"] for row in fleet.query("peak", dataset).to_dicts() if row["device"] >= 0}
    for number, rank in enumerate(ranks):
        used = [int(row.attributes["used"]) for row in rank.rows("MALLOC") if row["Device Id"] != "cpu"]
        assert peaks[number] == max(used)
    with pytest.raises(fleet.AnalysisError, match="needs the parameter time_ns"):
        fleet.query("use_at", dataset)


def manifest(process_id, rank, times, **more):
    start_ns, end_ns = times
    fields = {"job": "world-2", "rank": rank, "world_size": 2, "process_id": process_id, "files": []}
    return {"format": _contents.FORMAT, "version": 1, "start_ns": start_ns, "end_ns": end_ns, **fields, **more}


def test_processes_of_a_rank_that_run_side_by_side_all_count():
    contents = _contents.Contents()
    runs = [
        manifest(1, 0, (10, 20)),
        manifest(2, 0, (20, 90)),
        manifest(3, 0, (30, 40)),
        manifest(4, 0, (60, 70)),
        manifest(5, 1, (20, 90)),
    ]
    assert [one["process_id"] for one in contents._latest(runs)] == [2, 3, 4, 5]
    assert contents.problems == ["rank 0 of job world-2 left out: it ran again as process 2"]
