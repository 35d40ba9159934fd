"""Does `vitrail train` do what a person expects with no other flag, and say what it does?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from train.tiny import TINY, make_pictures

from vitrail.cli import vitrail as program
from vitrail.train import rates

SETS = [part for key, value in {**TINY, "train.epochs": 2}.items() for part in ("--set", f"{key}={str(value).lower()}")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with pictures in it."""
    make_pictures(tmp_path / "stripes", count=10)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def vitrail(*words: str) -> Result:
    return CliRunner().invoke(program, [*words], standalone_mode=False)


def code(result: Result) -> Any:
    return getattr(result.exception, "exit_code", result.return_value)


def test_a_run_gets_the_datas_name_and_the_next_one_a_number(here: Path) -> None:
    first = vitrail("train", "stripes", "--model", "Ti/16", "--preset", "none", *SETS)
    assert code(first) == 0, first.output
    assert "runs/stripes: completed after 2 epochs" in first.stdout
    assert "weights/best" in first.stdout
    vitrail("train", "stripes", "--model", "Ti/16", "--preset", "none", "--quiet", *SETS)
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["stripes", "stripes-2"]


def test_json_is_one_document_and_nothing_else(here: Path) -> None:
    result = vitrail("train", "stripes", "--model", "Ti/16", "--preset", "none", "--json", *SETS)
    found = json.loads(result.stdout)
    assert (found["schema_version"], found["status"], len(found["history"])) == (1, "completed", 2)


def test_a_dry_run_says_what_would_be_done_and_does_nothing(here: Path) -> None:
    result = vitrail("train", "stripes", "--dry-run", "--preset", "quick")
    for part in ("27 pictures to train on, 3 to validate, 3 classes", "preset quick:", "memory: about", "expected:"):
        assert part in result.stdout
    assert not (here / "runs").exists()


def test_every_setting_is_shown_with_where_it_came_from(here: Path) -> None:
    result = vitrail("train", "stripes", "--print-config", "--preset", "best", "--epochs", "3", "--set", "train.lr=0.5")
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert rows["train.epochs"].endswith("flag")
    assert rows["train.lr"].endswith("--set train.lr=0.5")
    assert rows["train.mixup"].endswith("preset best")
    assert rows["train.eps"].endswith("default")


def test_a_rate_is_suggested_and_the_curve_is_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rates.find_rate
    monkeypatch.setattr(rates, "find_rate", lambda plan, told: real(plan, steps=60, told=told))
    result = vitrail("train", "stripes", "--model", "Ti/16", "--preset", "none", "--lr-find", *SETS)
    assert "suggested: --set train.lr=" in result.stdout, result.exception
    assert sorted(path.name for path in (here / "runs" / "lr-find").iterdir()) == [
        "rates.csv",
        "rates.png",
        "rates.svg",
    ]


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["train"], 2, "No DATA"),
        (["train", "nowhere"], 3, "nowhere is not there"),
        (["train", "stripes", "--set", "train.learning_rate=1"], 2, "train.lr"),
        (["train", "stripes", "--resume", "runs/x"], 2, "has its data"),
        (["train", "--resume", "nowhere"], 2, "is not a run"),
        (["train", "--resume", "x", "--lr-find"], 2, "--lr-find was given with --resume"),
        (["train", "stripes", "--time-budget", "soon"], 2, "20m"),
    ],
)
def test_mistakes_are_named_with_a_way_out(here: Path, words: list[str], exit_code: int, said: str) -> None:
    result = vitrail(*words)
    assert code(result) == exit_code
    assert said in str(result.exception)
