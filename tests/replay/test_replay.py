"""The model of the allocator against the real one: all examples under all settings (`make test-replay`).

With REPLAY_TABLE=<file> the table of docs/would-it-fit.md is written there.
"""

import os
from pathlib import Path

import pytest
from replaying import (
    COLLECTING,
    DEFAULTS,
    EXACT,
    EXAMPLES,
    LIMIT,
    LIMITED,
    SETTINGS,
    STREAMS,
    WAITING,
    predicted,
    real,
    record,
)

ROWS = {}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings by example and settings, made when they are asked for."""
    directory = tmp_path_factory.mktemp("recordings")
    made = {}

    def recording(example, settings):
        if (example, settings) not in made:
            made[example, settings] = record(directory, example, settings)
        return made[example, settings]

    return recording


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_prediction_equals_reality(recordings, example, settings):
    reality, card = real(recordings(example, settings))
    assert card["agreement"]["differing"] == 0, "the model does what the allocator did"
    assert card["agreement"]["driver_calls"][0] == card["agreement"]["driver_calls"][1]
    prediction = predicted(recordings(example, EXACT), settings)
    assert prediction.reserved == reality.reserved
    assert prediction.driver_calls == reality.driver_calls
    # From a recording with default settings sizes are known to within 1 MiB each.
    inexact = predicted(recordings(example, DEFAULTS), settings)
    ROWS[example, settings] = (max(reality.reserved), max(prediction.reserved), inexact.peaks)
    least, most = inexact.peaks
    assert least <= max(reality.reserved) <= most


@pytest.mark.parametrize("settings", [DEFAULTS, "max_split_size_mb:32", "roundup_power2_divisions:4"])
def test_a_full_card_is_full_in_the_model(recordings, settings):
    _, card = real(recordings("out_of_memory.py", settings))
    assert card["ran_out"]
    assert card["agreement"]["differing"] == 0
    assert card["agreement"]["driver_calls"][0] == card["agreement"]["driver_calls"][1]
    as_recorded = next(trial for trial in card["trials"] if trial["is_recorded"])
    assert as_recorded["outcome"]["failure"], "with the block that it did not get it runs out"


@pytest.mark.parametrize("settings", SETTINGS)
def test_several_streams_are_replayed_as_such(recordings, settings):
    reality, card = real(recordings(STREAMS, settings))
    assert card["streams"] == 3
    assert card["agreement"]["differing"] == 0, "blocks are recorded with their streams"
    assert card["agreement"]["driver_calls"][0] == card["agreement"]["driver_calls"][1]
    prediction = predicted(recordings(STREAMS, EXACT), settings)
    assert prediction.reserved == reality.reserved
    assert prediction.driver_calls == reality.driver_calls
    ROWS[STREAMS, settings] = (max(reality.reserved), max(prediction.reserved), prediction.peaks)


@pytest.mark.parametrize("settings", SETTINGS)
def test_what_waits_for_other_streams_is_held_back(recordings, settings):
    reality, card = real(recordings(WAITING, settings))
    assert card["held_back"] > 0, "nobody records it, but the addresses show it"
    assert card["agreement"]["differing"] == 0
    prediction = predicted(recordings(WAITING, EXACT), settings)
    # How long a block waits is known by whoever got it next, which is not the same under other settings.
    ROWS[WAITING, settings] = (max(reality.reserved), max(prediction.reserved), prediction.peaks)


@pytest.mark.parametrize("settings", [COLLECTING, *SETTINGS])
def test_garbage_is_collected_below_the_limit_that_a_job_sets(recordings, settings):
    reality, card = real(recordings(LIMITED, settings))
    assert LIMIT in card["recorded_settings"]
    assert card["agreement"]["differing"] == 0
    assert card["agreement"]["driver_calls"][0] == card["agreement"]["driver_calls"][1]
    prediction = predicted(recordings(LIMITED, EXACT), f"{settings},{LIMIT}")
    assert prediction.reserved == reality.reserved
    assert prediction.driver_calls == reality.driver_calls
    ROWS[LIMITED, settings] = (max(reality.reserved), max(prediction.reserved), prediction.peaks)


def test_the_table_is_whole():
    if "REPLAY_TABLE" not in os.environ:
        pytest.skip("nobody wants the table")
    mebibytes = lambda size: f"{size / 2**20:.1f} MiB"  # noqa: E731
    lines = [
        "| example | settings | real peak | predicted | difference | predicted from default settings |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (example, settings), (reality, prediction, (least, most)) in ROWS.items():
        shown = "default" if settings == DEFAULTS else f"`{settings}`"
        span = mebibytes(most) if least == most else f"{mebibytes(least)} to {mebibytes(most)}"
        difference = mebibytes(prediction - reality) if prediction != reality else "0"
        lines.append(
            f"| {example} | {shown} | {mebibytes(reality)} | {mebibytes(prediction)} | {difference} | {span} |"
        )
    Path(os.environ["REPLAY_TABLE"]).write_text("\n".join(lines) + "\n")
