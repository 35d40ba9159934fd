"""Does a run stop when nothing gets better, and keep what was best?"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from train.tiny import make_pictures, run_tiny

from vitrail.train import loop
from vitrail.train.validate import Scores


def pretend(monkeypatch: pytest.MonkeyPatch, top1: list[float]) -> None:
    """Evaluations that find this, one after the other."""
    found = iter(top1)

    def validate(*args: Any) -> tuple[Scores, list[tuple[str, str]]]:
        return Scores(loss_sum=100.0, right1=round(100 * next(found)), right5=100, pictures=100), []

    monkeypatch.setattr(loop, "validate", validate)


def test_it_stops_after_so_many_epochs_without_a_better_one(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, [0.3, 0.5, 0.4, 0.5, 0.45, 0.9])
    result = run_tiny(pictures, tmp_path / "run", {"train.epochs": 6, "train.patience": 3})
    assert (result.status, result.epochs, result.best_epoch) == ("completed", 5, 2)


def test_the_best_weights_are_those_of_the_best_epoch_and_the_last_of_the_last(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, [0.3, 0.5, 0.4])
    run_tiny(pictures, tmp_path / "three")
    digest = {
        name: hashlib.sha256((tmp_path / "three" / "weights" / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("best", "last")
    }
    assert digest["best"] != digest["last"]
    pretend(monkeypatch, [0.3, 0.5])
    real = loop.save

    def stopping(job: Any, state: Any, *rest: Any) -> None:
        real(job, state, *rest)
        if state.progress.epochs == 2:
            job.signals.number = 15

    monkeypatch.setattr(loop, "save", stopping)
    run_tiny(pictures, tmp_path / "two")
    second = (tmp_path / "two" / "weights" / "last" / "model.safetensors").read_bytes()
    assert hashlib.sha256(second).hexdigest() == digest["best"]


def test_without_validation_pictures_the_latest_are_the_best(tmp_path: Path) -> None:
    data = make_pictures(tmp_path / "data", count=8)
    result = run_tiny(data, tmp_path / "run", {"data.val_share": 0.0})
    assert (result.epochs, result.best_epoch) == (3, 3)
    assert "val_top1" not in result.best
