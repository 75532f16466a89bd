"""The same numbers from DuckDB, from Spark and from the native analyses, on real recordings and on a generated job."""

from __future__ import annotations

import csv
import json
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
    alive = ask("blocks_alive_at", recorded_job, time_ns=2**62, limit=10**9)
    ended = sum(row["blocks"] for row in ask("use_at", recorded_job, time_ns=0))
    assert allocations > 0 and ended == 0
    assert len(alive) <= allocations
    everything = fleet._files(recorded_job / "dataset")["blocks"]
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({everything!r})").fetchone() == (allocations,)


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
            steps = settled[-1]["device_step"] - settled[0]["device_step"]
            expected = (settled[-1]["used_bytes"] - settled[0]["used_bytes"]) / steps
            assert found[number, growth["pool"]] == expected


def test_leaked_blocks(ask, recorded_job, native):
    rows = ask("leaked_blocks", recorded_job)
    for number, process in native.items():
        leaks = process["leaks"]["leaks"]
        assert leaks
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


def test_damaged_files_are_named_and_left_out(ask, made_job, tmp_path):
    job = "job=world-256"
    for rank in (0, 1, 2):
        for path in (made_job / "dataset").glob(f"*/{job}/rank={rank}/**/*.parquet"):
            copy = tmp_path / "dataset" / path.relative_to(made_job / "dataset")
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_bytes()
            is_meant = rank == 1 and copy.parts[-5] == "events"
            copy.write_bytes(text[: len(text) // 2] if is_meant else text)
    other = tmp_path / "dataset" / "events" / job / "rank=2" / "device=0" / "part-v9-1-2-3.parquet"
    other.write_bytes(b"PAR1 of another age PAR1")
    with pytest.warns(fleet.DatasetWarning, match=r"2 files of the dataset left out: .*\(damaged\).*version 9"):
        rows = ask("peak", tmp_path)
    assert [row["rank"] for row in rows] == [0, 2]


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
    with warnings.catch_warnings(), pytest.raises(fleet.AnalysisError, match="no recordings"):
        warnings.simplefilter("ignore")
        fleet.query("peak", tmp_path)
