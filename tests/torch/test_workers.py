"""Engines that start their workers by spawn or forkserver are recorded whole, and use several cards in one process."""

from pathlib import Path

from test_recording import DRIVER, POOL, expected, recorded, rows_of, run_recorded

WORKERS = Path(__file__).with_name("ranks") / "workers.py"


def test_workers_are_recorded_however_they_are_started(tmp_path):
    result, entries = run_recorded(tmp_path, [str(WORKERS)], STANDIN_RUN_DIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert sorted(result.stdout.splitlines()) == [f"card {card}: {3072 * (card + 1)}" for card in range(4)]
    processes = {}
    for card in range(4):
        rows = rows_of(tmp_path, card)
        (process,) = {int(row["Process Id"]) for row in rows}
        processes[card] = process
        on_card = [entry for entry in entries if entry.process == process and entry.device == card]
        assert recorded(rows, "HAL") == expected(on_card, DRIVER), f"card {card}"
        assert recorded(rows, "PTA"), f"card {card}"
    assert processes[0] == processes[1], "two cards of one process"
    assert len(set(processes.values())) == 3
    for card in (2, 3):
        own = [entry for entry in entries if entry.process == processes[card]]
        assert recorded(rows_of(tmp_path, card), "PTA") == expected(own, POOL), f"card {card}"
