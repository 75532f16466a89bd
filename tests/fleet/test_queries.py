"""The same numbers from DuckDB, from Spark and from the native analyses, on real recordings and on a generated job."""

from __future__ import annotations

import csv
import json
import shutil
import warnings

import pytest
from conftest import LEAKING, RANKS, STEPS, tool
from msmemscope import fleet


@pytest.fixture(params=["duckdb", "spark"])
def ask(request):
    """Asks with one of the engines."""
    settings = {"engine": request.param}
    if request.param == "spark":
        settings["master"] = request.getfixturevalue("spark_master")
    else:
        pytest.importorskip("duckdb")

    def query(name, home, **parameters):
        return fleet.query(name, home / "dataset", **settings, **parameters).to_dicts()

    return query


@pytest.fixture(scope="session")
def native(recorded_job):
    """What `analyze` says of the real recordings, by process."""
    report = json.loads(tool("analyze", recorded_job / "results", "--json"))
    return {process["process_id"]: process for process in report["processes"]}


def test_peaks(ask, recorded_job, native):
    rows = ask("peak", recorded_job)
    assert {row["rank"] for row in rows} == {0, 1, 2, 3}
    assert {row["job"] for row in rows} == {"world-4"}
    found = {(row["process_id"], str(row["device"]), row["pool"]): (row["peak_bytes"], row["peak_ns"]) for row in rows}
    expected = {
        (number, pool["device"].replace("cpu", "-1"), pool["pool"]): (
            pool["peak_used_bytes"],
            pool["peak_timestamp_ns"],
        )
        for number, process in native.items()
        for pool in process["summary"]["pools"]
        if pool["peak_used_bytes"]
    }
    assert found == expected


def test_blocks_are_as_many_as_allocations_in_csv_files(ask, recorded_job):
    allocations = 0
    for path in recorded_job.glob("results/*/device_*/dump/*_dump_*.csv"):
        with path.open(newline="") as file:
            allocations += sum(row["Event"] == "MALLOC" for row in csv.DictReader(file))
    alive = ask("blocks_alive_at", recorded_job, time_ns=2**62, limit=100_000)
    ended = sum(row["blocks"] for row in ask("use_at", recorded_job, time_ns=0))
    assert allocations > 0 and ended == 0
    assert len(alive) <= allocations
    everything = fleet._files(recorded_job / "dataset")["blocks"]
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({everything!r})").fetchall() == [(allocations,)]


def test_use_at_the_peak_is_the_peak(ask, recorded_job):
    for peak in ask("peak", recorded_job):
        rows = ask("use_at", recorded_job, time_ns=peak["peak_ns"])
        keys = ("rank", "device", "process_id", "pool")
        used = [row["used_bytes"] for row in rows if all(row[key] == peak[key] for key in keys)]
        assert used == [peak["peak_bytes"]]


def test_growth(ask, recorded_job, native):
    found = {(row["process_id"], row["pool"]): row["bytes_per_step"] for row in ask("growth", recorded_job)}
    for number, process in native.items():
        for growth in process["leaks"]["growth"]:
            ends = growth["step_ends"]
            settled = ends[(len(ends) - 1) // 2 :]
            if len(settled) < 2:
                continue
            steps = settled[-1]["device_step"] - settled[0]["device_step"]
            expected = (settled[-1]["used_bytes"] - settled[0]["used_bytes"]) / steps
            assert found[number, growth["pool"]] == expected


def test_leaked_blocks(ask, recorded_job, native):
    rows = ask("leaked_blocks", recorded_job)
    assert any(process["leaks"]["leaks"] for process in native.values())
    for number, process in native.items():
        leaks = process["leaks"]["leaks"]
        own = [row for row in rows if row["process_id"] == number]
        assert sum(row["bytes"] for row in own) == sum(leak["bytes"] for leak in leaks)
        assert sum(row["blocks"] for row in own) == sum(leak["count"] for leak in leaks)
        assert {row["call_site"] for row in own} == {leak["site"]["line"] for leak in leaks}


def test_owners_at_peak(ask, recorded_job, native):
    rows = ask("owners_at_peak", recorded_job)
    found = {(row["process_id"], row["pool"], row["owner"]): (row["bytes"], row["blocks"]) for row in rows}
    expected = {
        (number, pool["pool"], owner["owner"]): (owner["bytes"], owner["blocks"])
        for number, process in native.items()
        for pool in process["owners"]["pools"]
        for owner in pool["at_peak"]
    }
    assert found == expected


def test_the_rank_that_differs_is_found_among_many(ask, made_job):
    outliers = ask("outliers", made_job)
    assert [(row["rank"], row["ranks"]) for row in outliers] == [(LEAKING, RANKS)]
    leaks = ask("leaked_blocks", made_job)
    assert [(row["rank"], row["call_site"]) for row in leaks] == [(LEAKING, "/data/train.py:21 remember")]
    # What was kept of the first step and of the last one is no candidate.
    assert leaks[0]["bytes"] == (STEPS - 2) << 20
    growth = {row["rank"]: row["bytes_per_step"] for row in ask("growth", made_job)}
    assert growth == {rank: float(rank == LEAKING) * 2**20 for rank in range(RANKS)}
    idle = ask("longest_idle", made_job, limit=5)
    assert len(idle) == 5 and all(row["idle_ns"] > 0 for row in idle)
    assert [row["idle_ns"] for row in idle] == sorted((row["idle_ns"] for row in idle), reverse=True)


def test_native_merge_names_the_same_rank(made_job):
    tool("finish", made_job / "job")
    report = json.loads(tool("fleet", made_job / "job", "--json"))
    assert [outlier["rank"] for outlier in report["jobs"][0]["outliers"]] == [LEAKING]
    peaks = {row["rank"]: row["peak_bytes"] for row in report["jobs"][0]["matrix"]}
    pytest.importorskip("duckdb")
    rows = fleet.query("peak", made_job / "dataset").to_dicts()
    assert peaks == {row["rank"]: row["peak_bytes"] for row in rows}


def files_of(dataset, rank, table="*"):
    """The files of one rank."""
    return sorted(dataset.glob(f"{table}/job=*/rank={rank}/**/*.parquet"))


def manifest_of(dataset, rank):
    """The manifest of one rank, and where it is."""
    for path in (dataset / "_manifests").iterdir():
        manifest = json.loads(path.read_text())
        if manifest["rank"] == rank:
            return path, manifest
    raise AssertionError(f"no manifest of rank {rank}")


@pytest.fixture
def dataset(small_job, tmp_path):
    """A dataset of six ranks, to be broken."""
    shutil.copytree(small_job / "dataset", tmp_path / "dataset")
    return tmp_path / "dataset"


def test_a_whole_dataset_is_not_complained_about(ask, dataset):
    assert fleet.check(dataset) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [row["rank"] for row in ask("peak", dataset.parent)] == [0, 1, 2, 3, 4, 5]


def test_what_is_wrong_with_a_dataset_is_named_counted_and_left_out(ask, dataset):
    (damaged,) = files_of(dataset, 1, "events")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    (missing,) = files_of(dataset, 2, "stacks")
    missing.unlink()
    (copied,) = files_of(dataset, 3, "blocks")
    shutil.copy(copied, copied.with_name("part-v1-copy.parquet"))
    (copied.parent / "part-v9-1-2-3.parquet").write_bytes(b"PAR1 of another age PAR1")
    path, manifest = manifest_of(dataset, 4)
    path.write_text(json.dumps({**manifest, "version": 2}))
    with pytest.warns(fleet.DatasetWarning) as warned:
        rows = ask("peak", dataset.parent)
    assert [row["rank"] for row in rows] == [0, 3, 5]
    text = str(warned[0].message)
    assert text.startswith("7 problems of the dataset: ")
    problems = fleet.check(dataset)
    assert len(problems) == 7
    expected = [
        ": version 2, and this package knows version 1",
        "rank 1 of job world-6 left out: events/job=world-6/rank=1/device=0/",
        "rank 2 of job world-6 left out: stacks/job=world-6/rank=2/",
        "part-v1-copy.parquet left out: no manifest names it: a copy",
        "part-v9-1-2-3.parquet left out: version 9, and this package knows version 1",
        " and 5 more of this name left out: no manifest names it",
        "job world-6: ranks 1, 2, 4 of 6 missing",
    ]
    for words in expected:
        assert sum(words in problem for problem in problems) == 1, (words, problems)


def test_of_two_runs_of_a_rank_the_later_one_counts(ask, dataset):
    path, manifest = manifest_of(dataset, 0)
    began_ns = manifest["start_ns"]
    earlier = {**manifest, "start_ns": began_ns - 1, "end_ns": began_ns, "files": []}
    for entry in manifest["files"]:
        file = dataset / entry["path"]
        copy = file.with_name(f"part-v1-earlier-{file.name}")
        shutil.copy(file, copy)
        earlier["files"].append({**entry, "path": str(copy.relative_to(dataset))})
    path.with_name("earlier.json").write_text(json.dumps(earlier))
    with pytest.warns(fleet.DatasetWarning, match="1 problem of the dataset: rank 0 of job world-6 left out: it ran"):
        rows = ask("leaked_blocks", dataset.parent)
    assert [(row["rank"], row["blocks"]) for row in rows] == [(5, STEPS - 2)]


def test_a_byte_that_is_wrong_is_found(dataset):
    (file,) = files_of(dataset, 3, "events")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    (problem,) = (line for line in fleet.check(dataset) if line.startswith("rank 3 of"))
    assert problem.endswith("its checksum is another one")


def test_wrong_questions_are_refused(made_job, tmp_path):
    dataset = made_job / "dataset"
    with pytest.raises(fleet.AnalysisError, match="no question 'peek'; there are blocks_alive_at,"):
        fleet.query("peek", dataset)
    with pytest.raises(fleet.AnalysisError, match="use_at needs the parameter time_ns"):
        fleet.query("use_at", dataset)
    with pytest.raises(fleet.AnalysisError, match="no parameter 'time'"):
        fleet.query("peak", dataset, time=1)
    with pytest.raises(fleet.AnalysisError, match="engine must be"):
        fleet.query("peak", dataset, engine="postgres")
    with pytest.raises(fleet.AnalysisError, match="no such dataset"):
        fleet.query("peak", tmp_path / "absent")
    with pytest.raises(fleet.AnalysisError, match="no recordings"):
        fleet.query("peak", tmp_path)
