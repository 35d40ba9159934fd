"""Recipes: found wherever vitrail is installed, read as they are written, ready to run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from vitrail import recipe as home
from vitrail.cli.recipe import command
from vitrail.errors import EnvironmentProblem, UsageError
from vitrail.settings import read_toml
from vitrail.train.settings import SECTIONS

ROOT = Path(__file__).parents[2]
EXAMPLE = """\
# Flowers, from nothing: 17 kinds.
# And a second line.
#
# command: vitrail train DATA --config recipes/flowers.toml --out runs/flowers
# time:    20 minutes
#          on two cores
# result:  91.2% of the validation pictures

[train]
epochs = 3  # time: not this one
"""


def run(*arguments: str) -> str:
    return CliRunner().invoke(command, arguments, catch_exceptions=False).output


@pytest.fixture
def flowers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(home, "PACKAGED", tmp_path / "recipes")
    (tmp_path / "recipes").mkdir()
    path = tmp_path / "recipes" / "flowers.toml"
    path.write_text(EXAMPLE)
    return path


def test_the_opening_comment_is_read_as_it_is_written(flowers: Path) -> None:
    found = home.recipe("flowers")
    assert found.title == "Flowers, from nothing: 17 kinds. And a second line."
    assert found.facts == {"time": "20 minutes on two cores", "result": "91.2% of the validation pictures"}
    assert found.command == f"vitrail train DATA --config {flowers} --out runs/flowers"


def test_the_command_names_the_file_as_one_would_type_it(flowers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(flowers.parents[1])
    assert "--config recipes/flowers.toml " in home.recipe("flowers").command
    odd = flowers.with_name("two words.toml")
    odd.write_text("[train]\n")
    assert home.read(odd).command == "vitrail train DATA --config 'recipes/two words.toml'"


def test_one_is_shown_with_its_cost_its_result_and_its_command_last(flowers: Path) -> None:
    lines = run("flowers").strip().splitlines()
    assert lines[0].startswith("flowers: Flowers, from nothing")
    assert "  time:     20 minutes on two cores" in lines
    assert lines[-1] == home.recipe("flowers").command
    assert run("flowers", "--toml") == EXAMPLE
    assert json.loads(run("flowers", "--json"))["facts"]["time"] == "20 minutes on two cores"


def test_all_are_listed(flowers: Path) -> None:
    assert run().startswith("flowers  Flowers, from nothing")
    assert [one["name"] for one in json.loads(run("--json"))["recipes"]] == ["flowers"]


def test_what_is_not_there_is_said(flowers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="Did you mean flowers"):
        run("flower")
    with pytest.raises(UsageError, match="prints one recipe"):
        run("--toml")
    monkeypatch.setattr(home, "PACKAGED", flowers.parent / "gone")
    monkeypatch.setattr(home, "CHECKOUT", flowers.parent / "gone")
    with pytest.raises(EnvironmentProblem, match="without its recipes"):
        run()


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "recipes").glob("*.toml"))])
def test_every_recipe_that_ships_is_found_and_sets_only_what_exists(name: str) -> None:
    found = home.recipe(name)
    assert found.command.startswith("vitrail ")
    assert read_toml(Path(found.path), SECTIONS)


def test_the_package_that_is_built_takes_the_recipes_along() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"recipes": f"vitrail/{home.PACKAGED.name}"}
