"""Does every recipe still run? Two steps of each, as it is but for the number of pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from train.tiny import make_pictures

from vitrail.recipe import Recipe, recipes
from vitrail.settings import Layer, read_toml
from vitrail.train.run import train
from vitrail.train.settings import SECTIONS

SHORT = {"train.epochs": 1, "train.batch_size": 4, "train.micro_batch": 4, "train.report": False, "data.workers": 0}


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.name)
def test_two_steps_of_it_run(recipe: Recipe, tmp_path: Path) -> None:
    layer = Layer("recipe", read_toml(Path(recipe.path), SECTIONS))
    make_pictures(tmp_path / "data" / "train", count=4, classes=2, size=40)
    make_pictures(tmp_path / "data" / "val", count=1, classes=2, size=40)
    result = train(
        tmp_path / "data", out=tmp_path / "run", preset="none", settings=[layer, Layer("test", SHORT)], quiet=True
    )
    assert (result.status, result.history[0]["step"]) == ("completed", 2)


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.name)
def test_it_says_its_command_its_data_its_time_and_its_result(recipe: Recipe) -> None:
    assert {"data", "time", "result"} <= recipe.facts.keys()
    assert recipe.command.startswith("vitrail train ")
