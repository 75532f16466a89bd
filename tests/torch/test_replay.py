"""The model of the allocator does what the real one does; `make test-replay` asks about all examples and settings."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "replay"))

from replaying import COLLECTING, DEFAULTS, EXACT, LIMIT, LIMITED, STREAMS, WAITING, predicted, real, record


@pytest.mark.parametrize("example", ["mlp.py", "expandable_segments.py"])
def test_prediction_equals_reality(tmp_path, example):
    exact = record(tmp_path, example, EXACT)
    for settings in ["max_split_size_mb:32", EXACT]:
        recording = exact if settings == EXACT else record(tmp_path, example, settings)
        reality, card = real(recording)
        assert card["agreement"]["differing"] == 0
        prediction = predicted(exact, settings)
        assert prediction.reserved == reality.reserved
        assert prediction.driver_calls == reality.driver_calls == card["agreement"]["driver_calls"][1]


def test_blocks_of_several_streams_are_told_apart(tmp_path):
    recording = record(tmp_path, STREAMS, DEFAULTS)
    _, card = real(recording)
    assert card["streams"] == 3
    assert card["agreement"]["differing"] == 0


def test_blocks_that_wait_for_other_streams_are_found_by_their_addresses(tmp_path):
    recording = record(tmp_path, WAITING, DEFAULTS)
    _, card = real(recording)
    assert card["held_back"] > 0
    assert card["agreement"]["differing"] == 0


def test_the_limit_that_a_job_sets_is_recorded(tmp_path):
    recording = record(tmp_path, LIMITED, COLLECTING)
    _, card = real(recording)
    assert card["recorded_settings"] == f"{COLLECTING},{LIMIT}"
    assert card["agreement"]["differing"] == 0
