"""Does a run end with all that people want: the report of `evaluate`, curves, tables, a card, a model for others?"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from train.tiny import make_pictures, run_tiny

import vitrail
from vitrail.errors import CheckpointError
from vitrail.train import report as reporting
from vitrail.train.run import train

TOLD: dict[str, Any] = {"train.report": True, "train.epochs": 2}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended, with a bad picture in it."""
    folder = tmp_path_factory.mktemp("told")
    data = make_pictures(folder / "data", count=12)
    (data / "class 1" / "4.png").write_bytes(b"no picture")
    run_tiny(data, folder / "run", TOLD)
    return folder / "run"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_run_directory_is_the_contracts(told: Path) -> None:
    wanted = {
        *("config.toml", "run.json", "results.csv", "events.jsonl", "weights", "checkpoints"),
        *("report.html", "plots", "confusion.csv", "per_class.csv", "bad_images.csv"),
    }
    assert wanted <= {path.name for path in told.iterdir()}
    assert {"best", "last"} <= {path.name for path in (told / "weights").iterdir()}
    assert (
        rows(told / "results.csv")[0].keys()
        == dict.fromkeys(
            ["epoch", "step", "train_loss", "val_loss", "val_top1", "val_top5", "lr", "seconds", "images_per_second"]
        ).keys()
    )


def test_the_report_says_what_the_best_epoch_scored_and_draws_the_curves(told: Path) -> None:
    best = json.loads((told / "run.json").read_text())["best"]
    metrics = json.loads((told / "metrics.json").read_text())
    assert metrics["values"]["top1"]["value"] == pytest.approx(best["val_top1"], abs=0.15)
    page = (told / "report.html").read_text()
    assert "What is taken for what" in page
    assert any("curve" in path.name or "loss" in path.name for path in (told / "plots").iterdir())
    assert sum(int(row["pictures"]) for row in rows(told / "confusion.csv")) == metrics["pictures"]


def test_bad_pictures_are_listed_once_whoever_met_them(told: Path) -> None:
    listed = [row["path"] for row in rows(told / "bad_images.csv")]
    assert [Path(path).name for path in listed] == ["4.png"]


def test_the_card_tells_people_and_hubs_how_good_it_is(told: Path) -> None:
    text = (told / "weights" / "best" / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: vitrail\n")
    assert "metrics: [{type: accuracy" in text
    assert "| 95% interval |" in text
    assert json.loads((told / "run.json").read_text())["data"]["fingerprint"] in text
    assert "class 0, class 1, class 2" in text


def test_the_best_weights_are_a_model_like_any_other(told: Path) -> None:
    for place in (told, told / "weights" / "best", told / "weights" / "last"):
        model = vitrail.load(place)
        assert model.labels == ["class 0", "class 1", "class 2"]
        assert model(torch.zeros(1, 3, 16, 16)).isfinite().all()


def test_a_report_that_cannot_be_made_costs_a_page_and_not_the_run(
    tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise CheckpointError("No engine today.")

    real = reporting.judge
    monkeypatch.setattr(reporting, "judge", lambda *args, **options: fail())
    assert run_tiny(pictures, tmp_path / "run", TOLD).status == "completed"
    assert not (tmp_path / "run" / "report.html").exists()
    assert '"no report"' in (tmp_path / "run" / "events.jsonl").read_text()
    monkeypatch.setattr(reporting, "judge", real)
    train(resume=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "report.html").is_file(), "going on with a finished run makes it"


@pytest.mark.upstream
@pytest.mark.filterwarnings("ignore")
def test_transformers_opens_the_best_weights_and_says_the_same(told: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    theirs = AutoModelForImageClassification.from_pretrained(told / "weights" / "best").eval()
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(theirs(images).logits, vitrail.load(told)(images), rtol=1e-4, atol=1e-5)
    assert theirs.config.id2label == {0: "class 0", 1: "class 1", 2: "class 2"}
    assert AutoImageProcessor.from_pretrained(told / "weights" / "best", use_fast=False) is not None
