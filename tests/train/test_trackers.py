"""Do dashboards get what results.csv has, once each, and is a missing one said before anything is trained?"""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from train.tiny import run_tiny

from vitrail.errors import ConfigError, EnvironmentProblem
from vitrail.train import loop, trackers
from vitrail.train.run import train


class Diary:
    """A tracker that is told everything and forgets nothing."""

    needs = "json"
    told: list[tuple[str, int, dict[str, float]]] = []  # noqa: RUF012 (each test has its own class)
    closed = 0

    def __init__(self, run: Path, step: int) -> None:
        type(self).told.append(("begin", step, {}))

    def step(self, step: int, numbers: Any) -> None:
        type(self).told.append(("step", step, dict(numbers)))

    def epoch(self, step: int, numbers: Any) -> None:
        type(self).told.append(("epoch", step, dict(numbers)))

    def close(self) -> None:
        type(self).closed += 1


def test_a_tracker_is_told_every_step_and_epoch_once_also_over_a_stop(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(Diary):
        told: list[tuple[str, int, dict[str, float]]] = []  # noqa: RUF012

    monkeypatch.setattr(trackers, "TRACKERS", {"diary": Own})
    real = loop.take_step

    def stopping(job: Any, state: Any, batches: Any) -> Any:
        if state.progress.step == 5:
            job.signals.number = 15
        return real(job, state, batches)

    monkeypatch.setattr(loop, "take_step", stopping)
    run_tiny(pictures, tmp_path / "run", {"train.track": ("diary",)})
    monkeypatch.setattr(loop, "take_step", real)
    result = train(resume=tmp_path / "run", quiet=True)
    assert [step for kind, step, _ in Own.told if kind == "step"] == list(range(1, 13))
    assert [step for kind, step, _ in Own.told if kind == "begin"] == [0, 5]
    epochs = [numbers for kind, _, numbers in Own.told if kind == "epoch"]
    assert [numbers["val_loss"] for numbers in epochs] == [row["val_loss"] for row in result.history]
    assert Own.closed == 2


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own dependencies
def test_tensorboard_reads_what_results_csv_says(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "run", {"train.track": ("tensorboard",)})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    with (tmp_path / "run" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    scalars = events.Scalars("epoch/val_loss")
    assert [one.step for one in scalars] == [int(row["step"]) for row in rows]
    assert [one.value for one in scalars] == pytest.approx([float(row["val_loss"]) for row in rows], abs=1e-6)
    assert len(events.Scalars("step/loss")) == 12


def test_a_dashboard_that_is_not_there_is_said_first(pictures: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(ConfigError, match=r"tensorbord.*\n.*tensorboard"):
        run_tiny(pictures, tmp_path / "run", {"train.track": ("tensorbord",)})
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="pip install wandb"):
        run_tiny(pictures, tmp_path / "run", {"train.track": ("wandb",)})
    assert not (tmp_path / "run").exists()
