"""Is a run's folder made once, held by one process, and readable at any moment?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vitrail.errors import UsageError
from vitrail.runs import directory


def test_a_run_never_takes_a_folder_that_exists_and_says_which_is_free(tmp_path: Path) -> None:
    directory.create(tmp_path / "flowers", "", {})
    with pytest.raises(UsageError, match="flowers-2"):
        directory.create(tmp_path / "flowers", "", {})
    directory.create(tmp_path / "flowers-2", "", {})
    assert directory.next_free(tmp_path / "flowers-2").name == "flowers-3"


def test_two_processes_cannot_train_in_one_run(tmp_path: Path) -> None:
    run = directory.create(tmp_path / "run", "", {})
    with directory.owned(run), pytest.raises(UsageError, match="Another process"), directory.owned(run):
        pass
    with directory.owned(run):
        pass


def test_events_survive_a_line_torn_by_a_kill(tmp_path: Path) -> None:
    run = directory.create(tmp_path / "run", "", {})
    directory.log_event(run, "commit", step=1)
    with (run.path / "events.jsonl").open("ab") as file:
        file.write(b'{"time": 12, "ev')
    directory.log_event(run, "commit", step=2)
    lines = (run.path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["step"] == 1
    assert json.loads(lines[2])["step"] == 2


def test_facts_are_changed_one_by_one_and_the_rest_stays(tmp_path: Path) -> None:
    run = directory.create(tmp_path / "run", "", {})
    directory.record(run, status="running", seed=3)
    directory.record(run, status="completed")
    assert directory.read_record(run) == {"schema_version": 1, "status": "completed", "seed": 3}


def test_a_run_that_can_be_seen_is_complete(tmp_path: Path) -> None:
    run = directory.create(tmp_path / "run", "[train]\n", {"status": "running"})
    assert directory.open_run(run.path) == run
    assert run.config.read_text() == "[train]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_results_have_the_fixed_header_and_every_row_once(tmp_path: Path) -> None:
    run = directory.create(tmp_path / "run", "", {})
    rows = [{"epoch": 1, "step": 4, "train_loss": 0.5}, {"epoch": 2, "step": 8, "train_loss": 0.25, "val_top1": 1.0}]
    directory.write_results(run, rows[:1])
    directory.write_results(run, rows)
    assert (run.path / "results.csv").read_text() == (
        "epoch,step,train_loss,val_loss,val_top1,val_top5,lr,seconds,images_per_second\n"
        "1,4,0.5,,,,,,\n"
        "2,8,0.25,,1.0,,,,\n"
    )


def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.json"):
        directory.open_run(tmp_path)
