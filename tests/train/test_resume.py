"""Does a run that was stopped end where it would have ended, bit for bit?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from train.tiny import RICH, TINY, fingerprint, make_pictures, run_tiny

from vitrail.errors import DataError, UsageError
from vitrail.runs import directory
from vitrail.train import loop
from vitrail.train.run import train

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "rich": RICH}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stopped_after_any_step_goes_on_to_the_same_bits(
    kind: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(pictures, tmp_path / "whole", KINDS[kind])
    expected = fingerprint(tmp_path / "whole")
    real = loop.take_step
    for stop in (0, 3, 4, 10):

        def stopping(job: Any, state: Any, batches: Any, stop: int = stop) -> Any:
            if state.progress.step == stop:
                job.signals.number = 15
            return real(job, state, batches)

        out = tmp_path / f"stopped {stop}"
        monkeypatch.setattr(loop, "take_step", stopping)
        result = run_tiny(pictures, out, KINDS[kind])
        assert (result.status, result.exit_code) == ("preempted", 143)
        assert directory.read_record(directory.Run(out))["status"] == "preempted"
        monkeypatch.setattr(loop, "take_step", real)
        assert train(resume=out, quiet=True).status == "completed"
        assert fingerprint(out) == expected, stop


def test_a_run_stopped_in_an_evaluation_evaluates_again(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(pictures, tmp_path / "whole")
    real = loop.validate

    def stopping(job: Any, *args: Any) -> Any:
        job.signals.number = 2
        return real(job, *args)

    out = tmp_path / "stopped"
    monkeypatch.setattr(loop, "validate", stopping)
    result = run_tiny(pictures, out)
    assert (result.status, result.epochs, result.exit_code) == ("preempted", 0, 130)
    monkeypatch.setattr(loop, "validate", real)
    train(resume=out, quiet=True)
    assert fingerprint(out) == fingerprint(tmp_path / "whole")


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_the_number_of_workers_changes_nothing(workers: int, pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "none", RICH)
    run_tiny(pictures, tmp_path / "some", {**RICH, "data.workers": workers})
    assert fingerprint(tmp_path / "none") == fingerprint(tmp_path / "some")


def test_another_seed_gives_another_model(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "0")
    run_tiny(pictures, tmp_path / "1", {"train.seed": 1})
    assert fingerprint(tmp_path / "0")["last"] != fingerprint(tmp_path / "1")["last"]


def test_config_toml_makes_the_same_run_again(pictures: Path, tmp_path: Path) -> None:
    from vitrail.settings import Layer, read_toml
    from vitrail.train.settings import SECTIONS

    run_tiny(pictures, tmp_path / "first", RICH)
    layer = Layer("config.toml", read_toml(tmp_path / "first" / "config.toml", SECTIONS))
    train(out=tmp_path / "second", preset="none", settings=[layer], quiet=True)
    assert fingerprint(tmp_path / "first") == fingerprint(tmp_path / "second")


def test_a_finished_run_that_is_resumed_does_nothing(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "run")
    before = fingerprint(tmp_path / "run")
    result = train(resume=tmp_path / "run", quiet=True)
    assert (result.status, result.epochs) == ("completed", 3)
    assert fingerprint(tmp_path / "run") == before


def test_a_finished_run_can_be_given_more_epochs(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "run")
    result = train(resume=tmp_path / "run", settings={"train.epochs": 5}, quiet=True)
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4, 5]
    assert train(resume=tmp_path / "run", quiet=True).epochs == 5


def test_what_would_make_it_another_run_is_refused(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "run")
    for key, value in (("train.batch_size", 6), ("train.seed", 3), ("augment.flip", 0.0), ("model.hidden_size", 64)):
        with pytest.raises(UsageError, match=key.replace(".", r"\.")):
            train(resume=tmp_path / "run", settings={key: value}, quiet=True)


def test_other_pictures_are_refused_and_moved_ones_are_not(pictures: Path, tmp_path: Path) -> None:
    data = make_pictures(tmp_path / "data", count=10)
    run_tiny(data, tmp_path / "run")
    moved = data.rename(tmp_path / "moved")
    train(resume=tmp_path / "run", settings={"data.path": str(moved), "train.epochs": 4}, quiet=True)
    (moved / "class 1" / "3.png").unlink()
    with pytest.raises(DataError, match="not those the run began with"):
        train(resume=tmp_path / "run", quiet=True)


def test_a_damaged_checkpoint_is_reported_kept_and_passed_over(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "whole")
    run_tiny(pictures, tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    content = bytearray((newest / "state.safetensors").read_bytes())
    content[len(content) // 2] ^= 4
    (newest / "state.safetensors").write_bytes(content)
    train(resume=tmp_path / "run", quiet=True)
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")
    assert (tmp_path / "run" / "checkpoints" / f"damaged-{newest.name}" / "state.safetensors").read_bytes() == content
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["path"] for event in events if event["event"] == "damaged checkpoint"] == [newest.name]
    assert TINY["train.epochs"] == 3
