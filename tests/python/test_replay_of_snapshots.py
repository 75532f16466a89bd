"""Memory snapshots of PyTorch are replayed as exactly as recordings, although their histories have other sizes."""

import gzip
import json
import pickle
import subprocess

import pytest
from running import PROGRAM, ROOT

FIXTURES = ROOT / "crates" / "offline" / "import" / "tests" / "fixtures"
MEBIBYTE = 1 << 20
GRANULE = 512


def replayed(path):
    completed = subprocess.run([PROGRAM, "replay", path, "--json"], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    (card,) = json.loads(completed.stdout)["cards"]
    return card


@pytest.mark.parametrize(
    ("name", "settings", "events", "driver_calls"),
    [
        ("torch_npu_snapshot", "as delivered", 6432, [52, 52]),
        # Its history begins when 320 blocks are there, and has no calls of the driver.
        ("torch_npu_snapshot_expandable", "expandable_segments:True", 5473, [0, 55]),
    ],
)
def test_snapshots_of_real_jobs_are_replayed_exactly(tmp_path, name, settings, events, driver_calls):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(gzip.decompress((FIXTURES / f"{name}.pkl.gz").read_bytes()))
    card = replayed(path)
    agreement = card["agreement"]
    assert card["recorded_settings"] == settings
    assert (agreement["events"], agreement["differing"]) == (events, 0)
    assert agreement["driver_calls"] == driver_calls


def snapshot(padding, sizes):
    """A snapshot of an allocator that gives blocks of these sizes out of one segment, and then one more."""
    history = [{"action": "segment_alloc", "addr": 1 << 40, "size": 20 * MEBIBYTE, "stream": 0}]
    address = 1 << 40
    for size in sizes:
        history.append({"action": "alloc", "addr": address, "size": size, "stream": 0})
        address += -(-(size + padding) // GRANULE) * GRANULE
    more = 1 << 41
    history.append({"action": "segment_alloc", "addr": more, "size": 20 * MEBIBYTE, "stream": 0})
    history.append({"action": "alloc", "addr": more, "size": sizes[0], "stream": 0})
    segments = [
        {"device": 0, "address": at, "total_size": 20 * MEBIBYTE, "stream": 0, "is_expandable": False, "blocks": []}
        for at in (1 << 40, more)
    ]
    return {"segments": segments, "device_traces": [history]}


def test_sizes_that_were_asked_for_are_padded_where_blocks_are(tmp_path):
    """Four requests of 5 MiB fill a segment of 20 MiB; with 32 bytes more each, three do."""
    path = tmp_path / "snapshot.pickle"
    for padding, fitting in [(0, 4), (32, 3)]:
        path.write_bytes(pickle.dumps(snapshot(padding, [5 * MEBIBYTE] * fitting)))
        card = replayed(path)
        assert card["agreement"]["differing"] == 0, card["agreement"]
        assert card["recorded"]["peak_used_bytes"] == (fitting + 1) * (5 * MEBIBYTE + (GRANULE if padding else 0))


@pytest.fixture
def small_snapshot(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot(0, [5 * MEBIBYTE] * 4)))
    return path


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--card=0", "a size such as 32GiB"),
        ("--card=32", "a size such as 32GiB"),
        ("--card=potato", "a size such as 32GiB"),
        ("--set=", "such as expandable_segments=True"),
        ("--set=colour=blue", "no option 'colour'; those that count here are expandable_segments, "),
        ("--set=max_split_size_mb", "key=value"),
        ("--set=expandable_segments=maybe", "True or False"),
        ("--batch=8", "such as 8,16"),
        ("--batch=8,16", "one size for each recording, not 2 sizes for 1 recording"),
        ("--curve=/nowhere/curve.csv", "cannot write /nowhere/curve.csv"),
        ("--sweep=yes", "takes no value"),
    ],
)
def test_wrong_values_are_one_line(small_snapshot, option, said):
    completed = subprocess.run([PROGRAM, "replay", small_snapshot, option], capture_output=True, text=True)
    assert completed.returncode == 2 and completed.stdout == "", completed
    assert said in completed.stderr and completed.stderr.count("\n") == 1, completed.stderr


def test_a_job_that_ran_out_says_nothing_of_its_batch(tmp_path, small_snapshot):
    full = tmp_path / "full.pickle"
    contents = snapshot(0, [5 * MEBIBYTE] * 4)
    contents["device_traces"][0].append({"action": "oom", "size": 1 << 40, "device_free": 0, "stream": 0})
    full.write_bytes(pickle.dumps(contents))
    command = [PROGRAM, "replay", small_snapshot, full, "--batch=8,16", "--card=1GiB"]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 2, completed.stdout
    assert "full.pickle ran out of memory, so what a batch of 16 needs is not known" in completed.stderr
