"""Do presets set what they say, give way to whoever knows better, and promise nothing that was not measured?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from train.tiny import TINY, run_tiny

from vitrail.errors import EnvironmentProblem, UsageError
from vitrail.train import budget, expected, memory
from vitrail.train.budget import Pace, seconds_of
from vitrail.train.config import TrainConfig
from vitrail.train.expected import Measured, table
from vitrail.train.presets import PRESETS, VALUES, batch_for, shape
from vitrail.train.run import planned


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "none"])
def test_a_preset_sets_what_it_prints_and_a_setting_wins(preset: Any, pictures: Path) -> None:
    plan = planned(pictures, preset=preset, settings={"train.lr": 0.123})
    note = next(note for note in plan.notes if note.startswith(f"preset {preset}"))
    train = plan.record("train", TrainConfig)
    assert train.lr == 0.123
    assert "lr 0.001" not in note
    assert f"epochs {train.epochs}" in note
    for key, value in VALUES[preset, "fresh"].items():
        if key.startswith("train.") and key != "train.lr":
            assert getattr(train, key.removeprefix("train.")) == value
    assert plan.settings.origins["train.epochs"] == f"preset {preset}"


def test_a_trained_start_is_tuned_gently_and_quick_is_a_probe(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "run", {"train.epochs": 1})
    start = tmp_path / "run" / "weights" / "best"
    modes = {preset: planned(pictures, start, preset=preset).record("train", TrainConfig) for preset in PRESETS[:3]}
    assert modes["quick"].mode == "probe"
    assert modes["balanced"].layer_decay == modes["best"].layer_decay == 0.75
    assert modes["best"].ema > 0


def test_a_model_is_shaped_after_the_pictures() -> None:
    assert shape(32) == (32, 4)
    assert shape(28) == (28, 2)
    assert shape(224) == (224, 16)
    assert batch_for(100, 128) == 8
    assert batch_for(50_000, 128) == 128


def test_what_to_expect_is_what_was_measured_on_something_alike(pictures: Path, monkeypatch: Any) -> None:
    one = Measured(
        data="stripes", pictures=50, classes=3, start="fresh", mode="full", preset="quick",
        seeds=3, top1=(91.0, 93.5), seconds=12.0, command="vitrail train stripes --preset quick",
    )  # fmt: skip
    monkeypatch.setattr(expected, "table", lambda: (one,))
    assert "91 to 93.5% top-1 on stripes" in planned(pictures, preset="quick").notes[-1]
    assert "unknown" in planned(pictures, preset="best").notes[-1]


def test_every_measurement_names_its_command_and_its_spread() -> None:
    for one in table():
        assert one.command.startswith("vitrail train"), one
        assert one.top1[0] <= one.top1[1]
        assert one.seeds >= 1


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("1h30m", 5400)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "20 m", "-3m", "0s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="20m"):
        seconds_of(text)


def test_a_budget_chooses_the_epochs_and_says_why(pictures: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(budget, "measured", lambda plan: Pace(training=0.1, evaluating=0.02, waiting=0.6))
    plan = planned(pictures, "Ti/16", preset="none", time_budget="2m", settings=TINY)
    train = plan.record("train", TrainConfig)
    each = 0.1 * len(plan.data.train) + 0.02 * len(plan.data.val)
    assert train.epochs == int(0.93 * 120 / each) or train.epochs == int(0.93 * 120 / each) - 1
    note = next(note for note in plan.notes if note.startswith("time:"))
    assert "limited by reading pictures" in note
    assert plan.settings.origins["train.epochs"] == "--time-budget 2m"


def test_the_pace_is_measured_on_real_steps_and_the_plan_is_left_alone(pictures: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(budget, "MEASURE", 0.2)
    plan = planned(pictures, "Ti/16", preset="none", settings=TINY)
    before = {name: tensor.clone() for name, tensor in plan.model.state_dict().items()}
    pace = budget.measured(plan)
    assert 0 < pace.training < 1
    assert 0 <= pace.waiting <= 1
    assert all((before[name] == tensor).all() for name, tensor in plan.model.state_dict().items())


# Memory --------------------------------------------------------------------------------------------------------------


def test_the_portion_is_what_is_predicted_to_fit(pictures: Path, monkeypatch: Any) -> None:
    large = {**TINY, "model.hidden_size": 256, "model.intermediate_size": 512, "train.batch_size": 48}
    whole = planned(pictures, "Ti/16", preset="none", settings=large)
    assert whole.record("train", TrainConfig).micro_batch == 48
    config = whole.record("train", TrainConfig)
    learning = dict(whole.model.named_parameters())
    some = memory.predicted(whole.model, learning, config, None, 10)
    monkeypatch.setattr(memory, "available", lambda device, world=None: int(some / memory.SHARE) + 1)
    tight = planned(pictures, "Ti/16", preset="none", settings={**large, "train.precision": "fp32"})
    portion = tight.record("train", TrainConfig).micro_batch
    assert 8 <= portion <= 12, "48 in equal portions of about ten"
    monkeypatch.setattr(memory, "available", lambda device, world=None: 2**20)
    with pytest.raises(EnvironmentProblem, match="gradient_checkpointing"):
        planned(pictures, "Ti/16", preset="none", settings=large)


def test_checkpointing_and_frozen_weights_are_predicted_to_take_less(pictures: Path) -> None:
    def needed(**changes: Any) -> int:
        settings = {**TINY, "model.num_hidden_layers": 6, "model.image_size": 64, **changes}
        plan = planned(pictures, "Ti/16", preset="none", settings=settings)
        return memory.per_picture(plan.model, plan.record("train", TrainConfig), None)

    full = needed()
    assert needed(**{"train.gradient_checkpointing": True}) < full / 2
    assert needed(**{"train.mode": "head"}) < full / 2
    assert needed(**{"train.mode": "probe"}) < full / 50
